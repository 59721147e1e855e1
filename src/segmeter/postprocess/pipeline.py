"""Run the configured steps on a label map, in order, and count what each one changed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from segmeter.checks import expected
from segmeter.classes import ClassSpec
from segmeter.errors import InputError
from segmeter.postprocess.config import STEPS
from segmeter.postprocess.instances import InstanceArray, Split
from segmeter.postprocess.planes import LabelArray

Step = Callable[[LabelArray], LabelArray | Split]


@dataclass(frozen=True, kw_only=True)
class Cleaned:
    """A label map after the steps.

    Parameters
    ----------
    labels
        Shape and dtype of what came in.
    instances
        int32 of the same shape, 0 = background; None without an instance step.
    changed
        Pixels (for multilabel pixels of all planes) that each step changed, by step name, in order; a name that
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


def run_steps(labels: LabelArray, steps: Sequence[Any], spec: ClassSpec) -> Cleaned:
    """Run the configured steps on one label map; the input stays as it is.

    Parameters
    ----------
    labels
        (H, W) uint8 or uint16, values 0 .. K-1; for multilabel (K, H, W) in {0, 1}.
    steps
        Step configurations, as in ``PostprocessConfig.steps``.
    spec
        The classes.

    Raises
    ------
    InputError
        Labels of another dtype or shape, or with a value that is no class.
    ConfigError
        A step or class name that does not exist.
    """
    _check(labels, spec)
    instances = None
    changed: dict[str, int] = {}
    for name, step in build_steps(steps, spec):
        before = labels
        result = step(labels)
        if isinstance(result, Split):
            labels, instances = result.labels, result.instances
        else:
            labels = result
        changed[name] = int(np.count_nonzero(before != labels))
    return Cleaned(labels=labels, instances=instances, changed=changed)


def _check(labels: LabelArray, spec: ClassSpec) -> None:
    multilabel = spec.is_multilabel
    axes = f"({spec.num_classes}, H, W)" if multilabel else "(H, W)"
    shaped = labels.ndim == 3 and len(labels) == spec.num_classes if multilabel else labels.ndim == 2
    if labels.dtype not in (np.uint8, np.uint16) or not shaped or not labels.size:
        raise InputError(expected("run_steps", "labels", f"{axes} uint8 or uint16", f"{labels.dtype} {labels.shape}"))
    highest = 1 if multilabel else spec.num_classes - 1
    if labels.max() > highest:
        raise InputError(expected("run_steps", "labels", f"to be in 0 .. {highest}", f"{labels.max()}"))
