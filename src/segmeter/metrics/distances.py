"""Measures distances between the surfaces of each class of two label maps, and the sizes of the surfaces' elements.

The elements are those of marching squares (cubes): of each neighbourhood of 2 x 2 (2 x 2 x 2) pixels. A neighbourhood's
code has one bit per pixel, set where the pixel is foreground; bit i is the i-th pixel in the order of the array.
Coordinates are those of a unit cell whose corners are the pixels' centres: a surface runs through the middle of each
edge between foreground and background.

Axis letters: N points of a surface, D axes of the map (2 or 3), K classes, M neighbourhoods.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from skimage.measure import find_contours, marching_cubes

from segmeter.metrics.arrays import BoolArray, FloatArray, IntArray

SurfaceKind = Literal["border_pixels", "marching_cubes"]

_ROUNDING = 1 + 1e-12  # 3 pixels of 0.1 are 0.30000000000000004, which is within 0.3.


@dataclass(frozen=True)
class Distances:
    """Distances from every surface point of one map to the nearest of the other; all inf if the other has none.

    Parameters
    ----------
    distances : (N,), float64, in the unit of the spacing
        The distance of each point.
    sizes : (N,), float64
        Lengths or areas of the elements, or ones.
    weighted
        Whether a percentile is a share of the surface's length or area. If not, it is interpolated between points.
    """

    distances: FloatArray
    sizes: FloatArray
    weighted: bool

    def joined(self, other: "Distances") -> "Distances":
        distances = np.concatenate([self.distances, other.distances])
        return Distances(distances, np.concatenate([self.sizes, other.sizes]), self.weighted)

    def mean(self) -> float:
        return float((self.distances * self.sizes).sum() / self.sizes.sum())

    def near(self, tolerances: tuple[float, ...]) -> FloatArray:
        """Return how many points, or how much of the surface, lie within each tolerance: (T,)."""
        within = self.distances <= np.asarray(tolerances, np.float64)[:, None] * _ROUNDING
        return np.array([self.sizes[row].sum() for row in within], np.float64)

    def percentile(self, percent: float) -> float:
        if not self.weighted:
            return float(np.percentile(self.distances, percent))
        order = np.lexsort((self.sizes, self.distances))
        shares = np.cumsum(self.sizes[order]) / self.sizes.sum()
        reached = int(np.searchsorted(shares, percent / 100 / _ROUNDING))  # a share may be too small by rounding
        return float(self.distances[order][min(reached, len(order) - 1)])


@dataclass(frozen=True, kw_only=True)
class _Surface:
    """The points (N, D) in pixels, in the map's order, whether the other map has each of them (N,), and sizes (N,)."""

    points: IntArray
    shared: BoolArray
    sizes: FloatArray


