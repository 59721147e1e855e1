"""Splits objects of a label map that touch each other, at their necks."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from skimage.feature import peak_local_max
from skimage.segmentation import watershed

from segmeter.checks import expected
from segmeter.classes import ClassSpec
from segmeter.errors import ConfigError, InputError
from segmeter.postprocess.config import CoresConfig, DistanceSplitConfig, WatershedConfig
from segmeter.postprocess.masks import LabelArray, Mask, class_indices, remove_small

InstanceArray = NDArray[np.int32]


Splitter = Callable[[Mask], InstanceArray]


def build_instance_step(
    config: WatershedConfig | DistanceSplitConfig | CoresConfig, *, spec: ClassSpec
) -> Callable[..., InstanceArray]:
    """Build the step that a configuration names, from labels and, for `cores`, probabilities (1, H, W) to objects.

    Raises
    ------
    ConfigError
        A class does not exist, or the task is not binary as `cores` needs.
    """
    if isinstance(config, CoresConfig) and spec.task != "binary":
        rule, remedy = "to be used with a binary task", "Use watershed or distance_split."
        raise ConfigError(expected("postprocess", config.name, rule, spec.task, remedy))
    classes = class_indices(config.classes, spec, where=f"postprocess.{config.name}")
    return partial(_run, config=config, classes=classes, multilabel=spec.is_multilabel)


def _run(
    labels: LabelArray, probs: NDArray[Any] | None = None, *, config: Any, classes: tuple[int, ...], multilabel: bool
) -> InstanceArray:
    return split_labels(labels, classes=classes, multilabel=multilabel, split=_splitter(config, probs))


def _splitter(config: Any, probs: NDArray[Any] | None) -> Splitter:
    if isinstance(config, WatershedConfig):
        return partial(split_mask, min_distance=config.min_distance)
    if isinstance(config, DistanceSplitConfig):
        return partial(split_at_depth, depth=config.depth)
    if probs is None:
        raise InputError(expected("run_steps", "probs", "to be given for the step cores", None))
    plane = probs[0] / np.float32(255) if probs.dtype == np.uint8 else probs[0].astype(np.float32, copy=False)
    return partial(split_by_cores, probs=plane, above=config.above, min_pixels=config.min_pixels)


def split_labels(labels: LabelArray, *, classes: tuple[int, ...], multilabel: bool, split: Splitter) -> InstanceArray:
    """Number the objects of all classes: int32 of the labels' shape, 0 for background, and 1 .. N in class order.

    Two classes never share an object. Objects of the given classes are split by `split`. Those of the others are
    connected parts, as without an instance step. The first class is background and left out,
    except for multilabel or if it is given.
    """
    instances = np.zeros(labels.shape, np.int32)
    present = range(len(labels)) if multilabel else np.flatnonzero(np.bincount(labels.ravel())).tolist()
    count = 0
    for index in present:
        if index == 0 and not multilabel and 0 not in classes:
            continue
        plane = instances[index] if multilabel else instances
        mask = labels[index].astype(bool) if multilabel else labels == index
        parts = split(mask) if index in classes else number_parts(mask)
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
    return _flood(mask, lambda depth: _peaks(mask, depth, min_distance=min_distance))


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
    return _flood(mask, lambda found: number_parts(found > depth))


def split_by_cores(mask: Mask, *, probs: NDArray[np.float32], above: float, min_pixels: int) -> InstanceArray:
    """Split a mask into one part per core: a 4-connected part of the pixels whose probability is above a level.

    Parameters
    ----------
    mask : (H, W)
        The pixels of objects.
    probs : (H, W)
        Probability of an object.
    above
        The level, 0 to 1.
    min_pixels
        The smallest core.

    Returns
    -------
    (H, W) int32, as from `split_mask`. A component without a core stays whole.
    """
    cores = remove_small(mask & (probs > above), min_pixels=min_pixels, connectivity=4)
    markers = _completed(mask, probs, np.asarray(ndimage.label(cores)[0], np.int32))
    return np.asarray(watershed(-probs, markers, mask=mask), np.int32)  # type: ignore[no-untyped-call]


def _flood(mask: Mask, markers_of: Callable[[NDArray[np.float64]], InstanceArray]) -> InstanceArray:
    if mask.all() or not mask.any():  # without an outside there is no distance to it: one object, or none
        return mask.astype(np.int32)
    depth = ndimage.distance_transform_edt(mask)
    markers = _completed(mask, depth, markers_of(depth))
    return np.asarray(watershed(-depth, markers, mask=mask), np.int32)  # type: ignore[no-untyped-call]


def _peaks(mask: Mask, depth: NDArray[np.float64], *, min_distance: int) -> InstanceArray:
    """Number the centres."""
    markers = np.zeros(mask.shape, np.int32)
    peaks = peak_local_max(  # type: ignore[no-untyped-call]
        depth, min_distance=min_distance, exclude_border=False, threshold_abs=0
    )
    rows, columns = peaks[np.lexsort(peaks.T[::-1])].T
    markers[rows, columns] = np.arange(1, rows.size + 1)
    return markers


def _completed(mask: Mask, depth: NDArray[Any], markers: InstanceArray) -> InstanceArray:
    """Add a marker at the deepest pixel of each component that has none."""
    components, count = ndimage.label(mask)
    bare = np.setdiff1d(np.arange(1, count + 1), components[markers > 0])
    if bare.size:
        deepest = ndimage.maximum_position(depth, components, bare)
        for number, position in enumerate(deepest, int(markers.max()) + 1):
            markers[position] = number
    return markers
