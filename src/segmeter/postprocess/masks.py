"""Post-processing steps: operations on the mask of one class, and how they apply to label maps.

Rules, the same for every step:

* A step works through its classes in the given order. Each class starts from the result of the earlier ones.
* Pixels that a class gains are taken from whatever class had them.
* Pixels that a class loses get the class `fill`. If that is None, they get the class of the nearest pixel of another
  class, counted in steps up, down, left and right. Of equally near pixels, it is always the same one. An image that the
  class covers wholly stays as it is, because there is no other class to take its place.
* Multilabel planes (K, H, W) are independent: no plane gains what another one loses, and `fill` does not apply.
* On volumes (D, H, W), the steps of `PLANEWISE` run on each plane (H, W). The others run in 3-D: for connectivity 4 or
  8, voxels have 6 or 26 neighbours, and the first and the last plane are edges too.
* Predictions hold only classes, and never the ignored value.
"""

from collections.abc import Callable, Iterator
from functools import partial
from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from skimage.morphology import skeletonize

from segmeter.checks import expected, nearest
from segmeter.classes import ClassSpec
from segmeter.errors import ConfigError
from segmeter.postprocess.config import ClassNames, RemovingStepConfig, StepConfig

Mask = NDArray[np.bool_]
MaskStep = Callable[[Mask], Mask]
LabelArray = NDArray[np.uint8] | NDArray[np.uint16]


def remove_small(mask: Mask, *, min_pixels: int, connectivity: int) -> Mask:
    """Keep the components of at least `min_pixels` pixels."""
    components, sizes = _components(mask, connectivity)
    return np.asarray((sizes >= min_pixels)[components] & mask)


def keep_largest(mask: Mask, *, connectivity: int) -> Mask:
    """Keep the component with the most pixels; of equal ones, the first in reading order."""
    components, sizes = _components(mask, connectivity)
    sizes[0] = 0
    return np.asarray(components == sizes.argmax()) & mask


def clear_border(mask: Mask, *, margin: int, connectivity: int) -> Mask:
    """Keep the components with no pixel in the outermost `margin` + 1 rows, columns, and planes of a volume."""
    components, sizes = _components(mask, connectivity)
    edge = np.ones_like(mask)
    edge[tuple(slice(margin + 1, size - margin - 1) for size in mask.shape)] = False
    is_inside = np.ones(sizes.size, bool)
    is_inside[components[edge]] = False
    return np.asarray(is_inside[components] & mask)


def fill_holes(mask: Mask, *, max_pixels: int | None, connectivity: int) -> Mask:
    """Add the holes: components outside the mask that do not touch the image's edge, of at most `max_pixels` pixels."""
    holes = clear_border(~mask, margin=0, connectivity=connectivity)
    if max_pixels is None:
        return mask | holes
    return mask | (holes & ~remove_small(holes, min_pixels=max_pixels + 1, connectivity=connectivity))


def opening(mask: Mask, *, radius: int) -> Mask:
    """Keep the pixels covered by a disk that fits into the mask; pixels beyond the image do not count against it.

    Equal to ``skimage.morphology.opening(mask, disk(radius), mode="ignore")``, several times faster.
    """
    return dilate(erode(mask, radius=radius), radius=radius)


def closing(mask: Mask, *, radius: int) -> Mask:
    """Add the pixels that no disk outside the mask covers; pixels beyond the image do not count.

    Equal to ``skimage.morphology.closing(mask, disk(radius), mode="ignore")``, several times faster.
    """
    return erode(dilate(mask, radius=radius), radius=radius)


def smooth(mask: Mask, *, radius: int) -> Mask:
    """Put a pixel into the mask if more than half of the disk around it is in the mask, and take it out if less is.

    The part of the disk beyond the image does not count.
    """
    balance = _disk_sums(mask, radius) * 2 - _disk_sums(np.ones_like(mask), radius)
    return np.asarray((balance > 0) | (mask & (balance == 0)))


def _disk_sums(mask: Mask, radius: int) -> NDArray[np.int32]:
    """Count the pixels of the mask in the disk around each pixel."""
    sums = np.zeros(mask.shape, np.int32)
    for first, last in _row_counts(mask, radius):
        sums += last - first
    return sums


def _row_counts(mask: Mask, radius: int) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int32]]]:
    """Yield running counts of the mask's pixels at both ends of each row of the disk around every pixel.

    Because of these, the cost per pixel grows with the radius, not with its square. Pixels beyond the image are not in
    the mask.
    """
    height, width = mask.shape
    running = np.pad(np.cumsum(np.pad(mask, radius), axis=1, dtype=np.int32), ((0, 0), (1, 0)))
    for row in range(-radius, radius + 1):
        half = isqrt(radius * radius - row * row)
        counts = running[radius + row : radius + row + height]
        yield counts[:, radius - half :][:, :width], counts[:, radius + half + 1 :][:, :width]


def erode(mask: Mask, *, radius: int) -> Mask:
    """Keep the pixels with no pixel outside the mask within `radius`."""
    eroded = np.ones_like(mask)
    for first, last in _row_counts(~mask, radius):
        eroded &= first == last  # no pixel of the disk's row is outside the mask
    return eroded


