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
    """Build the step that a configuration names. It turns labels into objects; `cores` also takes probabilities
    (1, H, W).

    Raises
    ------
    ConfigError
        A class does not exist, or the step is `cores` and the task is not binary.
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
    """Number the objects of all classes, class by class: int32 in the shape of the labels, 0 is background.

    Two classes never share an object. Objects of the given classes are split by `split`, which takes their mask and
    `probs`. Objects of the others are connected parts, as without an instance step. The first class is background and
    left out, except for multilabel or if it is one of `classes`.
    """
    instances = np.zeros(labels.shape, np.int32)
    indices = range(len(labels)) if multilabel else np.flatnonzero(np.bincount(labels.ravel())).tolist()
    count = 0
    for index in indices:
        if index == 0 and not multilabel and 0 not in classes:
            continue
        plane = instances[index] if multilabel else instances
        mask = labels[index].astype(bool) if multilabel else labels == index
        parts = split(mask, *probs) if index in classes else number_parts(mask)
        plane[mask] = parts[mask] + count
        count += int(parts.max())
    return instances


def number_parts(mask: Mask) -> InstanceArray:
    """Number the 8-connected parts of a mask from 1; 0 is outside."""
    return np.asarray(ndimage.label(mask, np.ones((3, 3)))[0], np.int32)


def split_mask(mask: Mask, *, min_distance: int) -> InstanceArray:
    """Split a mask by watershed on the distance to its outside.

    Parameters
    ----------
    mask
        (H, W) bool.
    min_distance
        The least distance between two centres, in pixels.

    The image's edge does not count as outside: an object that it cuts is as deep there as if it continued.

    Returns
    -------
    (H, W) int32. Pixels of the mask have the number of their part, 1 .. N; all others are 0.

    References
    ----------
    Beucher and Lantuejoul 1979, Use of watersheds in contour detection.
    """
    depth = _depth(mask)
    peaks = peak_local_max(  # type: ignore[no-untyped-call]
        depth, min_distance=min_distance, exclude_border=False, threshold_abs=0
    )
    rows, columns = peaks[np.lexsort(peaks.T[::-1])].T
    markers = np.zeros(mask.shape, np.int32)
    markers[rows, columns] = np.arange(1, rows.size + 1)
    return _flood(mask, depth, markers)


def split_at_depth(mask: Mask, *, depth: float) -> InstanceArray:
    """Split a mask into one part per core: a core is an 8-connected part of the pixels deeper than `depth`.

    A watershed on the distance to the outside gives the other pixels to cores. A component without a core stays whole.
    As in `split_mask`, the image's edge does not count as outside.

    Parameters
    ----------
    mask
        (H, W) bool.
    depth
        Distance to the nearest pixel outside, in pixels, > 0.

    Returns
    -------
    (H, W) int32, as from `split_mask`.
    """
    depths = _depth(mask)
    return _flood(mask, depths, number_parts(depths > depth))


def split_by_cores(mask: Mask, probs: NDArray[Any], *, above: float, min_pixels: int) -> InstanceArray:
    """Split a mask into one part per core: a core is a 4-connected part of the pixels of high probability.

    Parameters
    ----------
    mask : (H, W)
        The pixels of objects.
    probs : (1, H, W), float, or uint8 with 255 for 1
        The probability of an object.
    above
        The probability above which a pixel belongs to a core, 0 to 1.
    min_pixels
        The size of the smallest core.

    Returns
    -------
    (H, W) int32, as from `split_mask`. A component without a core stays whole.
    """
    plane = probs[0] / np.float32(255) if probs.dtype == np.uint8 else probs[0].astype(np.float32, copy=False)
    cores = remove_small(mask & (plane > above), min_pixels=min_pixels, connectivity=4)
    return _flood(mask, plane, np.asarray(ndimage.label(cores)[0], np.int32))


def _depth(mask: Mask) -> NDArray[np.float64]:
    """Return each pixel's distance to the outside of a mask; without an outside, all pixels have 0."""
    return np.zeros(mask.shape) if mask.all() else ndimage.distance_transform_edt(mask)


def _flood(mask: Mask, depth: NDArray[Any], markers: InstanceArray) -> InstanceArray:
    """Run a watershed from the markers, and from the deepest pixel of each component that has none."""
    components, count = ndimage.label(mask)
    without_marker = np.setdiff1d(np.arange(1, count + 1), components[markers > 0])
    if without_marker.size:
        deepest = ndimage.maximum_position(depth, components, without_marker)
        for number, position in enumerate(deepest, int(markers.max()) + 1):
            markers[position] = number
    return np.asarray(watershed(-depth, markers, mask=mask), np.int32)  # type: ignore[no-untyped-call]


