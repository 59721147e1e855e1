"""Applies operations on the mask of one class to label maps.

Rules, the same for every step:

* A step works through its classes in the given order; each sees what the earlier ones left.
* Pixels that a class gains are taken from whatever class held them.
* Pixels that a class loses get the class `fill`. If that is None, they get the class of the nearest pixel of another
  class, counted in steps up, down, left and right. Of equally near pixels, it is always the same one. An image that the
  class covers wholly stays as it is, as nothing else is there to take its place.
* Multilabel planes (K, H, W) are independent: what one loses no other gains, and `fill` does not apply.
* On volumes (D, H, W), the steps of `PLANEWISE` run on each plane (H, W). The others run in 3-D: for connectivity 4 or
  8, voxels have 6 or 26 neighbours, and the first and the last plane are edges too.
* Predictions hold classes only; the ignored value does not occur in them.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from segmeter.checks import expected, nearest
from segmeter.classes import ClassSpec
from segmeter.errors import ConfigError
from segmeter.postprocess import masks
from segmeter.postprocess.config import ClassNames, StepConfig
from segmeter.postprocess.masks import Mask, box_around, grow_by_sides

LabelArray = NDArray[np.uint8] | NDArray[np.uint16]
MaskStep = Callable[[Mask], Mask]

_OPERATIONS: dict[str, tuple[Callable[..., Mask], tuple[str, ...]]] = {  # by the name of the step, with its options
    "remove_small_objects": (masks.remove_small, ("min_pixels", "connectivity")),
    "largest_component": (masks.keep_largest, ("connectivity",)),
    "clear_border": (masks.clear_border, ("margin", "connectivity")),
    "fill_holes": (masks.fill_holes, ("max_pixels", "connectivity")),
    "opening": (masks.opening, ("radius",)),
    "closing": (masks.closing, ("radius",)),
    "smooth": (masks.smooth, ("radius",)),
    "skeleton": (masks.skeleton, ()),
}
PLANEWISE = ("opening", "closing", "smooth", "skeleton")


def build_mask_step(config: StepConfig, *, spec: ClassSpec) -> partial[LabelArray]:
    """Build the step of label maps that a configuration names; ConfigError if a class does not exist."""
    operation, options = _OPERATIONS[config.name]
    step = partial(operation, **{name: getattr(config, name) for name in options})
    where, fill = f"postprocess.{config.name}", getattr(config, "fill", None)
    return partial(
        apply_per_class,
        step=partial(_by_planes, step) if config.name in PLANEWISE else step,
        classes=class_indices(config.classes, spec, where=where),
        multilabel=spec.is_multilabel,
        fill=None if fill is None else class_indices((fill,), spec, where=where, argument="fill")[0],
    )


def _by_planes(step: MaskStep, mask: Mask) -> Mask:
    """Run a step on a mask (H, W), or on every plane of (D, H, W)."""
    return step(mask) if mask.ndim == 2 else np.stack([step(plane) for plane in mask])


def class_indices(classes: ClassNames, spec: ClassSpec, *, where: str, argument: str = "classes") -> tuple[int, ...]:
    """Label values of the named classes; None is all but the first, or all for multilabel.

    Raises
    ------
    ConfigError
        A name is not a class.
    """
    if classes is None:
        return tuple(range(0 if spec.is_multilabel else 1, spec.num_classes))
    strange = [name for name in classes if name not in spec.names]
    if strange:
        rule = "to name a class"
        raise ConfigError([expected(where, argument, rule, repr(n), nearest(n, spec.names)) for n in strange])
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
        (H, W) bool -> (H, W) bool, and likewise for (D, H, W).
    classes
        Label values, or planes, in the order in which they are done.
    multilabel
        Whether `labels` are planes.
    fill
        The value of pixels that a class loses; None: the nearest.
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
        (H, W). `of` holds the lost pixels and all others that can't give a label, such as the class that lost them.
    """
    if not lost.any() or of.all():
        return
    if not (grow_by_sides(lost) & of & ~lost).any():
        of = lost  # whole components were lost, so that the nearest label lies just outside the lost pixels
    box = box_around(of, 1)
    nearest = ndimage.distance_transform_cdt(of[box], metric="taxicab", return_distances=False, return_indices=True)
    inside = lost[box]
    labels[box][inside] = labels[box][tuple(nearest[:, inside])]
