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

Step = Callable[..., Any]  # from labels to cleaned ones; of instance steps, to objects


@dataclass(frozen=True, kw_only=True)
class Cleaned:
    """A label map after the steps.

    Parameters
    ----------
    labels
        In the shape and dtype of the input.
    instances
        int32 of the same shape, 0 is background; None without an instance step.
    changed
        How many pixels each step changed, by step name, in order; for multilabel, pixels of all planes. A name that
        occurs again gets "_2", "_3" and so on.
    """

    labels: LabelArray
    instances: InstanceArray | None
    changed: dict[str, int]


def build_steps(configs: Sequence[Any], spec: ClassSpec) -> list[tuple[str, Step]]:
    """Build each step and give it a distinct name; ConfigError for an unknown step or class."""
    names = [config.name for config in configs]
    seen = [names[: i + 1].count(name) for i, name in enumerate(names)]
    labels = [name if count == 1 else f"{name}_{count}" for name, count in zip(names, seen, strict=True)]
    return [(label, STEPS.build(config, spec=spec)) for label, config in zip(labels, configs, strict=True)]


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
    probs : (num_channels, H, W), float, or uint8 of which 255 is 1
        Probabilities of the prediction, which the step `cores` needs.
    plane_axis
        The axis of (D, H, W) across which steps of `PLANEWISE` run, plane by plane; None for an image.

    Raises
    ------
    InputError
        A step needs probabilities and none are given. Labels of another dtype or shape, or with a value that is not a
        class.
    ConfigError
        A step or class name that does not exist.
    """
    volume, multilabel = plane_axis is not None, spec.is_multilabel
    shaped = labels.ndim == 2 + volume + multilabel and (not multilabel or len(labels) == spec.num_classes)
    if labels.dtype not in (np.uint8, np.uint16) or not shaped or not labels.size:
        axes = f"({f'{spec.num_classes}, ' * multilabel}{'D, ' * volume}H, W)"
        raise InputError(expected("run_steps", "labels", f"{axes} uint8 or uint16", f"{labels.dtype} {labels.shape}"))
    highest = 1 if multilabel else spec.num_classes - 1
    if labels.max() > highest:
        raise InputError(expected("run_steps", "labels", f"to be in 0 .. {highest}", f"{labels.max()}"))
    first = 0 if plane_axis is None else plane_axis - 3  # of a picture, nothing moves
    cleaned: Any = np.moveaxis(labels, first, -3) if first else labels
    instances, changed = None, dict[str, int]()
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
    cleaned = np.ascontiguousarray(np.moveaxis(cleaned, -3, first)) if first else cleaned
    return Cleaned(labels=cleaned, instances=instances, changed=changed)


def needs_probs(steps: Sequence[Any]) -> bool:
    """Tell whether a step works on the probabilities of a prediction in addition to its labels."""
    return any(isinstance(step, CoresConfig) for step in steps)
