"""Lays drawn objects, each a mask with a class, onto one map of labels or of object numbers; reads those of GeoJSON.

GeoJSON is as QuPath and `export.objects` write it, and needs no library of its own.
"""

import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected, nearest, some
from segmeter.classes import ClassSpec
from segmeter.data.files.sniff import check_json, damage_named, show
from segmeter.data.masks.options import Reading
from segmeter.errors import DataError

_KINDS = ("Polygon", "MultiPolygon")
_SPARE_LENGTH = 10_000  # of an outline on any image, however small


@dataclass(frozen=True, kw_only=True, eq=False)
class Drawn:
    """One object: its mask (H, W), its label, and whether it is a crowd, whose objects nobody counted."""

    mask: NDArray[np.bool_]
    label: int
    crowd: bool = False


def draw_objects(
    path: Path,
    objects: Iterable[Drawn],
    shape: tuple[int, int],
    reading: Reading,
) -> NDArray[Any]:
    """Lay objects onto one map.

    Parameters
    ----------
    path
        Only named in messages.
    objects
        Those of one image, taken one by one: what is kept of each is its mask within its own box.
    shape
        (H, W) of the map.
    reading
        With ``instances`` the map holds numbers of objects from 1 instead of labels, and the spec's ``ignore_index``
        takes crowds. ``overlap`` says what pixels are that two objects cover which differ in the map.

    Returns
    -------
    (H, W), uint16 for labels and int64 for numbers.

    Raises
    ------
    DataError
        Objects overlap, or a crowd has no value to be ignored by.
    """
    numbered, ignored = bool(reading.instances), reading.spec.ignore_index
    drawn = np.zeros(shape, np.int64)
    taken, clashes = np.zeros(shape, bool), 0
    chosen = [_cropped(each) for each in objects]
    if reading.overlap == "smaller_on_top":
        chosen.sort(key=lambda each: -int(np.count_nonzero(each[0].mask)))
    number = 0
    for each, box in chosen:
        if numbered and each.crowd:
            value = _crowd(path, ignored)
        else:
            number += 1
            value = number + (ignored is not None and number >= ignored) if numbered else each.label
        clashes += int(np.count_nonzero(taken[box] & each.mask & (drawn[box] != value)))
        drawn[box][each.mask] = value
        taken[box] |= each.mask
    if clashes and reading.overlap == "error":
        rule, found = "not to overlap", f"{clashes} pixels that two of them cover"
        remedy = "data.overlap=smaller_on_top gives them to the smaller one; a multilabel task keeps both classes."
        raise DataError(expected(show(path), "objects", rule, found, remedy))
    return drawn if numbered else drawn.astype(np.uint16)


