"""The built-in steps: label map -> cleaned label map; how masks and label maps relate is said in `planes`."""

from functools import partial

from segmeter.classes import ClassSpec
from segmeter.postprocess import config as schema
from segmeter.postprocess import masks
from segmeter.postprocess.instances import Split, Splitter, split_at_depth, split_labels, split_mask
from segmeter.postprocess.planes import LabelArray, MaskStep, apply_per_class, class_indices, fill_index

Step = partial[LabelArray]


def build_remove_small_objects(config: schema.RemoveSmallObjectsConfig, *, spec: ClassSpec) -> Step:
    step = partial(masks.remove_small, min_pixels=config.min_pixels, connectivity=config.connectivity)
    return _per_class(config, step, spec, fill=config.fill)


def build_largest_component(config: schema.LargestComponentConfig, *, spec: ClassSpec) -> Step:
    return _per_class(config, partial(masks.keep_largest, connectivity=config.connectivity), spec, fill=config.fill)


def build_clear_border(config: schema.ClearBorderConfig, *, spec: ClassSpec) -> Step:
    step = partial(masks.clear_border, margin=config.margin, connectivity=config.connectivity)
    return _per_class(config, step, spec, fill=config.fill)


def build_fill_holes(config: schema.FillHolesConfig, *, spec: ClassSpec) -> Step:
    step = partial(masks.fill_holes, max_pixels=config.max_pixels, connectivity=config.connectivity)
    return _per_class(config, step, spec)


def build_opening(config: schema.OpeningConfig, *, spec: ClassSpec) -> Step:
    return _per_class(config, partial(masks.opening, radius=config.radius), spec, fill=config.fill)


def build_closing(config: schema.ClosingConfig, *, spec: ClassSpec) -> Step:
    return _per_class(config, partial(masks.closing, radius=config.radius), spec)


def build_smooth(config: schema.SmoothConfig, *, spec: ClassSpec) -> Step:
    return _per_class(config, partial(masks.smooth, radius=config.radius), spec, fill=config.fill)


def build_skeleton(config: schema.SkeletonConfig, *, spec: ClassSpec) -> Step:
    return _per_class(config, masks.skeleton, spec, fill=config.fill)


def build_watershed(config: schema.WatershedConfig, *, spec: ClassSpec) -> partial[Split]:
    return _splitting(config, partial(split_mask, min_distance=config.min_distance), spec)


def build_distance_split(config: schema.DistanceSplitConfig, *, spec: ClassSpec) -> partial[Split]:
    return _splitting(config, partial(split_at_depth, depth=config.depth), spec)


def _splitting(config: schema.StepConfig, split: Splitter, spec: ClassSpec) -> partial[Split]:
    classes = class_indices(config.classes, spec, where=f"postprocess.{config.name}")
    return partial(split_labels, classes=classes, multilabel=spec.is_multilabel, split=split)


def _per_class(config: schema.StepConfig, step: MaskStep, spec: ClassSpec, *, fill: str | None = None) -> Step:
    where = f"postprocess.{config.name}"
    return partial(
        apply_per_class,
        step=step,
        classes=class_indices(config.classes, spec, where=where),
        multilabel=spec.is_multilabel,
        fill=fill_index(fill, spec, where=where),
    )
