"""drawn objects, each a mask with a class -> one map of labels or of object numbers, or a plane of one class."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected, nearest, some
from segmeter.classes import ClassSpec
from segmeter.data.files.sniff import show
from segmeter.errors import DataError

Overlap = Literal["error", "smaller_on_top"]


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
    *,
    spec: ClassSpec,
    numbered: bool,
    overlap: Overlap,
) -> NDArray[Any]:
    """Lay objects onto one map.

    Parameters
    ----------
    path
        Only named in messages.
    objects
        Those of one image.
    shape
        (H, W) of the map.
    spec
        Its ``ignore_index`` takes crowds where objects are numbered.
    numbered
        Whether the map holds numbers of objects from 1 instead of labels.
    overlap
        What pixels are that two objects cover which differ in the map: an error, or the smaller object's.

    Returns
    -------
    (H, W), uint16 for labels and int64 for numbers.

    Raises
    ------
    DataError
        Objects overlap, or a crowd has no value to be ignored by.
    """
    drawn = np.zeros(shape, np.int64)
    taken, clashes = np.zeros(shape, bool), 0
    chosen = list(objects)
    if overlap == "smaller_on_top":
        chosen.sort(key=lambda each: -int(np.count_nonzero(each.mask)))
    number = 0
    for each in chosen:
        if numbered and each.crowd:
            value = _crowd(path, spec)
        else:
            number += 1
            value = number + (spec.ignore_index is not None and number >= spec.ignore_index) if numbered else each.label
        clashes += int(np.count_nonzero(taken & each.mask & (drawn != value)))
        drawn[each.mask] = value
        taken |= each.mask
    if clashes and overlap == "error":
        rule, found = "not to overlap", f"{clashes} pixels that two of them cover"
        remedy = "data.overlap=smaller_on_top gives them to the smaller one; a multilabel task keeps both classes."
        raise DataError(expected(show(path), "objects", rule, found, remedy))
    return drawn if numbered else drawn.astype(np.uint16)


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
    """Refuse corners (n, 2), x before y, that lie more than a pixel outside of the image.

    Raises
    ------
    DataError
        With one of them.
    """
    if not np.isfinite(corners).all():
        raise DataError(expected(show(path), "corners", "to be finite numbers", "one that is not", "Correct the file."))
    outside = ((corners < -1) | (corners > np.array(shape[::-1]) + 1)).any(axis=1)
    if outside.any():
        x, y = corners[outside][0]
        rule = f"to lie on the image of {shape[1]} x {shape[0]} pixels"
        remedy = "Export the polygons in pixels of this image."
        raise DataError(expected(show(path), "corners", rule, f"x={x:g}, y={y:g}", remedy))


def _crowd(path: Path, spec: ClassSpec) -> int:
    if spec.ignore_index is None:
        rule, remedy = "to be ignored, as nobody counted its objects", "Set data.ignore_index=255."
        raise DataError(expected(show(path), "a crowd", rule, "no ignored value", remedy))
    return spec.ignore_index