def dilate(mask: Mask, *, radius: int) -> Mask:
    """Add the pixels within `radius` of the mask."""
    return ~erode(~mask, radius=radius)


def box_around(mask: Mask, reach: int) -> tuple[slice, ...]:
    """Return the smallest box around a mask that is not empty, `reach` pixels wider on each side."""
    axes = range(mask.ndim)
    spans = [np.flatnonzero(mask.any(axis=tuple(other for other in axes if other != axis))) for axis in axes]
    return tuple(slice(max(0, int(span[0]) - reach), int(span[-1]) + reach + 1) for span in spans)


def _components(mask: Mask, connectivity: int) -> tuple[Any, Any]:
    """Return the component map, int32, and the number of pixels of each component; entry 0 counts all other pixels."""
    structure = ndimage.generate_binary_structure(mask.ndim, 1 if connectivity == 4 else mask.ndim)
    components, count = ndimage.label(mask, structure)
    return components, np.bincount(components.ravel(), minlength=count + 1)


# Step's name to its function, which takes the keys of the step that not every step has
_OPERATIONS: dict[str, Callable[..., Mask]] = {
    "remove_small_objects": remove_small,
    "largest_component": keep_largest,
    "clear_border": clear_border,
    "fill_holes": fill_holes,
    "opening": opening,
    "closing": closing,
    "smooth": smooth,
    "skeleton": skeletonize,
}
_COMMON = RemovingStepConfig.model_fields  # keys that are not passed to the function
PLANEWISE = ("opening", "closing", "smooth", "skeleton")


def build_mask_step(config: StepConfig, *, spec: ClassSpec) -> partial[LabelArray]:
    """Build the step on label maps that a configuration names; ConfigError if a class does not exist."""
    options = {key: value for key, value in config if key not in _COMMON}
    step = partial(_OPERATIONS[config.name], **options)
    if config.name in PLANEWISE:  # openings and closings reach farthest: a disk around each pixel of a disk
        step = partial(_by_planes, step, 2 * options.get("radius", 0) + 1)
    where = f"postprocess.{config.name}"
    fill = getattr(config, "fill", None)
    return partial(
        apply_per_class,
        step=step,
        classes=class_indices(config.classes, spec, where=where),
        multilabel=spec.is_multilabel,
        fill=None if fill is None else class_indices((fill,), spec, where=where, argument="fill")[0],
    )


def _by_planes(step: MaskStep, reach: int, mask: Mask) -> Mask:
    """Run a step on a mask (H, W), or on every plane of (D, H, W).

    It runs only on the box that it can change, which is `reach` pixels wider than the mask on each side.
    """
    if mask.ndim == 3:
        return np.stack([_by_planes(step, reach, plane) for plane in mask])
    result = np.zeros_like(mask)
    if mask.any():
        box = box_around(mask, reach)
        result[box] = step(mask[box])
    return result


def class_indices(classes: ClassNames, spec: ClassSpec, *, where: str, argument: str = "classes") -> tuple[int, ...]:
    """Return the label values of the named classes. None means all but the first, or all for multilabel.

    Raises
    ------
    ConfigError
        A name is not a class.
    """
    if classes is None:
        return tuple(range(0 if spec.is_multilabel else 1, spec.num_classes))
    unknown = [name for name in classes if name not in spec.names]
    if unknown:
        rule = "to name a class"
        raise ConfigError([expected(where, argument, rule, repr(n), nearest(n, spec.names)) for n in unknown])
    return tuple(spec.names.index(name) for name in classes)


def apply_per_class(
    labels: LabelArray, step: MaskStep, *, classes: tuple[int, ...], multilabel: bool, fill: int | None = None
) -> LabelArray:
    """Run `step` on the mask of each class in turn and put the result back into a new label map.

    Parameters
    ----------
    labels
        (H, W), or (K, H, W) in {0, 1} for multilabel; a volume has (D, H, W) for (H, W).
    step
        Turns a mask (H, W) or (D, H, W) into another one of the same shape.
    classes
        Label values, or indices of planes, in the order in which they are processed.
    multilabel
        Whether `labels` are planes.
    fill
        The value of pixels that a class loses; None takes that of the nearest pixel.
    """
    result = labels.copy()
    for index in classes:
        mask = result[index].astype(bool) if multilabel else result == index
        if not mask.any():
            continue
        after = step(mask)
        if multilabel:
            result[index] = after
            continue
        lost = mask & ~after
        result[after & ~mask] = index
        if fill is None:
            fill_from_nearest(result, lost, of=mask | after)
        else:
            result[lost] = fill
    return result


def fill_from_nearest(labels: NDArray[Any], lost: Mask, *, of: Mask) -> None:
    """Give each lost pixel, in place, the label of the nearest pixel that is not in `of`.

    Parameters
    ----------
    labels
        (H, W) of any integer dtype.
    lost, of
        (H, W). `of` marks the lost pixels and all others that can't give a label, such as those of their old class.
    """
    if not lost.any() or of.all():
        return
    box = box_around(of, 1)
    nearest = ndimage.distance_transform_cdt(of[box], metric="taxicab", return_distances=False, return_indices=True)
    inside = lost[box]
    labels[box][inside] = labels[box][tuple(nearest[:, inside])]
