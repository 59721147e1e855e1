"""Draws objects onto one map of labels or object numbers, because annotation tools store outlines or runs, not maps.

Files that hold the outlines of one image are read here: GeoJSON from QuPath, and YOLO segmentation labels. Neither says
how large its image is, so the size comes from the image or from the other side of a pair.
"""

import json
import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import nearest, some
from segmeter.classes import IGNORED_KEY, ClassSpec
from segmeter.data.files.refusals import check_json, damage_named, file_error, open_regular, stored_size
from segmeter.data.sample import Reading

_SPARE_LENGTH = 10_000  # Outlines of up to this many pixels are always accepted, however small the image is.
_ROUNDED = 0.01  # A corner this near to a whole pixel lies on it: six digits of a fraction, of 20,000 pixels.
_LOG = logging.getLogger(__name__)
_NAMES = {"geojson": "GeoJSON", "yolo": "YOLO labels"}


@dataclass(frozen=True, kw_only=True, eq=False)
class Drawn:
    """One object.

    Parameters
    ----------
    mask : (H, W), bool
    label
        Its class.
    crowd
        Whether it stands for many objects that nobody counted.
    layer
        Objects of a higher layer cover those below. Within one layer, objects that overlap are a conflict.
    """

    mask: NDArray[np.bool_]
    label: int
    crowd: bool = False
    layer: int = 0


def draw_objects(path: Path, objects: Iterable[Drawn], shape: tuple[int, int], reading: Reading) -> NDArray[Any]:
    """Draw the objects of one image onto one map; for a multilabel task, onto the plane of the class in `path`.

    Parameters
    ----------
    path
        The file, for messages. In a multilabel task, the name of its folder is the class.
    objects
        Taken one at a time. Only the part of a mask inside the object's bounding box is kept.
    shape
        (H, W) of the map.
    reading
        With ``instances`` the map holds object numbers from 1 instead of labels, and crowds get the ignored value.
        ``overlap`` decides about pixels that two objects with different values cover.

    Returns
    -------
    (H, W), uint16 for labels, int64 for object numbers, and uint8 of 0 and 1 for a plane.

    Raises
    ------
    DataError
        Objects overlap, or there is a crowd but no ignored value.
    """
    if reading.spec.is_multilabel:
        plane = np.zeros(shape, np.uint8)
        label = reading.spec.names.index(path.parent.name)
        for drawn in objects:
            plane[drawn.mask & (drawn.label == label)] = 1
        return plane
    spec = reading.spec
    is_numbered = bool(reading.instances)
    values = np.zeros(shape, np.int64)
    layer_of_pixel = np.full(shape, -1, np.int32)
    in_boxes = []
    for drawn in objects:
        rows, columns = (np.flatnonzero(drawn.mask.any(axis=axis)) for axis in (1, 0))
        box = np.s_[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1] if len(rows) else np.s_[:0, :0]
        in_boxes.append((replace(drawn, mask=drawn.mask[box].copy()), box))
    smaller_on_top = reading.overlap == "smaller_on_top"
    in_boxes.sort(key=lambda pair: (pair[0].layer, -int(np.count_nonzero(pair[0].mask)) if smaller_on_top else 0))
    layers = {layer: number for number, layer in enumerate(sorted({drawn.layer for drawn, _ in in_boxes}))}
    count = clashes = 0
    for drawn, box in in_boxes:
        if is_numbered and drawn.crowd:
            if not spec.has_ignored:
                rule = "to be ignored, as nobody counted its objects"
                raise file_error(path, "a crowd", rule, "no ignored value", f"Set {IGNORED_KEY}=255.")
            value = spec.unlabelled_value
        else:
            count += 1
            value = spec.number_of(count) if is_numbered else drawn.label
        layer = layers[drawn.layer]
        clashes += int(np.count_nonzero((layer_of_pixel[box] == layer) & drawn.mask & (values[box] != value)))
        values[box][drawn.mask] = value
        layer_of_pixel[box][drawn.mask] = layer
    if clashes and not smaller_on_top:
        pixels = f"{clashes} pixels that two of them cover"
        remedy = "data.overlap=smaller_on_top gives them to the smaller one; a multilabel task keeps both classes."
        raise file_error(path, "objects", "not to overlap", pixels, remedy)
    return values if is_numbered else values.astype(np.uint16)


