"""Traces polygons along the pixel edges of a mask. They are exact: filling them gives the mask back."""

from collections.abc import Iterator, Sequence

import numpy as np
from scipy import ndimage

from segmeter.postprocess.masks import Mask

Corner = tuple[int, int]
Ring = list[Corner]
Polygon = list[Ring]

_STEPS = ((1, 0), (0, 1), (-1, 0), (0, -1))  # (x, y): right, down, left, up; clockwise, as y points down


def polygonise(mask: Mask, *, connectivity: int = 8) -> list[Polygon]:
    """Find the outlines of a mask's connected parts.

    Parameters
    ----------
    mask
        (H, W) bool.
    connectivity
        4 or 8: whether pixels that touch at a corner belong to one part.

    Returns
    -------
    One polygon per part, in reading order: its outer ring, then its holes. A ring is a list of corners (x, y) in
    pixels from the image's top left corner, x to the right and y down: pixel (row, column) covers x from column to
    column + 1 and y from row to row + 1. The last corner is the first one again. Outer rings run clockwise on the
    screen, so that their area by the shoelace formula is positive, and holes run the other way; all areas add up to the
    number of pixels. A ring may touch itself at a corner where pixels do.

    Examples
    --------
    >>> polygonise(np.array([[False, True, True]]))
    [[[(1, 0), (3, 0), (3, 1), (1, 1), (1, 0)]]]
    """
    structure = ndimage.generate_binary_structure(2, 1 if connectivity == 4 else 2)
    parts, _ = ndimage.label(mask, structure)
    found = []
    for number, (rows, columns) in enumerate(ndimage.find_objects(parts), 1):
        rings = _rings(parts[rows, columns] == number, apart=connectivity == 4)
        placed = [[(x + columns.start, y + rows.start) for x, y in ring] for ring in rings]
        found.append(sorted(placed, key=area, reverse=True))
    return found


def area(ring: Sequence[Corner]) -> int:
    """Area of a closed ring by the shoelace formula, in pixels; negative for a hole."""
    x, y = np.asarray(ring, np.int64).T
    return int(x[:-1] @ y[1:] - x[1:] @ y[:-1]) // 2


def _rings(mask: Mask, *, apart: bool) -> Iterator[Ring]:
    """Walk along the edges with the mask on the right; at a corner where pixels touch, keep to one if `apart`."""
    leaving = _edges(mask)
    while leaving:
        start = next(iter(leaving))
        heading = leaving[start][0]
        path: list[tuple[Corner, int]] = []
        place = start
        while True:
            path.append((place, heading))
            leaving[place].remove(heading)
            if not leaving[place]:
                del leaving[place]
            place = (place[0] + _STEPS[heading][0], place[1] + _STEPS[heading][1])
            ways = [*leaving.get(place, []), *([path[0][1]] if place == start else [])]
            turns = ((heading + by) % 4 for by in ((1, 0, 3) if apart else (3, 0, 1)))
            heading = next(turn for turn in turns if turn in ways)
            if (place, heading) == path[0]:
                break
        headings = [heading for _, heading in path]
        turned = [place for index, (place, heading) in enumerate(path) if heading != headings[index - 1]]
        yield [*turned, turned[0]]  # the corners at which the walk turns, closed


def _edges(mask: Mask) -> dict[Corner, list[int]]:
    """For each corner of pixels, the directions in which edges leave it: one, or two where pixels touch there."""
    framed = np.pad(mask, 1)
    inside = framed[1:-1, 1:-1]
    sides = (
        (inside & ~framed[:-2, 1:-1], 0, 0),  # above: from the top left corner to the right
        (inside & ~framed[1:-1, 2:], 0, 1),  # right: from the top right corner down
        (inside & ~framed[2:, 1:-1], 1, 1),  # below: from the bottom right corner to the left
        (inside & ~framed[1:-1, :-2], 1, 0),  # left: from the bottom left corner up
    )
    leaving: dict[Corner, list[int]] = {}
    for heading, (edge, down, right) in enumerate(sides):
        rows, columns = np.nonzero(edge)
        for corner in zip((columns + right).tolist(), (rows + down).tolist(), strict=True):
            leaving.setdefault(corner, []).append(heading)
    return leaving
