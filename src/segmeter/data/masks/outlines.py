"""Reads files that hold the outlines of one image's objects: GeoJSON from QuPath, and YOLO segmentation labels.

Neither says how large its image is, so the size comes from the image or from the other side of a pair.
"""

import json
import logging
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.data.files.sniff import check_json, damage_named, file_error, open_regular, stored_size
from segmeter.data.masks.drawn import Drawn, check_object_classes, draw_objects, fill_polygon, find_object_labels
from segmeter.data.masks.options import Reading

_KINDS = ("Polygon", "MultiPolygon")
_ROUNDED = 0.01  # pixels: six digits of a fraction, of an image of 20,000
_LOG = logging.getLogger(__name__)


def read_outlines(path: Path, form: str, reading: Reading, *, shape: tuple[int, ...] | None) -> NDArray[Any]:
    """Draw the polygons of a file.

    A pixel belongs to a polygon that covers its centre. Pixels outside of all polygons are class 0.

    Parameters
    ----------
    path
        The file.
    form
        A key of `OUTLINES`.
    reading
        As for `draw_objects`.
    shape
        (H, W) of the map.

    Raises
    ------
    DataError
        The file is damaged, holds shapes that are not polygons, names an unknown class, or its objects overlap.
    """
    if shape is None or len(shape) != 2 or reading.spec.is_multilabel:
        rule = "to be scored against a map (height, width) of classes, whose size it takes"
        found = "multilabel" if reading.spec.is_multilabel else "no such map" if shape is None else f"shape {shape}"
        raise file_error(path, _NAMES[form], rule, found)
    with open_regular(path, may_be_empty=form == "yolo") as file:  # which has no objects then
        check_json(path, stored_size(path))
        content = file.read()
    with damage_named(path):  # other tools write anything, and parsers raise many types
        return draw_objects(path, OUTLINES[form](path, content, reading, (shape[0], shape[1])), shape, reading)


def _read_geojson(path: Path, content: bytes, reading: Reading, shape: tuple[int, int]) -> Iterator[Drawn]:
    """Read a FeatureCollection, a list of features, or one feature, as QuPath and `export.objects` write them."""
    given = json.loads(content)
    features = given if isinstance(given, list) else [given] if given["type"] == "Feature" else given["features"]
    names = [_class_of(feature) for feature in features]
    if not reading.instances and None in names:
        rule, remedy = "to have a class", "Classify it in QuPath, or score objects: data.instances."
        raise file_error(path, "every feature", rule, f"{names.count(None)} without", remedy)
    labels = find_object_labels(path, [name for name in names if name is not None], reading, may_be_first=True)
    return (
        Drawn(mask=_fill_feature(path, feature["geometry"], shape), label=labels.get(str(name), 1))
        for feature, name in zip(features, names, strict=True)
    )


def _class_of(feature: dict[str, Any]) -> str | None:
    properties = feature.get("properties") or {}
    name = (properties.get("classification") or {}).get("name") or properties.get("class")
    return None if name is None else str(name)


def _fill_feature(path: Path, geometry: dict[str, Any], shape: tuple[int, int]) -> NDArray[np.bool_]:
    if geometry["type"] not in _KINDS:
        raise file_error(path, "every shape", "to be a polygon", geometry["type"], "Convert it to a polygon.")
    parts = geometry["coordinates"] if geometry["type"] == "MultiPolygon" else [geometry["coordinates"]]
    if not all(parts) or not parts:
        raise ValueError("a shape without rings")
    mask = np.zeros(shape, bool)
    for outline, *holes in parts:
        part = fill_polygon(path, np.array(outline, np.float64)[:, :2], shape)
        for hole in holes:  # cut from this part alone
            part[fill_polygon(path, np.array(hole, np.float64)[:, :2], shape)] = False
        mask |= part
    return mask


def _read_yolo(path: Path, content: bytes, reading: Reading, shape: tuple[int, int]) -> Iterator[Drawn]:
    """Read one polygon per line: the class id, x and y of each corner as fractions of the image, and a confidence
    in every line or in none.

    YOLO has no background, so id 0 is class 1 here, unless the label map says otherwise.
    """
    rows = [line.split() for line in content.decode("utf-8-sig").splitlines() if line.strip()]
    ids = {row[0] for row in rows}
    known = reading.label_map or {str(label - 1): label for label in range(1, reading.spec.num_classes)}
    foreign = sorted(ids - known.keys())
    if foreign:
        rule, remedy = (
            f"to be of {', '.join(known)}",
            "Class id 0 is the second class; 'data.label_map={0: 2}' changes it.",
        )
        raise file_error(path, "class ids", rule, ", ".join(foreign)[:60], remedy)
    if reading.instances:
        check_object_classes(path, {each: known[each] for each in ids}, reading.spec)
    scored = sum(len(row) % 2 == 0 for row in rows)
    if scored not in (0, len(rows)):  # else a line that was cut off would be a smaller polygon
        rule, found = "to have a confidence, or none", f"an odd last number in {scored} of {len(rows)}"
        raise file_error(path, "every line", rule, found, "Copy the file again.")
    if scored and not content.endswith(b"\n"):
        rule, remedy = "to end with a line break after a confidence", "It may be cut off: copy the file again."
        raise file_error(path, "the last line", rule, f"{len(content)} bytes without one", remedy)
    corners = [np.array(row[1 : len(row) - bool(scored)], np.float64).reshape(-1, 2) for row in rows]
    if any(len(each) == 2 for each in corners):
        remedy = "Export segmentation labels: class x y x y x y ..."
        raise file_error(path, "every line", "to be a polygon", "a box of four numbers", remedy)
    corners = [each * shape[::-1] for each in corners]
    traced = [np.where(np.abs(each - np.rint(each)) < _ROUNDED, np.rint(each), each) for each in corners]
    if reading.corners == "centres":
        corners = [each + 0.5 for each in traced]
    elif rows and all((each == np.rint(each)).all() for each in traced):
        _warn_of_traced(path.parent)
    return (
        Drawn(mask=fill_polygon(path, each, shape), label=known[row[0]])
        for each, row in zip(corners, rows, strict=True)
    )


@cache
def _warn_of_traced(folder: Path) -> None:
    """Say once that a folder's objects may lack a row and a column."""
    _LOG.warning(
        "%s: all corners of a file lie on whole pixels. If Ultralytics or OpenCV traced them, set "
        "data.corners=centres; else every object loses its last row and column.",
        folder,
    )


OUTLINES: dict[str, Callable[[Path, bytes, Reading, tuple[int, int]], Iterator[Drawn]]] = {
    "geojson": _read_geojson,
    "yolo": _read_yolo,
}
_NAMES = {"geojson": "GeoJSON", "yolo": "YOLO labels"}
