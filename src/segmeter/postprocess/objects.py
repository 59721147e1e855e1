"""Measures the objects of a cleaned label map, one row per object, and traces their outlines.

Outlines follow the edges of pixels. They are exact: filling them gives the mask back.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import ndimage
from skimage.measure import regionprops

from segmeter.classes import ClassSpec
from segmeter.postprocess.instances import InstanceArray, number_parts
from segmeter.postprocess.masks import LabelArray, Mask

COLUMNS = (
    "class", "object", "pixels", "row_min", "column_min", "row_max", "column_max", "row_centre", "column_centre",
    "axis_major", "axis_minor", "angle_deg", "perimeter", "solidity",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Region:
    """One object: the value of its class, its number, its box, and its mask in that box."""

    label: int
    number: int
    box: tuple[slice, slice]
    mask: Mask


def find_regions(labels: LabelArray, instances: InstanceArray | None, spec: ClassSpec) -> Iterator[Region]:
    """Go through the objects of a cleaned label map, class by class.

    Parameters
    ----------
    labels
        (H, W), or (K, H, W) in {0, 1} for multilabel.
    instances
        Same shape, 0 = none; None: the objects are the 8-connected parts of each class, numbered from 1 over all
        classes. The first class is background and left out, except for multilabel.
    """
    count = 0
    for label in range(0 if spec.is_multilabel else 1, spec.num_classes):
        mask = labels[label] != 0 if spec.is_multilabel else labels == label
        if instances is None:
            numbered = number_parts(mask)
            first, count = count, count + int(numbered.max())
        else:
            numbered, first = np.where(mask, instances[label] if spec.is_multilabel else instances, 0), 0
        for number, box in enumerate(ndimage.find_objects(numbered), 1):
            if box is not None:
                rows, columns = box
                inside = numbered[box] == number
                yield Region(label=label, number=first + number, box=(rows, columns), mask=inside)


def region_table(labels: LabelArray, instances: InstanceArray | None, spec: ClassSpec) -> list[dict[str, Any]]:
    """Measure each object.

    Parameters
    ----------
    labels, instances
        As for `find_regions`.

    Returns
    -------
    A row per object, with the keys `COLUMNS`. Lengths are in pixels; boxes leave their end out; the centre of pixel
    (0, 0) is at 0, 0; the axes are those of the ellipse with the object's second moments, and `angle_deg` (-90 to 90)
    turns from the column axis to the longer one, counter-clockwise; the perimeter is by scikit-image's weights of
    border pixels; solidity is the share of the convex hull that the object fills.
    """
    return [_row(region, spec) for region in find_regions(labels, instances, spec)]


def _row(region: Region, spec: ClassSpec) -> dict[str, Any]:
    (found,) = regionprops(region.mask.astype(np.uint8))  # type: ignore[no-untyped-call]
    rows, columns = region.box
    centre = found.centroid
    values = (
        spec.names[region.label], region.number, int(found.area),
        rows.start, columns.start, rows.stop, columns.stop,
        float(centre[0] + rows.start), float(centre[1] + columns.start),
        float(found.axis_major_length), float(found.axis_minor_length), _angle(float(found.orientation)),
        float(found.perimeter), float(found.solidity),
    )  # fmt: skip
    return dict(zip(COLUMNS, values, strict=True))


def _angle(from_rows: float) -> float:
    """Convert an angle to degrees from the column axis. scikit-image gives radians from the row axis, -pi/2 to pi/2."""
    degrees = float(np.degrees(from_rows)) - 90
    return degrees + 180 if degrees <= -90 else degrees


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
    """Compute the area of a closed ring by the shoelace formula, in pixels; negative for a hole."""
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
    """Find the directions in which edges leave each corner of pixels: one, or two where pixels touch there."""
    framed = np.pad(mask, 1).astype(np.int8)
    down, right = np.diff(framed, axis=0)[:, 1:-1], np.diff(framed, axis=1)[1:-1]  # 1 where the mask begins
    # the edges along which the walk goes right, down, left and up, and where they start from their own corner
    sides = ((down == 1, 0, 0), (right == -1, 0, 0), (down == -1, 1, 0), (right == 1, 0, 1))
    leaving: dict[Corner, list[int]] = {}
    for heading, (edge, beside, below) in enumerate(sides):
        rows, columns = np.nonzero(edge)
        for corner in zip((columns + beside).tolist(), (rows + below).tolist(), strict=True):
            leaving.setdefault(corner, []).append(heading)
    return leaving
