"""Reads the maps of a case to draw. One larger than memory is read by lines: reduced, and whole where most is wrong."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.classes import ClassSpec
from segmeter.data.files.array import LazyArray
from segmeter.report.pictures.layers import (
    LONGEST,
    MOST_TILES,
    TILE,
    Layers,
    draw_layers,
)
from segmeter.report.pictures.maps import (
    IGNORED,
    classify_errors,
    display_image,
    display_ranges,
    error_map,
    mean_blocks,
    reduce_by,
)
from segmeter.report.pictures.objects import NO_OBJECTS, Objects

Maps = tuple[NDArray[Any], NDArray[Any] | None, NDArray[Any]]


@dataclass(frozen=True, kw_only=True, eq=False)
class DrawnCase:
    """The maps of a case, read from the files of a finished run.

    Parameters
    ----------
    image : (H, W, C), or (D, H, W, C)
    target, labels : (H, W) or (D, H, W); (K, H, W) for multilabel; integer
        `target` is None where a run has no references.
    objects
        The objects of both sides.
    files
        The files that they come from: by "image", "target" and "prediction".
    large
        For a case larger than memory: the arrays are its overview, and these are its further parts.
    """

    image: NDArray[Any]
    target: NDArray[Any] | None
    labels: NDArray[Any]
    objects: Objects = NO_OBJECTS
    files: Mapping[str, Sequence[Path]] = field(default_factory=dict)
    large: "LargeParts | None" = None


@dataclass(frozen=True, kw_only=True, eq=False)
class LargeParts:
    """The parts of a case larger than memory beside its overview.

    Parameters
    ----------
    size
        Rows and columns of the case.
    errors : (h, w), uint8
        The kind of error in each block of pixels, as `classify_errors` finds it.
    wrong
        Number of wrong pixels of the case.
    tiles
        Real pixels, the places with the most errors first.
    worst
        Maps of the first tile, and its corner.
    """

    size: tuple[int, int]
    errors: NDArray[np.uint8] | None
    wrong: int
    tiles: Sequence[Layers]
    worst: tuple[Maps, tuple[int, int]]


@dataclass(frozen=True, kw_only=True, eq=False)
class LargeCase:
    """The maps of a case larger than memory, whose lines are read on demand."""

    image: LazyArray
    target: LazyArray | None
    labels: LazyArray
    spec: ClassSpec

    def read(self, files: Mapping[str, Sequence[Path]]) -> DrawnCase:
        """Read all lines once for the overview, and those of the tiles again."""
        height, width = self.image.shape[:2]
        step = math.ceil(max(height, width) / LONGEST)
        edge = step * max(1, TILE // step)
        rows, wrong = [], {}
        for top in range(0, height, edge):
            band, row = self._lines(top, edge), []
            for left in range(0, width, edge):
                block, wrong[top, left] = self._reduce(_columns(band, left, edge), step)
                row.append(block)
            rows.append([_join(parts, axis) for parts, axis in zip(zip(*row, strict=True), _ACROSS, strict=True)])
        image, target, labels, errors = (
            _join(parts, axis) for parts, axis in zip(zip(*rows, strict=True), _DOWN, strict=True)
        )
        places = sorted(wrong, key=lambda place: (-wrong[place], place))[:MOST_TILES]
        tiles, worst = self._tiles(places, edge, display_ranges(image))
        parts = LargeParts(size=(height, width), errors=errors, wrong=sum(wrong.values()), tiles=tiles, worst=worst)
        return DrawnCase(image=image, target=target, labels=labels, files=files, large=parts)

    def _lines(self, top: int, count: int) -> Maps:
        stop = min(self.image.shape[0], top + count)
        target = None if self.target is None else self.target.read(top, stop)
        return self.image.read(top, stop), target, self.labels.read(top, stop)

    def _reduce(self, maps: Maps, step: int) -> tuple[list[NDArray[Any] | None], int]:
        """Reduce a block: the mean of its image, the most important values of its maps; also count its wrong pixels."""
        image, target, labels = maps
        shape = math.ceil(image.shape[0] / step), math.ceil(image.shape[1] / step)
        found = [mean_blocks(image, shape), None, reduce_labels(labels, shape, self.spec), None]
        if target is None:
            return found, 0
        kinds = classify_errors(target, labels, self.spec)
        found[1] = reduce_labels(target, shape, self.spec)
        found[3] = error_map(kinds, self.spec).reduce(shape, background=False).index
        return found, int(((kinds > 0) & (kinds < IGNORED)).sum())

    def _tiles(
        self, places: Sequence[tuple[int, int]], edge: int, ranges: NDArray[Any]
    ) -> tuple[list[Layers], tuple[Maps, tuple[int, int]]]:
        found: dict[tuple[int, int], Maps] = {}
        for top in sorted({top for top, _ in places}):
            band = self._lines(top, edge)
            found |= {place: _columns(band, place[1], edge) for place in places if place[0] == top}
        tiles = []
        for place in places:
            image, target, labels = found[place]
            tiles.append(draw_layers(display_image(image, ranges), target, labels, self.spec, notes={"at": place}))
        return tiles, (found[places[0]], places[0])


_ACROSS, _DOWN = (1, -1, -1, -1), (0, -2, -2, -2)  # axes of image, target, labels and errors


def _join(parts: Sequence[NDArray[Any] | None], axis: int) -> Any:
    return None if parts[0] is None else np.concatenate([part for part in parts if part is not None], axis)


def _columns(maps: Maps, left: int, count: int) -> Maps:
    image, target, labels = maps
    part = slice(left, left + count)
    return (
        np.array(image[:, part]),
        None if target is None else np.array(target[..., part]),
        np.array(labels[..., part]),
    )


def reduce_labels(labels: NDArray[Any], shape: tuple[int, int], spec: ClassSpec) -> NDArray[Any]:
    """Reduce a label map (H, W), or planes (K, H, W), by the most important value of each block.

    The background yields to ignored pixels, these to any class, and a frequent class to a rare one, so that a line of
    one pixel's width stays whole.

    Examples
    --------
    >>> spec = ClassSpec(task="binary", names=("wall", "crack"), colours=((0, 0, 0), (9, 9, 9)))
    >>> reduce_labels(np.eye(4, dtype=np.uint8), (2, 2), spec)
    array([[1, 0],
           [0, 1]], dtype=uint8)
    """
    background = 0 if labels.ndim == 3 or spec.has_background else None

    def importance(value: int) -> tuple[bool, ...]:
        return value != background, not spec.is_ignored(value)

    if labels.ndim == 3:
        return np.stack([reduce_by(importance, plane, shape) for plane in labels])
    return reduce_by(importance, labels, shape)
