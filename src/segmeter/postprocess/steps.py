"""The built-in steps: label map -> cleaned label map; how masks and label maps relate is said in `planes`."""

from functools import partial
from typing import Any

import numpy as np
from scipy import ndimage
from skimage import morphology

from segmeter.postprocess import config as schema
from segmeter.postprocess.planes import LabelArray, Mask, MaskStep, apply_per_class, class_indices, fill_index
from segmeter.vocabulary import ClassSpec

Step = partial[LabelArray]


def build_remove_small_objects(config: schema.RemoveSmallObjectsConfig, *, spec: ClassSpec) -> Step:
    step = partial(remove_small, min_pixels=config.min_pixels, connectivity=config.connectivity)
    return _per_class(config, step, spec, fill=config.fill)


def build_largest_component(config: schema.LargestComponentConfig, *, spec: ClassSpec) -> Step:
    return _per_class(config, partial(keep_largest, connectivity=config.connectivity), spec, fill=config.fill)


def build_clear_border(config: schema.ClearBorderConfig, *, spec: ClassSpec) -> Step:
    step = partial(clear_border, margin=config.margin, connectivity=config.connectivity)
    return _per_class(config, step, spec, fill=config.fill)


def build_fill_holes(config: schema.FillHolesConfig, *, spec: ClassSpec) -> Step:
    return _per_class(config, partial(fill_holes, max_pixels=config.max_pixels, connectivity=config.connectivity), spec)


def build_opening(config: schema.OpeningConfig, *, spec: ClassSpec) -> Step:
    return _per_class(config, partial(opening, radius=config.radius), spec, fill=config.fill)


def build_closing(config: schema.ClosingConfig, *, spec: ClassSpec) -> Step:
    return _per_class(config, partial(closing, radius=config.radius), spec)


def build_watershed(config: schema.WatershedConfig, *, spec: ClassSpec) -> Any:
    from segmeter.postprocess.instances import split_labels

    return partial(
        split_labels,
        classes=class_indices(config.classes, spec, where=f"postprocess.{config.name}"),
        multilabel=spec.task == "multilabel",
        min_distance=config.min_distance,
    )


def _per_class(config: schema.StepConfig, step: MaskStep, spec: ClassSpec, *, fill: str | None = None) -> Step:
    where = f"postprocess.{config.name}"
    return partial(
        apply_per_class,
        step=step,
        classes=class_indices(config.classes, spec, where=where),
        multilabel=spec.task == "multilabel",
        fill=fill_index(fill, spec, where=where),
    )


def remove_small(mask: Mask, *, min_pixels: int, connectivity: int) -> Mask:
    """Keep the components of at least `min_pixels` pixels."""
    components, sizes = _components(mask, connectivity)
    return np.asarray((sizes >= min_pixels)[components] & mask)


def keep_largest(mask: Mask, *, connectivity: int) -> Mask:
    """Keep the component with most pixels; of equal ones the first in reading order."""
    components, sizes = _components(mask, connectivity)
    sizes[0] = 0
    return np.asarray(components == sizes.argmax()) & mask


def clear_border(mask: Mask, *, margin: int, connectivity: int) -> Mask:
    """Keep the components with no pixel among the outermost `margin` + 1 rows and columns."""
    components, sizes = _components(mask, connectivity)
    edge = np.ones_like(mask)
    edge[margin + 1 : mask.shape[0] - margin - 1, margin + 1 : mask.shape[1] - margin - 1] = False
    kept = np.ones(sizes.size, bool)
    kept[components[edge]] = False
    return np.asarray(kept[components] & mask)


def fill_holes(mask: Mask, *, max_pixels: int | None, connectivity: int) -> Mask:
    """Add the components of the rest that do not touch the image's edge and have at most `max_pixels` pixels."""
    holes = clear_border(~mask, margin=0, connectivity=connectivity)
    if max_pixels is None:
        return mask | holes
    return mask | (holes & ~remove_small(holes, min_pixels=max_pixels + 1, connectivity=connectivity))


def opening(mask: Mask, *, radius: int) -> Mask:
    """Keep the pixels covered by a disk that fits into the mask; beyond the image's edge counts as inside."""
    disk = morphology.disk(radius)  # type: ignore[no-untyped-call]
    return np.asarray(morphology.opening(mask, disk, mode="ignore"), bool)


def closing(mask: Mask, *, radius: int) -> Mask:
    """Add the pixels that no disk outside the mask covers; beyond the image's edge counts as outside."""
    disk = morphology.disk(radius)  # type: ignore[no-untyped-call]
    return np.asarray(morphology.closing(mask, disk, mode="ignore"), bool)


def _components(mask: Mask, connectivity: int) -> tuple[Any, Any]:
    """Component map (H, W) int32 and pixels per component, entry 0 being the rest."""
    structure = ndimage.generate_binary_structure(2, 1 if connectivity == 4 else 2)
    components, count = ndimage.label(mask, structure)
    return components, np.bincount(components.ravel(), minlength=count + 1)