def _cropped(one: Drawn) -> tuple[Drawn, tuple[slice, slice]]:
    """The object with its mask within its own box, and the box."""
    rows, columns = (np.flatnonzero(one.mask.any(axis=axis)) for axis in (1, 0))
    if not len(rows):
        return replace(one, mask=one.mask[:0, :0].copy()), np.s_[:0, :0]
    box = np.s_[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    return replace(one, mask=one.mask[box].copy()), box


def find_labels(path: Path, names: Iterable[str], spec: ClassSpec) -> dict[str, int]:
    """The label of each class that a file names.

    Raises
    ------
    DataError
        With every name that is no class.
    """
    wanted = list(dict.fromkeys(names))
    foreign = [name for name in wanted if name not in spec.names]
    if foreign:
        rule = f"to be of {', '.join(spec.names)}"
        raise DataError(expected(show(path), "classes", rule, some(foreign), nearest(foreign[0], spec.names)))
    return {name: spec.names.index(name) for name in wanted}


def check_object_classes(path: Path, labels: Mapping[str, int], spec: ClassSpec) -> None:
    """Refuse objects to be numbered whose class, by its name, is another than the one that is scored."""
    others = [name for name, label in labels.items() if label != 1]
    if others:
        remedy = "Keep the others in another file."
        raise DataError(expected(show(path), "class of the objects", f"to be {spec.names[1]}", some(others), remedy))


def check_corners(path: Path, corners: NDArray[np.float64], shape: tuple[int, int]) -> None:
    """Refuse corners (n, 2), x before y, that lie more than a pixel outside of the image, and endless outlines.

    An outline that visits every edge of a pixel once is about twice as long as there are pixels. What is four times as
    long, its corners counted too, is refused: filling it takes memory and time by its length.

    Raises
    ------
    DataError
        With one of the corners, or the length.
    """
    if not np.isfinite(corners).all():
        raise DataError(expected(show(path), "corners", "to be finite numbers", "one that is not", "Correct the file."))
    outside = ((corners < -1) | (corners > np.array(shape[::-1]) + 1)).any(axis=1)
    if outside.any():
        x, y = corners[outside][0]
        rule = f"to lie on the image of {shape[1]} x {shape[0]} pixels"
        remedy = "Export the polygons in pixels of this image."
        raise DataError(expected(show(path), "corners", rule, f"x={x:g}, y={y:g}", remedy))
    most = _SPARE_LENGTH + 4 * shape[0] * shape[1]
    length = len(corners) + float(np.abs(np.diff(corners, axis=0)).max(axis=1).sum())
    if length > most:
        rule, remedy = f"of at most {most} corners and pixels together", "Simplify it, or save run lengths or a map."
        raise DataError(expected(show(path), "outline", rule, f"{length:.0f}", remedy))


def fill_outline(corners: NDArray[np.float64], shape: tuple[int, int]) -> NDArray[np.bool_]:
    """Pixels (H, W) whose centre lies within an outline or on it, in time that goes by its length.

    Parameters
    ----------
    corners
        (n, 2), x before y, in units of pixels from the centre of the first one. The outline is closed.
    shape
        (H, W).
    """
    x, y = np.vstack([corners, corners[:1]]).T
    first, last = np.ceil(np.minimum(y[:-1], y[1:])), np.floor(np.maximum(y[:-1], y[1:]))
    first, last = np.clip(first, 0, shape[0]).astype(np.int64), np.clip(last, -1, shape[0] - 1).astype(np.int64)
    counts = np.where(y[:-1] == y[1:], 0, np.maximum(last - first + 1, 0))
    edge = np.repeat(np.arange(len(counts)), counts)  # for each row that an edge meets
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
    for each in np.flatnonzero(along).tolist():  # edges that run along the centres of a row
        start, stop = sorted((x[each], x[each + 1]))
        filled[int(y[each]), max(0, math.ceil(start)) : max(0, math.floor(stop) + 1)] = True
    return filled


def _crowd(path: Path, ignored: int | None) -> int:
    if ignored is None:
        rule, remedy = "to be ignored, as nobody counted its objects", "Set data.ignore_index=255."
        raise DataError(expected(show(path), "a crowd", rule, "no ignored value", remedy))
    return ignored


def decode_geojson(path: Path, file: IO[bytes], reading: Reading, *, shape: tuple[int, int]) -> NDArray[Any]:
    """Draw the polygons of an open file.

    A pixel belongs to a polygon that covers its centre; pixel (row, column) reaches from column to column + 1 in x and
    from row to row + 1 in y. Without polygons all is background.

    Parameters
    ----------
    path
        Only named in messages.
    file
        A FeatureCollection, a list of features, or a feature.
    shape
        (H, W) of the map; the file does not say it.
    reading
        As for `draw_objects`; features have the names of its classes in ``classification`` (QuPath) or ``class``.

    Raises
    ------
    DataError
        The file is damaged, holds other shapes than polygons, names an unknown class, or its objects overlap.
    """
    check_json(path, file.seek(0, os.SEEK_END))
    file.seek(0)
    with damage_named(path):  # JSON of other tools holds anything
        content = json.load(file)
        features = content
        if not isinstance(content, list):
            features = [content] if content["type"] == "Feature" else content["features"]
        names = [_class_name(feature) for feature in features]
        if not reading.instances and None in names:
            rule, remedy = "to have a class", "Classify it in QuPath, or score objects: data.instances."
            raise DataError(expected(show(path), "every feature", rule, f"{names.count(None)} without", remedy))
        labels = find_labels(path, [name for name in names if name is not None], reading.spec)
        if reading.instances:
            check_object_classes(path, labels, reading.spec)
        drawn = (
            Drawn(mask=_fill(path, feature["geometry"], shape), label=labels.get(str(name), 1))
            for feature, name in zip(features, names, strict=True)
        )
        return draw_objects(path, drawn, shape, reading)


def _class_name(feature: dict[str, Any]) -> str | None:
    properties = feature.get("properties") or {}
    name = (properties.get("classification") or {}).get("name") or properties.get("class")
    return None if name is None else str(name)


def _fill(path: Path, geometry: dict[str, Any], shape: tuple[int, int]) -> NDArray[np.bool_]:
    if geometry["type"] not in _KINDS:
        remedy = "Convert it to a polygon."
        raise DataError(expected(show(path), "every shape", "to be a polygon", geometry["type"], remedy))
    parts = geometry["coordinates"] if geometry["type"] == "MultiPolygon" else [geometry["coordinates"]]
    if not parts:
        raise ValueError("a shape without parts")
    mask = np.zeros(shape, bool)
    for rings in parts:
        mask |= _fill_part(path, rings, shape)
    return mask


def _fill_part(path: Path, rings: list[Any], shape: tuple[int, int]) -> NDArray[np.bool_]:
    """One outline with its holes, which are cut from no other part."""
    if not rings:
        raise ValueError("a part without rings")
    mask = np.zeros(shape, bool)
    for number, ring in enumerate(rings):
        corners = np.array(ring, np.float64)[:, :2]
        if len(corners) < 3:
            raise ValueError("a ring of fewer than three corners")
        check_corners(path, corners, shape)
        mask[fill_outline(corners - 0.5, shape)] = number == 0  # the first ring is the outline, the others are holes
    return mask
