"""Runs the configured steps on a label map, in order, and counts what each one changed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected
from segmeter.classes import ClassSpec
from segmeter.errors import InputError
from segmeter.postprocess.config import INSTANCE_STEPS, STEPS, CoresConfig
from segmeter.postprocess.masks import LabelArray
from segmeter.postprocess.objects import InstanceArray

Step = Callable[..., Any]  # turns labels into cleaned labels; an instance step turns them into objects


@dataclass(frozen=True, kw_only=True)
class Cleaned:
    """A label map after the steps.

    Parameters
    ----------
    labels
        The cleaned labels, in the shape and dtype of the input.
    instances
        Object numbers, int32 in the same shape, 0 is background; None without an instance step.
    changed
        Step name to the number of pixels that it changed, in the order of the steps; for multilabel, pixels of all
        planes. A name that occurs again gets "_2", "_3" and so on.
    """

    labels: LabelArray
    instances: InstanceArray | None
    changed: dict[str, int]


def build_steps(configs: Sequence[Any], spec: ClassSpec) -> list[tuple[str, Step]]:
    """Build each step and give it a distinct name; ConfigError for an unknown step or class."""
    names = [config.name for config in configs]
    counts = [names[: i + 1].count(name) for i, name in enumerate(names)]
    distinct = [name if count == 1 else f"{name}_{count}" for name, count in zip(names, counts, strict=True)]
    return [(name, STEPS.build(config, spec=spec)) for name, config in zip(distinct, configs, strict=True)]


def run_steps(
    labels: LabelArray,
    steps: Sequence[Any],
    spec: ClassSpec,
    probs: NDArray[Any] | None = None,
    *,
    plane_axis: int | None = None,
) -> Cleaned:
    """Run the configured steps on one label map; the input is not changed.

    Parameters
    ----------
    labels
        (H, W) uint8 or uint16, values 0 .. K-1; for multilabel (K, H, W) in {0, 1}. A volume has (D, H, W) for (H, W).
    steps
        Step configurations, as in ``PostprocessConfig.steps``.
    spec
        The classes.
    probs : (num_channels, H, W), float, or uint8 with 255 for 1
        Probabilities of the prediction, which the step `cores` needs.
    plane_axis
        The axis of (D, H, W) along which a volume is cut into planes for the steps of `PLANEWISE`; None for an image.

    Raises
    ------
    InputError
        A step needs probabilities and none are given. Labels have another dtype or shape, or a value that is not a
        class.
    ConfigError
        A step or class of that name does not exist.
    """
    volume, multilabel = plane_axis is not None, spec.is_multilabel
    has_axes = labels.ndim == 2 + volume + multilabel and (not multilabel or len(labels) == spec.num_classes)
    if labels.dtype not in (np.uint8, np.uint16) or not has_axes or not labels.size:
        axes = f"({f'{spec.num_classes}, ' * multilabel}{'D, ' * volume}H, W)"
        raise InputError(expected("run_steps", "labels", f"{axes} uint8 or uint16", f"{labels.dtype} {labels.shape}"))
    highest = 1 if multilabel else spec.num_classes - 1
    if labels.max() > highest:
        raise InputError(expected("run_steps", "labels", f"to be in 0 .. {highest}", f"{labels.max()}"))
    axis = 0 if plane_axis is None else plane_axis - 3  # 0 for an image, whose axes stay
    cleaned: Any = np.moveaxis(labels, axis, -3) if axis else labels
    instances = None
    changed = dict[str, int]()
    for config, (name, step) in zip(steps, build_steps(steps, spec), strict=True):
        before = cleaned
        if config.name not in INSTANCE_STEPS:
            cleaned = step(before)
        elif not isinstance(config, CoresConfig):
            instances = step(before)
        elif probs is not None:
            instances = step(before, probs)
        else:
            raise InputError(expected("run_steps", "probs", "to be given for the step cores", None))
        changed[name] = int(np.count_nonzero(before != cleaned))
    cleaned = np.ascontiguousarray(np.moveaxis(cleaned, -3, axis)) if axis else cleaned
    return Cleaned(labels=cleaned, instances=instances, changed=changed)


def needs_probs(steps: Sequence[Any]) -> bool:
    """Tell whether a step works on the probabilities of a prediction in addition to its labels."""
    return any(isinstance(step, CoresConfig) for step in steps)
