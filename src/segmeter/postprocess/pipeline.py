"""Runs the configured steps on a label map, in order, and counts what each one changed.

A map that is larger than memory is cleaned in bands of lines, which gives the same labels as the whole map. A map in
memory is one band.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected
from segmeter.classes import ClassSpec
from segmeter.errors import InputError
from segmeter.postprocess.config import INSTANCE_STEPS, STEPS, ClosingConfig, CoresConfig, OpeningConfig
from segmeter.postprocess.masks import LabelArray, class_indices
from segmeter.postprocess.objects import InstanceArray

Step = Callable[..., Any]  # of labels: cleaned ones, or for instance steps, also of `probs`, objects


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
    moved: Any = np.moveaxis(labels, first, -3) if first else labels
    bands = Bands(steps, spec, height=moved.shape[-2], probs=probs)
    cleaned: Any = bands.push(moved)
    cleaned = np.ascontiguousarray(np.moveaxis(cleaned, -3, first)) if first else cleaned
    return Cleaned(labels=cleaned, instances=bands.instances, changed=bands.changed)


class Bands:
    """Runs steps over the bands of one label map, from top to bottom.

    Parameters
    ----------
    steps
        Step configurations. None of them may be in `unbounded_steps` unless the first band is the whole map.
    spec
        The classes.
    height
        Lines of the map.
    probs
        As for `run_steps`; the first band is then the whole map.

    Attributes
    ----------
    changed, instances
        As in `Cleaned`, of what has been returned so far.
    """

    def __init__(
        self, steps: Sequence[Any], spec: ClassSpec, *, height: int, probs: NDArray[Any] | None = None
    ) -> None:
        self._steps, self._probs = list(zip(steps, build_steps(steps, spec), strict=True)), probs
        self._reach = sum(reach_of(config, spec) or 0 for config in steps)
        self._height = height
        self._held: LabelArray | None = None
        self._top = self._done = 0  # the first line that is kept, and the first that was not returned yet
        self.changed = {name: 0 for _, (name, _) in self._steps}
        self.instances: InstanceArray | None = None

    def push(self, lines: LabelArray) -> LabelArray:
        """Take the next lines, (h, W) or (K, h, W), and return those that can no longer change, maybe none."""
        held = lines if self._held is None else np.concatenate([self._held, lines], -2)
        end = self._top + held.shape[-2]
        stop = end if end == self._height else max(self._done, end - self._reach)
        core = slice(self._done - self._top, stop - self._top)
        cleaned = held
        for config, (name, step) in self._steps if stop > self._done else ():
            if config.name in INSTANCE_STEPS:  # which change no label
                self.instances = step(cleaned, probs=self._probs)
                continue
            before, cleaned = cleaned, step(cleaned)
            self.changed[name] += int(np.count_nonzero(before[..., core, :] != cleaned[..., core, :]))
        keep = max(self._top, stop - self._reach)
        self._held, self._top, self._done = held[..., keep - self._top :, :], keep, stop
        return cleaned[..., core, :]


def needs_probs(steps: Sequence[Any]) -> bool:
    """Tell whether a step works on the probabilities of a prediction in addition to its labels."""
    return any(isinstance(step, CoresConfig) for step in steps)


def reach_of(config: Any, spec: ClassSpec) -> int | None:
    """Return how many lines away a step looks; None if it may depend on the whole map.

    An opening or closing looks twice its radius far, and so does each class on the result of the one before. Without
    `fill`, an opening gives pixels to the nearest class, however far away that is.
    """
    if not isinstance(config, OpeningConfig | ClosingConfig):
        return None
    if isinstance(config, OpeningConfig) and config.fill is None and not spec.is_multilabel:
        return None
    classes = class_indices(config.classes, spec, where=f"postprocess.{config.name}")
    return 2 * config.radius * (1 if spec.is_multilabel else len(classes))


def unbounded_steps(steps: Sequence[Any], spec: ClassSpec) -> list[str]:
    """Name the steps that need the whole map."""
    return [config.name for config in steps if reach_of(config, spec) is None]