def find_surface(labels: NDArray[Any]) -> BoolArray:
    """Mark the pixels with a 4-neighbour (3-D: 6-neighbour) of another value, or at the map's edge.

    The marked pixels of a value are its mask without the eroded mask. Everything outside the map is background.
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
    target: NDArray[Any],
    mask: NDArray[Any],
    classes: range,
    spacing: FloatArray,
    *,
    surface: SurfaceKind = "border_pixels",
) -> Iterator[tuple[Distances, Distances]]:
    """Yield the distances of each class, from the target and from the mask, in one pass over maps of one shape.

    Values other than the classes are left out.
    """
    weighted = surface == "marching_cubes"
    pairs = _element_pairs(target, mask, classes, spacing) if weighted else _pixel_pairs(target, mask, classes)
    for first, second in pairs:
        forth, back = _nearest(first, second, spacing), _nearest(second, first, spacing)
        yield Distances(forth, first.sizes, weighted), Distances(back, second.sizes, weighted)


def _pixel_pairs(target: NDArray[Any], mask: NDArray[Any], classes: range) -> Iterator[tuple[_Surface, ...]]:
    """Find both surfaces of each class as border pixels: pixels of the class with a neighbour outside it."""
    edges = find_surface(target), find_surface(mask)
    shared = edges[0] & edges[1] & (target == mask)
    bounds = np.arange(classes.start, classes.stop + 1)
    sides = []
    for labels, surface in ((target, edges[0]), (mask, edges[1])):
        pixels = np.flatnonzero(surface)
        values = labels.reshape(-1)[pixels]
        order = np.argsort(values, kind="stable")
        starts = np.searchsorted(values[order], bounds)
        sides.append([pixels[order[start:stop]] for start, stop in itertools.pairwise(starts)])
    for pair in zip(*sides, strict=True):
        yield tuple(
            _Surface(
                points=np.stack(np.unravel_index(pixels, target.shape), axis=1),
                shared=shared.reshape(-1)[pixels],
                sizes=np.ones(len(pixels)),
            )
            for pixels in pair
        )


def _element_pairs(
    target: NDArray[Any], mask: NDArray[Any], classes: range, spacing: FloatArray
) -> Iterator[tuple[_Surface, ...]]:
    """Find both surfaces of each class by marching cubes: centres of neighbourhoods that lie partly in the class."""
    sizes_by_code, shape = element_sizes(spacing.tolist()), tuple(length + 1 for length in target.shape)
    mixed_by_side = []  # the neighbourhoods whose pixels differ (M,), and their pixels' values
    for labels in (target, mask):
        padded = np.pad(labels, 1, constant_values=0 if classes.start else classes.stop)
        corners = [padded[end] for end in itertools.product((slice(None, -1), slice(1, None)), repeat=labels.ndim)]
        mixed = corners[1] != corners[0]
        for corner in corners[2:]:  # one at a time: a volume is large
            mixed |= corner != corners[0]
        mixed_by_side.append((np.flatnonzero(mixed), np.stack([corner[mixed] for corner in corners], axis=1)))
    for k in classes:
        sides = []
        for places, values in mixed_by_side:
            codes = np.packbits(values == k, axis=1, bitorder="little")[:, 0]
            partly = (codes > 0) & (codes < len(sizes_by_code) - 1)
            sides.append((places[partly], sizes_by_code[codes[partly]]))
        yield tuple(
            _Surface(
                points=np.stack(np.unravel_index(places, shape), axis=1),
                shared=np.isin(places, other_places, assume_unique=True),
                sizes=sizes,
            )
            for (places, sizes), (other_places, _) in zip(sides, sides[::-1], strict=True)
        )


def _nearest(own: _Surface, other: _Surface, spacing: FloatArray) -> FloatArray:
    """Compute the distance (N,) from each own point to the nearest other point.

    The steps are differences of whole pixels, so a shift of both maps doesn't change a single bit.
    """
    distances = np.zeros(len(own.points))
    if not len(other.points):
        distances[:] = np.inf
        return distances
    points = own.points[~own.shared]
    if not len(points):
        return distances
    from scipy.spatial import cKDTree  # takes a moment to load, and only surfaces need it

    tree = cKDTree(other.points * spacing, balanced_tree=False, compact_nodes=False)
    _, nearest = tree.query(points * spacing)
    steps = (points - other.points[nearest]) * spacing
    distances[~own.shared] = np.sqrt((steps**2).sum(axis=1))
    return distances


def element_sizes(spacing: Sequence[float]) -> FloatArray:
    """Measure the element of every code: 16 lengths for two axes, 256 areas for three; 0 if there is none."""
    edges = np.asarray(spacing, np.float64)
    codes, points = _elements(len(edges))
    sides = (points[:, 1:] - points[:, :1]) * edges
    if len(edges) == 2:
        sizes = np.linalg.norm(sides[:, 0], axis=1)
    else:
        sizes = np.linalg.norm(np.cross(sides[:, 0], sides[:, 1]), axis=1) / 2
    measured = np.zeros(2**2 ** len(edges))
    np.add.at(measured, codes, sizes)
    return measured


@cache
def _elements(axes: int) -> tuple[IntArray, FloatArray]:
    """List the segments (M, 2, 2) or triangles (M, 3, 3) of all codes, after the code of each (M,), by the classic
    table.

    They go around the rarer of foreground and background, so that its opposite corners are cut off from each other.
    """
    corners = 2**axes
    codes: list[int] = []
    elements: list[FloatArray] = []
    for code in range(1, 2**corners - 1):
        foreground = np.array([code >> bit & 1 for bit in range(corners)], np.float64).reshape((2,) * axes)
        rarer = 1 - foreground if 2 * foreground.sum() > corners else foreground
        if axes == 2:
            found = find_contours(rarer, 0.5)  # type: ignore[no-untyped-call]
        else:
            points, triangles, *_ = marching_cubes(rarer, 0.5, method="lorensen")  # type: ignore[no-untyped-call]
            found = points.astype(np.float64)[triangles]
        codes += [code] * len(found)
        elements += [*found]
    return np.array(codes), np.array(elements)