def find_object_labels(
    path: Path, names: Iterable[str], reading: Reading, *, may_be_first: bool = False
) -> dict[str, int]:
    """Return the label of each object's class.

    Raises
    ------
    DataError
        A name is not a class. With ``instances``, it is not the class that is measured. Unless objects `may_be_first`,
        it is the first class, which pixels without an object get.
    """
    spec = reading.spec
    names = list(dict.fromkeys(names))
    foreign = [name for name in names if name not in spec.names]
    if foreign:
        rule = f"to be of {', '.join(spec.names)}"
        raise file_error(path, "classes", rule, some(foreign), nearest(foreign[0], spec.names))
    labels = {name: spec.names.index(name) for name in names}
    if reading.instances:
        check_object_classes(path, labels, spec)
    elif 0 in labels.values() and not (may_be_first or spec.is_multilabel):
        rule, remedy = "to be the background, because pixels without an object get it", "Name a background first."
        raise file_error(path, "the first class", rule, f"objects of {spec.names[0]!r}", remedy)
    return labels


def check_object_classes(path: Path, labels: Mapping[str, int], spec: ClassSpec) -> None:
    """Refuse numbered objects of any class but the one that is measured."""
    others = [name for name, label in labels.items() if label != 1]
    if others:
        remedy = "Keep the others in another file."
        raise file_error(path, "class of the objects", f"to be {spec.names[1]}", some(others), remedy)


def check_corners(path: Path, corners: NDArray[np.float64], shape: tuple[int, int]) -> None:
    """Refuse corners (n, 2), x before y, that lie more than a pixel outside the image, and outlines that are too long.

    An outline along the edge of every pixel is about twice as long as there are pixels. Filling takes memory and time
    in proportion to the length, so twice that length, corners included, is the limit.
    """
    if not np.isfinite(corners).all():
        raise file_error(path, "corners", "to be finite numbers", "one that is not", "Correct the file.")
    outside = ((corners < -1) | (corners > np.array(shape[::-1]) + 1)).any(axis=1)
    if outside.any():
        x, y = corners[outside][0]
        rule = f"to lie on the image of {shape[0]} x {shape[1]} pixels"
        raise file_error(path, "corners", rule, f"x={x:g}, y={y:g}", "Export the polygons in pixels of this image.")
    most = _SPARE_LENGTH + 4 * shape[0] * shape[1]
    length = len(corners) + float(np.abs(np.diff(corners, axis=0)).max(axis=1).sum())
    if length > most:
        rule, remedy = f"of at most {most} corners and pixels together", "Simplify it, or save run lengths or a map."
        raise file_error(path, "outline", rule, f"{length:.0f}", remedy)


def fill_polygon(path: Path, corners: NDArray[np.float64], shape: tuple[int, int]) -> NDArray[np.bool_]:
    """Return the pixels (H, W) whose centres a polygon covers; pixel (row, column) reaches from column to column + 1.

    Raises
    ------
    DataError
        A corner lies outside the image, or the outline is too long.
    ValueError
        The polygon has fewer than three corners.
    """
    if len(corners) < 3:
        raise ValueError("a polygon of fewer than three corners")
    check_corners(path, corners, shape)
    return fill_outline(corners - 0.5, shape)


def fill_outline(corners: NDArray[np.float64], shape: tuple[int, int]) -> NDArray[np.bool_]:
    """Return the pixels (H, W) whose centres lie inside a closed outline or on it.

    The time depends on the outline's length and not on its area.

    Parameters
    ----------
    corners
        (n, 2), x before y, in pixels from the centre of the first pixel.
    shape
        (H, W).
    """
    x, y = np.vstack([corners, corners[:1]]).T
    first, last = np.ceil(np.minimum(y[:-1], y[1:])), np.floor(np.maximum(y[:-1], y[1:]))
    first, last = np.clip(first, 0, shape[0]).astype(np.int64), np.clip(last, -1, shape[0] - 1).astype(np.int64)
    counts = np.where(y[:-1] == y[1:], 0, np.maximum(last - first + 1, 0))
    edge = np.repeat(np.arange(len(counts)), counts)  # one entry for each pixel row that an edge meets
    row = first[edge] + np.arange(len(edge)) - np.repeat(np.cumsum(counts) - counts, counts)
    width, height = (x[1:] - x[:-1])[edge], (y[1:] - y[:-1])[edge]
    cross = x[edge] + (row - y[edge]) * width / height
    passed = (row < y[edge]) != (row < y[edge + 1])  # a corner counts for one of its two edges
    parity = np.zeros((shape[0], shape[1] + 1), np.uint8)
    np.bitwise_xor.at(parity, (row[passed], np.clip(np.ceil(cross[passed]), 0, shape[1]).astype(np.int64)), 1)
    filled = np.bitwise_xor.accumulate(parity, axis=1)[:, :-1].astype(bool)
    near = np.rint(cross)
    on = ((near - x[edge]) * height == (row - y[edge]) * width) & (near >= 0) & (near < shape[1])
    filled[row[on], near[on].astype(np.int64)] = True
    along = (y[:-1] == y[1:]) & (y[:-1] == np.rint(y[:-1])) & (y[:-1] >= 0) & (y[:-1] < shape[0])
    for each in np.flatnonzero(along).tolist():  # edges along the centres of a pixel row
        start, stop = sorted((x[each], x[each + 1]))
        filled[int(y[each]), max(0, math.ceil(start)) : max(0, math.floor(stop) + 1)] = True
    return filled


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
        given = "multilabel" if reading.spec.is_multilabel else "no such map" if shape is None else f"shape {shape}"
        raise file_error(path, _NAMES[form], rule, given)
    with open_regular(path, may_be_empty=form == "yolo") as file:  # an empty YOLO file has no objects
        check_json(path, stored_size(path))
        content = file.read()
    with damage_named(path):  # files of other tools may hold anything, and parsers raise many types
        return draw_objects(path, OUTLINES[form](path, content, reading, (shape[0], shape[1])), shape, reading)


