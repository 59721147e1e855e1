"""Draws objects onto one map of labels or object numbers: annotation tools store outlines and runs, not maps."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import nearest, some
from segmeter.classes import IGNORED_KEY, ClassSpec
from segmeter.data.files.sniff import file_error
from segmeter.data.masks.options import Reading

_SPARE_LENGTH = 10_000  # pixels of outline that are always accepted, however small the image


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
        For messages; the folder's name is that of a multilabel task's class.
    objects
        Taken one at a time; only the part of a mask inside the object's bounding box is kept.
    shape
        (H, W) of the map.
    reading
        With ``instances`` the map holds object numbers from 1 instead of labels, and crowds get the
        ignored value. ``overlap`` decides about pixels that two objects with different values cover.

    Returns
    -------
    (H, W), uint16 for labels, int64 for object numbers, and uint8 of 0 and 1 for a plane.

    Raises
    ------
    DataError
        Objects overlap, or there is a crowd but no ignored value.
    """
    if reading.spec.is_multilabel:
        plane, label = np.zeros(shape, np.uint8), reading.spec.names.index(path.parent.name)
        for each in objects:
            plane[each.mask & (each.label == label)] = 1
        return plane
    numbered, spec = bool(reading.instances), reading.spec
    drawn, owner = np.zeros(shape, np.int64), np.full(shape, -1, np.int32)  # the layer that each pixel was drawn in
    chosen = [_crop(each) for each in objects]
    smaller_on_top = reading.overlap == "smaller_on_top"
    chosen.sort(key=lambda each: (each[0].layer, -int(np.count_nonzero(each[0].mask)) if smaller_on_top else 0))
    layers = {layer: number for number, layer in enumerate(sorted({each.layer for each, _ in chosen}))}
    count = clashes = 0
    for each, box in chosen:
        if numbered and each.crowd:
            if not spec.has_ignored:
                rule = "to be ignored, as nobody counted its objects"
                raise file_error(path, "a crowd", rule, "no ignored value", f"Set {IGNORED_KEY}=255.")
            value = spec.void
        else:
            count += 1
            value = spec.number_of(count) if numbered else each.label
        layer = layers[each.layer]
        clashes += int(np.count_nonzero((owner[box] == layer) & each.mask & (drawn[box] != value)))
        drawn[box][each.mask] = value
        owner[box][each.mask] = layer
    if clashes and not smaller_on_top:
        rule, found = "not to overlap", f"{clashes} pixels that two of them cover"
        remedy = "data.overlap=smaller_on_top gives them to the smaller one; a multilabel task keeps both classes."
        raise file_error(path, "objects", rule, found, remedy)
    return drawn if numbered else drawn.astype(np.uint16)


def _crop(one: Drawn) -> tuple[Drawn, tuple[slice, slice]]:
    """Return the object with its mask cut to its bounding box, and the box."""
    rows, columns = (np.flatnonzero(one.mask.any(axis=axis)) for axis in (1, 0))
    if not len(rows):
        return replace(one, mask=one.mask[:0, :0].copy()), np.s_[:0, :0]
    box = np.s_[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    return replace(one, mask=one.mask[box].copy()), box


def find_object_labels(
    path: Path, names: Iterable[str], reading: Reading, *, may_be_first: bool = False
) -> dict[str, int]:
    """Return the label of each object's class.

    Raises
    ------
    DataError
        A name is not a class. With ``instances``, it is not the class that is measured. Unless objects
        `may_be_first`, it is the first class, which pixels without an object get.
    """
    spec, wanted = reading.spec, list(dict.fromkeys(names))
    foreign = [name for name in wanted if name not in spec.names]
    if foreign:
        rule = f"to be of {', '.join(spec.names)}"
        raise file_error(path, "classes", rule, some(foreign), nearest(foreign[0], spec.names))
    labels = {name: spec.names.index(name) for name in wanted}
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
    """Refuse corners (n, 2), x before y, more than a pixel outside the image, and outlines without end.

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
        It has fewer than three corners.
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