COLUMNS = (
    "class", "object", "pixels", "row_min", "column_min", "row_max", "column_max", "row_centre", "column_centre",
    "axis_major", "axis_minor", "angle_deg", "perimeter", "solidity",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Region:
    """One object: the label of its class, its number, its box, and its mask in that box."""

    label: int
    number: int
    box: tuple[slice, slice]
    mask: Mask


def find_regions(labels: LabelArray, instances: InstanceArray | None, spec: ClassSpec) -> Iterator[Region]:
    """Yield the objects of a cleaned label map, class by class.

    Parameters
    ----------
    labels
        (H, W), or (K, H, W) in {0, 1} for multilabel.
    instances
        Object numbers in the same shape, 0 is background. With None, the objects are the 8-connected parts of each
        class, numbered from 1 over all classes. The first class is background and left out, except for multilabel.
    """
    count = 0
    for label in range(0 if spec.is_multilabel else 1, spec.num_classes):
        mask = labels[label] != 0 if spec.is_multilabel else labels == label
        offset = count
        if instances is None:
            numbered = number_parts(mask)
            count += int(numbered.max())
        else:
            numbered = np.where(mask, instances[label] if spec.is_multilabel else instances, 0)
        for number, box in enumerate(ndimage.find_objects(numbered), 1):
            if box is not None:
                rows, columns = box
                inside = numbered[box] == number
                yield Region(label=label, number=offset + number, box=(rows, columns), mask=inside)


def region_table(labels: LabelArray, instances: InstanceArray | None, spec: ClassSpec) -> list[dict[str, Any]]:
    """Measure each object.

    Parameters
    ----------
    labels, instances
        As for `find_regions`.

    Returns
    -------
    A row per object, with the keys `COLUMNS`. Lengths are in pixels. Boxes exclude their end, and the centre of pixel
    (0, 0) is at 0, 0. The axes are those of the ellipse with the object's second moments. `angle_deg` (-90 to 90) is
    the counter-clockwise angle from the column axis to the longer one. The perimeter uses scikit-image's weights of
    border pixels. Solidity is the share of the convex hull that the object fills.
    """
    table = []
    for region in find_regions(labels, instances, spec):
        (measured,) = regionprops(region.mask.astype(np.uint8))  # type: ignore[no-untyped-call]
        rows, columns = region.box
        centre = measured.centroid
        degrees = float(np.degrees(measured.orientation)) - 90  # scikit-image has radians from the row axis
        values = (
            spec.names[region.label], region.number, int(measured.area),
            rows.start, columns.start, rows.stop, columns.stop,
            float(centre[0] + rows.start), float(centre[1] + columns.start),
            float(measured.axis_major_length), float(measured.axis_minor_length),
            degrees + 180 if degrees <= -90 else degrees, float(measured.perimeter), float(measured.solidity),
        )  # fmt: skip
        table.append(dict(zip(COLUMNS, values, strict=True)))
    return table


Corner = tuple[int, int]
Ring = list[Corner]
Polygon = list[Ring]

_STEPS = ((1, 0), (0, 1), (-1, 0), (0, -1))  # steps (x, y) to the right, down, left and up


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
    polygons = []
    for number, (rows, columns) in enumerate(ndimage.find_objects(parts), 1):
        rings = _rings(parts[rows, columns] == number, apart=connectivity == 4)
        shifted = [[(x + columns.start, y + rows.start) for x, y in ring] for ring in rings]
        polygons.append(sorted(shifted, key=area, reverse=True))
    return polygons


def area(ring: Sequence[Corner]) -> int:
    """Compute the area of a closed ring by the shoelace formula, in pixels; negative for a hole."""
    x, y = np.asarray(ring, np.int64).T
    return int(x[:-1] @ y[1:] - x[1:] @ y[:-1]) // 2


def _rings(mask: Mask, *, apart: bool) -> Iterator[Ring]:
    """Walk along the edges with the mask on the right. Where two pixels touch at a corner, stay at one if `apart`."""
    framed = np.pad(mask, 1).astype(np.int8)
    down, right = np.diff(framed, axis=0)[:, 1:-1], np.diff(framed, axis=1)[1:-1]  # 1 where the mask begins
    # the edges along which the walk goes right, down, left and up, and where they start from their own corner
    sides = ((down == 1, 0, 0), (right == -1, 0, 0), (down == -1, 1, 0), (right == 1, 0, 1))
    leaving: dict[Corner, list[int]] = {}  # directions from each corner: one, or two where pixels touch at the corner
    for heading, (edge, beside, below) in enumerate(sides):
        rows, columns = np.nonzero(edge)
        for corner in zip((columns + beside).tolist(), (rows + below).tolist(), strict=True):
            leaving.setdefault(corner, []).append(heading)
    while leaving:
        start = corner = next(iter(leaving))
        heading = leaving[start][0]
        path = list[tuple[Corner, int]]()
        while True:
            path.append((corner, heading))
            leaving[corner].remove(heading)
            if not leaving[corner]:
                del leaving[corner]
            corner = (corner[0] + _STEPS[heading][0], corner[1] + _STEPS[heading][1])
            ways = [*leaving.get(corner, []), *([path[0][1]] if corner == start else [])]
            turns = ((heading + by) % 4 for by in ((1, 0, 3) if apart else (3, 0, 1)))
            heading = next(turn for turn in turns if turn in ways)
            if (corner, heading) == path[0]:
                break
        headings = [heading for _, heading in path]
        turned = [corner for index, (corner, heading) in enumerate(path) if heading != headings[index - 1]]
        yield [*turned, turned[0]]  # the corners at which the walk turns, closed
