"""Encodes the objects of a case as GeoJSON outlines, COCO run lengths, or a table of measurements."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.classes import ClassSpec
from segmeter.files import csv_bytes, json_bytes
from segmeter.postprocess.objects import COLUMNS, Region, find_regions, polygonise, region_table

Labels = NDArray[Any]
Instances = NDArray[np.int32] | None


def encode_geojson(case_id: str, labels: Labels, instances: Instances, spec: ClassSpec) -> bytes:
    """Write one feature per object: its outline along pixel edges, with its class and size.

    QuPath can open the file. Coordinates are in pixels, (x, y) from the image's top left corner, with y down. They are
    not geographic.

    References
    ----------
    RFC 7946, sections 3.1.6 (polygons, rings closed, outer ring first) and 3.2 (features).
    """
    features = []
    for region in find_regions(labels, instances, spec):
        corner = np.array([region.box[1].start, region.box[0].start])
        polygons = [[(np.array(ring) + corner).tolist() for ring in rings] for rings in polygonise(region.mask)]
        kind, coordinates = ("Polygon", polygons[0]) if len(polygons) == 1 else ("MultiPolygon", polygons)
        name = spec.names[region.label]
        properties = {
            "class": name,
            "objectType": "annotation",  # QuPath reads this and "classification"
            "classification": {"name": name, "color": list(spec.colours[region.label])},
            "label": region.label,
            "pixels": int(np.count_nonzero(region.mask)),
        }
        geometry = {"type": kind, "coordinates": coordinates}
        features.append({"type": "Feature", "id": region.number, "properties": properties, "geometry": geometry})
    return json_bytes({"type": "FeatureCollection", "name": case_id, "features": features})


def encode_coco(case_id: str, labels: Labels, instances: Instances, spec: ClassSpec) -> bytes:
    """Write one entry per object as in COCO's result files: image, category (the label), box and compressed run
    lengths.
    """
    entries = []
    size = labels.shape[-2:]
    for region in find_regions(labels, instances, spec):
        rows, columns = region.box
        entry = {
            "image_id": case_id,
            "category_id": region.label,
            "id": region.number,
            "area": int(np.count_nonzero(region.mask)),
            "bbox": [columns.start, rows.start, columns.stop - columns.start, rows.stop - rows.start],
            "segmentation": {"size": list(size), "counts": compress_runs(_runs(region, size))},
        }
        entries.append(entry)
    return json_bytes(entries)


def _runs(region: Region, size: tuple[int, ...]) -> list[int]:
    """Encode the whole image as run lengths, column by column: outside and inside in turn, outside first."""
    height, width = size
    rows, columns = region.box
    y, x = np.nonzero(region.mask.T)[::-1]  # in column order
    positions = (x + columns.start).astype(np.int64) * height + y + rows.start
    breaks = np.flatnonzero(np.diff(positions) != 1)
    starts, ends = positions[np.r_[0, breaks + 1]], positions[np.r_[breaks, -1]] + 1
    edges = np.r_[0, np.column_stack([starts, ends]).ravel(), height * width]
    runs: list[int] = np.diff(edges).tolist()
    return runs if runs[-1] else runs[:-1]


def compress_runs(runs: list[int]) -> str:
    """Compress run lengths into COCO's text, in 5-bit digits.

    From the fourth run on, a number is the difference from the run two before. A digit's sixth bit tells whether
    another one follows, and 48 is added to make it a character. The fifth bit of the last digit is the sign.
    """
    text = ""
    for index, run in enumerate(runs):
        value = run if index < 3 else run - runs[index - 2]
        more = True
        while more:
            digit = value & 31
            value >>= 5
            more = value != (-1 if digit & 16 else 0)
            text += chr((digit | 32 if more else digit) + 48)
    return text


def encode_table(case_id: str, labels: Labels, instances: Instances, spec: ClassSpec) -> bytes:
    """Write a CSV with one row per object; columns and units as in `segmeter.postprocess.region_table`."""
    rows = region_table(labels, instances, spec)
    return csv_bytes([("case_id", *COLUMNS), *((case_id, *(row[name] for name in COLUMNS)) for row in rows)])


OBJECT_FILES = {
    "geojson": (".geojson", encode_geojson),
    "coco": (".coco.json", encode_coco),
    "table": (".csv", encode_table),
}
