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
from segmeter.report.pictures.layers import LONGEST, MOST_TILES, TILE, Layers, draw_layers
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
Block = tuple[NDArray[Any], NDArray[Any] | None, NDArray[Any], NDArray[Any] | None, int]


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


def read_large(
    image: LazyArray,
    target: LazyArray | None,
    labels: LazyArray,
    spec: ClassSpec,
    files: Mapping[str, Sequence[Path]],
) -> DrawnCase:
    """Read a case larger than memory: all lines once for the overview, and those of the tiles again."""
    height, width = image.shape[:2]
    step = math.ceil(max(height, width) / LONGEST)
    edge = step * max(1, TILE // step)

    def read_lines(top: int) -> Maps:
        stop = min(height, top + edge)
        return image.read(top, stop), None if target is None else target.read(top, stop), labels.read(top, stop)

    grid, wrong = list[list[Block]](), dict[tuple[int, int], int]()
    for top in range(0, height, edge):
        lines = read_lines(top)
        grid.append([_reduce(_columns(lines, left, edge), step, spec) for left in range(0, width, edge)])
        wrong |= {(top, place * edge): block[-1] for place, block in enumerate(grid[-1])}
    joined: list[Any] = [
        None if grid[0][0][k] is None else np.block([[block[k] for block in row] for row in grid]) for k in range(4)
    ]
    overview, reduced_target, reduced, errors = np.moveaxis(joined[0], 0, -1), *joined[1:]
    places = sorted(wrong, key=lambda place: (-wrong[place], place))[:MOST_TILES]
    found = dict[tuple[int, int], Maps]()
    for top in sorted({top for top, _ in places}):
        lines = read_lines(top)
        found |= {place: _columns(lines, place[1], edge) for place in places if place[0] == top}
    ranges, tiles = display_ranges(overview), []
    for place in places:
        real, its_target, its_labels = found[place]
        tiles.append(draw_layers(display_image(real, ranges), its_target, its_labels, spec, notes={"at": place}))
    worst = found[places[0]], places[0]
    parts = LargeParts(size=(height, width), errors=errors, wrong=sum(wrong.values()), tiles=tiles, worst=worst)
    return DrawnCase(image=overview, target=reduced_target, labels=reduced, files=files, large=parts)


def _columns(lines: Maps, left: int, count: int) -> Maps:
    image, target, labels = lines
    part = slice(left, left + count)
    return (
        np.array(image[:, part]),
        None if target is None else np.array(target[..., part]),
        np.array(labels[..., part]),
    )


def _reduce(maps: Maps, step: int, spec: ClassSpec) -> Block:
    """Reduce a block: the mean of its image, whose channels come first, the most important values of its target, labels
    and errors; also count its wrong pixels.
    """
    image, target, labels = maps
    shape = math.ceil(image.shape[0] / step), math.ceil(image.shape[1] / step)
    mean, reduced = np.moveaxis(mean_blocks(image, shape), -1, 0), reduce_labels(labels, shape, spec)
    if target is None:
        return mean, None, reduced, None, 0
    kinds = classify_errors(target, labels, spec)
    errors = error_map(kinds, spec).reduce(shape, background=False).index
    return mean, reduce_labels(target, shape, spec), reduced, errors, int(((kinds > 0) & (kinds < IGNORED)).sum())


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