def _read_geojson(path: Path, content: bytes, reading: Reading, shape: tuple[int, int]) -> Iterator[Drawn]:
    """Read a FeatureCollection, a list of features, or one feature, as QuPath and `export.objects` write them."""
    root = json.loads(content)
    features = root if isinstance(root, list) else [root] if root["type"] == "Feature" else root["features"]
    names = []
    for properties in (feature.get("properties") or {} for feature in features):
        name = (properties.get("classification") or {}).get("name") or properties.get("class")
        names.append(None if name is None else str(name))
    if not reading.instances and None in names:
        rule, remedy = "to have a class", "Classify it in QuPath, or score objects: data.instances."
        raise file_error(path, "every feature", rule, f"{names.count(None)} without", remedy)
    labels = find_object_labels(path, [name for name in names if name is not None], reading, may_be_first=True)
    return (
        Drawn(mask=_fill_feature(path, feature["geometry"], shape), label=labels.get(str(name), 1))
        for feature, name in zip(features, names, strict=True)
    )


def _fill_feature(path: Path, geometry: dict[str, Any], shape: tuple[int, int]) -> NDArray[np.bool_]:
    if geometry["type"] not in ("Polygon", "MultiPolygon"):
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
        rule = f"to be of {', '.join(known)}"
        remedy = "Class id 0 is the second class; 'data.label_map={0: 2}' changes it."
        raise file_error(path, "class ids", rule, ", ".join(foreign)[:60], remedy)
    if reading.instances:
        check_object_classes(path, {class_id: known[class_id] for class_id in ids}, reading.spec)
    scored = sum(len(row) % 2 == 0 for row in rows)
    if scored not in (0, len(rows)):  # a line that was cut off would otherwise be read as a smaller polygon
        rule, odd = "to have a confidence, or none", f"an odd last number in {scored} of {len(rows)}"
        raise file_error(path, "every line", rule, odd, "Copy the file again.")
    if scored and not content.endswith(b"\n"):
        rule, remedy = "to end with a line break after a confidence", "It may be cut off: copy the file again."
        raise file_error(path, "the last line", rule, f"{len(content)} bytes without one", remedy)
    corners = [np.array(row[1 : len(row) - bool(scored)], np.float64).reshape(-1, 2) for row in rows]
    if any(len(polygon) == 2 for polygon in corners):
        remedy = "Export segmentation labels: class x y x y x y ..."
        raise file_error(path, "every line", "to be a polygon", "a box of four numbers", remedy)
    corners = [polygon * shape[::-1] for polygon in corners]
    rounded = [np.where(np.abs(xy - np.rint(xy)) < _ROUNDED, np.rint(xy), xy) for xy in corners]
    if reading.corners == "centres":
        corners = [polygon + 0.5 for polygon in rounded]
    elif rows and all((polygon == np.rint(polygon)).all() for polygon in rounded):
        _warn_of_traced(path.parent)
    return (
        Drawn(mask=fill_polygon(path, polygon, shape), label=known[row[0]])
        for polygon, row in zip(corners, rows, strict=True)
    )


@cache
def _warn_of_traced(folder: Path) -> None:
    """Warn once per folder that its objects may lose a row and a column."""
    _LOG.warning(
        "%s: all corners of a file lie on whole pixels. If Ultralytics or OpenCV traced them, set "
        "data.corners=centres; else every object loses its last row and column.",
        folder,
    )


OUTLINES = {"geojson": _read_geojson, "yolo": _read_yolo}
