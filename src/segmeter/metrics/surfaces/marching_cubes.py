"""neighbourhoods of 2 x 2 (2 x 2 x 2) pixels -> lengths (areas) of the surface elements of marching squares (cubes).

A neighbourhood's code has one bit per pixel, set where the pixel is foreground; bit i is the i-th pixel in the order of
the array. Coordinates are those of a unit cell whose corners are the pixels' centres: a surface runs through the middle
of each edge between foreground and background.
"""

import itertools
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from segmeter.metrics.arrays import FloatArray

Point = tuple[float, ...]
Segment = tuple[Point, Point]
Triangle = tuple[Point, Point, Point]

_ROUND_A_FACE = ((0, 0), (0, 1), (1, 1), (1, 0))


def element_sizes(spacing: Sequence[float]) -> FloatArray:
    """Measure the element of every code: 16 lengths for two axes, 256 areas for three; 0 where there is none."""
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
def _elements(axes: int) -> tuple[NDArray[np.int64], FloatArray]:
    """Every code's segments (M, 2, 2) or triangles (M, 3, 3), and whose they are (M,)."""
    corners: list[Point] = list(itertools.product((0, 1), repeat=axes))
    codes: list[int] = []
    pieces: list[Sequence[Point]] = []
    for code in range(2 ** len(corners)):
        held = {corner for bit, corner in enumerate(corners) if code >> bit & 1}
        minority = held if 2 * len(held) <= len(corners) else set(corners) - held
        found = list(_cut_square(_ROUND_A_FACE, minority)) if axes == 2 else _cut_cube(minority)
        codes += [code] * len(found)
        pieces += found
    return np.array(codes), np.array(pieces)


def _cut_square(corners: Sequence[Point], held: set[Point]) -> Iterator[Segment]:
    """Segments that part the held corners (given in a round) from the others; opposite ones from each other too."""
    inside = [corner in held for corner in corners]
    middles = [_middle(corners[i], corners[i - 3]) for i in range(4)]  # of the edge from corner i to the next
    crossed = [i for i in range(4) if inside[i] != inside[i - 3]]
    if len(crossed) == 2:
        yield middles[crossed[0]], middles[crossed[1]]
    elif crossed:
        yield from ((middles[i - 1], middles[i]) for i in range(4) if inside[i])


def _cut_cube(held: set[Point]) -> list[Triangle]:
    """Triangles that part the held corners, which are no more than the others, from those.

    The cuts of the six faces join to closed polygons. One that is not flat can be triangulated in several ways; the
    one with the largest area is taken (for a unit cell), as the classic table does.
    """
    segments: list[Segment] = []
    for axis, side in itertools.product(range(3), (0, 1)):
        face = [(*place[:axis], side, *place[axis:]) for place in _ROUND_A_FACE]
        segments += _cut_square(face, held)
    return [triangle for polygon in _join(segments) for triangle in max(_fill(polygon), key=_area)]


def _join(segments: list[Segment]) -> Iterator[list[Point]]:
    """Closed polygons from segments of which every point ends two."""
    left = list(segments)
    while left:
        polygon = list(left.pop())
        while polygon[0] != polygon[-1]:
            after = next(segment for segment in left if polygon[-1] in segment)
            left.remove(after)
            polygon.append(after[after[0] == polygon[-1]])
        yield polygon[:-1]


def _fill(polygon: list[Point]) -> Iterator[list[Triangle]]:
    """Every triangulation of a polygon by its own corners."""
    if len(polygon) < 3:
        yield []
        return
    for i in range(1, len(polygon) - 1):
        for before, after in itertools.product(_fill(polygon[: i + 1]), _fill(polygon[i:])):
            yield [(polygon[0], polygon[i], polygon[-1]), *before, *after]


def _area(triangles: list[Triangle]) -> float:
    points = np.array(triangles)
    sides = points[:, 1:] - points[:, :1]
    return float(np.linalg.norm(np.cross(sides[:, 0], sides[:, 1]), axis=1).sum())


def _middle(first: Point, second: Point) -> Point:
    return tuple((one + other) / 2 for one, other in zip(first, second, strict=True))
