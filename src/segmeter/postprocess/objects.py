"""Splits touching objects of a label map at their necks, measures objects, one row each, and traces their outlines.

Outlines follow the edges of pixels. They are exact: filling them gives the mask back.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from skimage.feature import peak_local_max
from skimage.measure import regionprops
from skimage.segmentation import watershed

from segmeter.checks import expected
from segmeter.classes import ClassSpec
from segmeter.errors import ConfigError
from segmeter.postprocess.config import CoresConfig, DistanceSplitConfig, WatershedConfig
from segmeter.postprocess.masks import LabelArray, Mask, class_indices, remove_small

InstanceArray = NDArray[np.int32]


def build_instance_step(
    config: WatershedConfig | DistanceSplitConfig | CoresConfig, *, spec: ClassSpec
) -> partial[InstanceArray]:
    """Build the step that a configuration names, from labels and, for `cores`, probabilities (1, H, W) to objects.

    Raises
    ------
    ConfigError
        A class does not exist, or the task is not binary as `cores` needs.
    """
    split: partial[InstanceArray]
    if isinstance(config, WatershedConfig):
        split = partial(split_mask, min_distance=config.min_distance)
    elif isinstance(config, DistanceSplitConfig):
        split = partial(split_at_depth, depth=config.depth)
    else:
        if spec.task != "binary":
            rule, remedy = "to be used with a binary task", "Use watershed or distance_split."
            raise ConfigError(expected("postprocess", config.name, rule, spec.task, remedy))
        split = partial(split_by_cores, above=config.above, min_pixels=config.min_pixels)
    classes = class_indices(config.classes, spec, where=f"postprocess.{config.name}")
    return partial(split_labels, classes=classes, multilabel=spec.is_multilabel, split=split)


def split_labels(
    labels: LabelArray,
    *probs: NDArray[Any],
    classes: tuple[int, ...],
    multilabel: bool,
    split: Callable[..., InstanceArray],
) -> InstanceArray:
    """Number the objects of all classes: int32 of the labels' shape, 0 for background, and 1 .. N in class order.

    Two classes never share an object. Objects of the given classes are split by `split`, which takes their mask and
    `probs`. Those of the others are connected parts, as without an instance step. The first class is background and
    left out, except for multilabel or if it is given.
    """
    instances = np.zeros(labels.shape, np.int32)
    present = range(len(labels)) if multilabel else np.flatnonzero(np.bincount(labels.ravel())).tolist()
    count = 0
    for index in present:
        if index == 0 and not multilabel and 0 not in classes:
            continue
        plane = instances[index] if multilabel else instances
        mask = labels[index].astype(bool) if multilabel else labels == index
        parts = split(mask, *probs) if index in classes else number_parts(mask)
        plane[mask] = parts[mask] + count
        count += int(parts.max())
    return instances


def number_parts(mask: Mask) -> InstanceArray:
    """Number the parts of a mask that touch, at a corner too, from 1; 0 is outside."""
    return np.asarray(ndimage.label(mask, np.ones((3, 3)))[0], np.int32)


def split_mask(mask: Mask, *, min_distance: int) -> InstanceArray:
    """Split a mask by watershed on the distance to its outside.

    Parameters
    ----------
    mask
        (H, W) bool.
    min_distance
        Between two centres, pixels.

    The image's edge does not count as outside: an object that it cuts is as deep there as if it continued.

    Returns
    -------
    (H, W) int32; every pixel of the mask belongs to one of 1 .. N, all others are 0.

    References
    ----------
    Beucher and Lantuejoul 1979, Use of watersheds in contour detection.
    """
    depth, markers = _depth(mask), np.zeros(mask.shape, np.int32)
    peaks = peak_local_max(  # type: ignore[no-untyped-call]
        depth, min_distance=min_distance, exclude_border=False, threshold_abs=0
    )
    rows, columns = peaks[np.lexsort(peaks.T[::-1])].T
    markers[rows, columns] = np.arange(1, rows.size + 1)
    return _flood(mask, depth, markers)


def split_at_depth(mask: Mask, *, depth: float) -> InstanceArray:
    """Split a mask into one part per core: a core is an 8-connected part of the pixels deeper than `depth`.

    The other pixels follow a watershed on the distance to the outside; a component without a core stays whole. As in
    `split_mask`, the image's edge does not count as outside.

    Parameters
    ----------
    mask
        (H, W) bool.
    depth
        Distance to the nearest pixel outside, pixels, > 0.

    Returns
    -------
    (H, W) int32, as from `split_mask`.
    """
    found = _depth(mask)
    return _flood(mask, found, number_parts(found > depth))


def split_by_cores(mask: Mask, probs: NDArray[Any], *, above: float, min_pixels: int) -> InstanceArray:
    """Split a mask into one part per core: a 4-connected part of the pixels whose probability is above a level.

    Parameters
    ----------
    mask : (H, W)
        The pixels of objects.
    probs : (1, H, W), float, or uint8 of which 255 is 1
        Probability of an object.
    above
        The level, 0 to 1.
    min_pixels
        The smallest core.

    Returns
    -------
    (H, W) int32, as from `split_mask`. A component without a core stays whole.
    """
    plane = probs[0] / np.float32(255) if probs.dtype == np.uint8 else probs[0].astype(np.float32, copy=False)
    cores = remove_small(mask & (plane > above), min_pixels=min_pixels, connectivity=4)
    return _flood(mask, plane, np.asarray(ndimage.label(cores)[0], np.int32))


def _depth(mask: Mask) -> NDArray[np.float64]:
    """Measure the distance to the outside of a mask; without an outside, all pixels are equally deep."""
    return np.zeros(mask.shape) if mask.all() else ndimage.distance_transform_edt(mask)


def _flood(mask: Mask, depth: NDArray[Any], markers: InstanceArray) -> InstanceArray:
    """Run a watershed from the markers, and from the deepest pixel of each component that has none."""
    components, count = ndimage.label(mask)
    bare = np.setdiff1d(np.arange(1, count + 1), components[markers > 0])
    if bare.size:
        deepest = ndimage.maximum_position(depth, components, bare)
        for number, position in enumerate(deepest, int(markers.max()) + 1):
            markers[position] = number
    return np.asarray(watershed(-depth, markers, mask=mask), np.int32)  # type: ignore[no-untyped-call]


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
    table = []
    for region in find_regions(labels, instances, spec):
        (found,) = regionprops(region.mask.astype(np.uint8))  # type: ignore[no-untyped-call]
        rows, columns = region.box
        centre = found.centroid
        degrees = float(np.degrees(found.orientation)) - 90  # scikit-image's are radians from the row axis
        values = (
            spec.names[region.label], region.number, int(found.area),
            rows.start, columns.start, rows.stop, columns.stop,
            float(centre[0] + rows.start), float(centre[1] + columns.start),
            float(found.axis_major_length), float(found.axis_minor_length),
            degrees + 180 if degrees <= -90 else degrees, float(found.perimeter), float(found.solidity),
        )  # fmt: skip
        table.append(dict(zip(COLUMNS, values, strict=True)))
    return table


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
    framed = np.pad(mask, 1).astype(np.int8)
    down, right = np.diff(framed, axis=0)[:, 1:-1], np.diff(framed, axis=1)[1:-1]  # 1 where the mask begins
    # the edges along which the walk goes right, down, left and up, and where they start from their own corner
    sides = ((down == 1, 0, 0), (right == -1, 0, 0), (down == -1, 1, 0), (right == 1, 0, 1))
    leaving: dict[Corner, list[int]] = {}  # directions from each corner of pixels: one, or two where pixels touch there
    for heading, (edge, beside, below) in enumerate(sides):
        rows, columns = np.nonzero(edge)
        for corner in zip((columns + beside).tolist(), (rows + below).tolist(), strict=True):
            leaving.setdefault(corner, []).append(heading)
    while leaving:
        start = place = next(iter(leaving))
        heading, path = leaving[start][0], list[tuple[Corner, int]]()
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
