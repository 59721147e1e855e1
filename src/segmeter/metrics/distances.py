"""two label maps -> distances between the surfaces of each class, on pixel centres; the step behind `surface`.

Axis letters: N points of a surface, D axes of the map (2 or 3), K classes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from segmeter.metrics.overlap import FloatArray

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Distances:
    """From every surface point of one map to the nearest of the other; all inf where the other has none.

    Parameters
    ----------
    from_target, from_mask : (N,), float64, in the unit of the spacing
        N differs between the two.
    """

    from_target: FloatArray
    from_mask: FloatArray


@dataclass(frozen=True, kw_only=True)
class _Surface:
    """Points (N, D) in pixels, in the order of the map, and whether the other map has the same one (N,)."""

    points: IntArray
    shared: BoolArray


def find_surface(labels: NDArray[Any]) -> BoolArray:
    """Mark the pixels that a 4-neighbour (3-D: 6-neighbour) of another value touches, or the map's edge.

    For each value that is its mask and not the mask's erosion, with background outside.
    """
    surface = np.zeros(labels.shape, bool)
    for axis in range(labels.ndim):
        lines, marks = np.moveaxis(labels, axis, 0), np.moveaxis(surface, axis, 0)
        if len(lines):
            marks[0] = marks[-1] = True
        differs = lines[1:] != lines[:-1]
        marks[1:] |= differs
        marks[:-1] |= differs
    return surface


def distances_by_class(
    target: NDArray[Any], mask: NDArray[Any], classes: range, spacing: FloatArray
) -> Iterator[Distances]:
    """Yield the distances of each class, from one pass over the two maps (of one shape; other values are no class)."""
    edges = find_surface(target), find_surface(mask)
    shared = edges[0] & edges[1] & (target == mask)
    own = _split(target, edges[0], shared, classes)
    other = _split(mask, edges[1], shared, classes)
    for first, second in zip(own, other, strict=True):
        yield Distances(
            from_target=_nearest(first, second, spacing),
            from_mask=_nearest(second, first, spacing),
        )


def _split(labels: NDArray[Any], surface: BoolArray, shared: BoolArray, classes: range) -> list[_Surface]:
    index = np.flatnonzero(surface)
    values = labels.reshape(-1)[index]
    order = np.argsort(values, kind="stable")
    starts = np.searchsorted(values[order], np.arange(classes.start, classes.stop + 1))
    parts = [index[order[start:stop]] for start, stop in pairwise(starts)]
    flat = shared.reshape(-1)
    return [
        _Surface(points=np.stack(np.unravel_index(part, labels.shape), axis=1), shared=flat[part]) for part in parts
    ]


def _nearest(own: _Surface, other: _Surface, spacing: FloatArray) -> FloatArray:
    """Distances (N,) from each own point; they come from whole pixels, so that a shift of both changes no bit."""
    distances = np.zeros(len(own.points))
    if not len(other.points):
        distances[:] = np.inf
        return distances
    apart = own.points[~own.shared]
    if not len(apart):
        return distances
    tree = cKDTree(other.points * spacing, balanced_tree=False, compact_nodes=False)
    _, index = tree.query(apart * spacing)
    steps = (apart - other.points[index]) * spacing
    distances[~own.shared] = np.sqrt((steps**2).sum(axis=1))
    return distances
