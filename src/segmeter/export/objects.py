"""Encodes the objects of a case as GeoJSON outlines, COCO run lengths, or a table of measurements."""

import csv
import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.classes import ClassSpec
from segmeter.files import json_bytes
from segmeter.postprocess.objects import COLUMNS, Region, find_regions, polygonise, region_table

Labels = NDArray[Any]
Instances = NDArray[np.int32] | None


def encode_geojson(case_id: str, labels: Labels, instances: Instances, spec: ClassSpec) -> bytes:
    """Write one feature per object: its outline along pixel edges, with its class and size.

    QuPath opens the file. Coordinates are pixels of the image, (x, y) from its top left corner, y down; they are not
    geographic.

    References
    ----------
    RFC 7946, sections 3.1.6 (polygons, rings closed, outer ring first) and 3.2 (features).
    """
    features = [_feature(region, spec) for region in find_regions(labels, instances, spec)]
    return json_bytes({"type": "FeatureCollection", "name": case_id, "features": features})


def _feature(region: Region, spec: ClassSpec) -> dict[str, Any]:
    rows, columns = region.box
    polygons = [
        [[[x + columns.start, y + rows.start] for x, y in ring] for ring in rings] for rings in polygonise(region.mask)
    ]
    alone = len(polygons) == 1
    return {
        "type": "Feature",
        "id": region.number,
        "properties": {
            "class": spec.names[region.label],
            "objectType": "annotation",  # this and the next as QuPath has them
            "classification": {"name": spec.names[region.label], "color": list(spec.colours[region.label])},
            "label": region.label,
            "pixels": int(np.count_nonzero(region.mask)),
        },
        "geometry": {
            "type": "Polygon" if alone else "MultiPolygon",
            "coordinates": polygons[0] if alone else polygons,
        },
    }


def encode_coco(case_id: str, labels: Labels, instances: Instances, spec: ClassSpec) -> bytes:
    """Write one entry per object as in COCO's result files: image, category (the label), box and compressed run
    lengths.
    """
    size = labels.shape[-2:]
    return json_bytes([_entry(case_id, region, size) for region in find_regions(labels, instances, spec)])


def _entry(case_id: str, region: Region, size: tuple[int, ...]) -> dict[str, Any]:
    rows, columns = region.box
    return {
        "image_id": case_id,
        "category_id": region.label,
        "id": region.number,
        "area": int(np.count_nonzero(region.mask)),
        "bbox": [columns.start, rows.start, columns.stop - columns.start, rows.stop - rows.start],
        "segmentation": {"size": list(size), "counts": compress_runs(_runs(region, size))},
    }


def _runs(region: Region, size: tuple[int, ...]) -> list[int]:
    """Encode the whole image as run lengths, column by column: outside and inside in turn, outside first."""
    height, width = size
    rows, columns = region.box
    down, across = np.nonzero(region.mask.T)[::-1]  # in column order
    places = (across + columns.start).astype(np.int64) * height + down + rows.start
    breaks = np.flatnonzero(np.diff(places) != 1)
    starts, ends = places[np.r_[0, breaks + 1]], places[np.r_[breaks, -1]] + 1
    edges = np.r_[0, np.column_stack([starts, ends]).ravel(), height * width]
    runs: list[int] = np.diff(edges).tolist()
    return runs if runs[-1] else runs[:-1]


def compress_runs(runs: list[int]) -> str:
    """Compress run lengths into COCO's text: from the fourth on, the difference to the run two before, in 5-bit digits.

    A digit's sixth bit says whether another follows, and 48 is added to make it a character. The fifth bit of the last
    digit is the sign.
    """
    differences = [run if index < 3 else run - runs[index - 2] for index, run in enumerate(runs)]
    return "".join(character for value in differences for character in _digits(value))


def _digits(value: int) -> Iterator[str]:
    more = True
    while more:
        digit, value = value & 31, value >> 5
        more = value != (-1 if digit & 16 else 0)
        yield chr((digit | 32 if more else digit) + 48)


def encode_table(case_id: str, labels: Labels, instances: Instances, spec: ClassSpec) -> bytes:
    """Write a CSV with one row per object; columns and units as in `segmeter.postprocess.region_table`."""
    content = io.StringIO()
    writer = csv.DictWriter(content, ("case_id", *COLUMNS), lineterminator="\n")
    writer.writeheader()
    writer.writerows({"case_id": case_id, **row} for row in region_table(labels, instances, spec))
    return content.getvalue().encode()


Encode = Callable[[str, Labels, Instances, ClassSpec], bytes]
OBJECT_FILES: dict[str, tuple[str, Encode]] = {
    "geojson": (".geojson", encode_geojson),
    "coco": (".coco.json", encode_coco),
    "table": (".csv", encode_table),
}
