"""Bands of labels -> cleaned bands, for steps that look no further than some rows: equal to the whole map's."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from segmeter.classes import ClassSpec
from segmeter.postprocess.config import ClosingConfig, OpeningConfig
from segmeter.postprocess.pipeline import build_steps
from segmeter.postprocess.planes import LabelArray, class_indices


def reach_of(config: Any, spec: ClassSpec) -> int | None:
    """How many rows away a step looks; None where the whole map decides.

    An opening or closing looks twice its radius far, and so does each class on what the one before has left. Without
    `fill`, an opening gives pixels to the nearest class, however far that is.
    """
    if not isinstance(config, OpeningConfig | ClosingConfig):
        return None
    if isinstance(config, OpeningConfig) and config.fill is None and not spec.is_multilabel:
        return None
    classes = class_indices(config.classes, spec, where=f"postprocess.{config.name}")
    return 2 * config.radius * (1 if spec.is_multilabel else len(classes))


def unbounded_steps(steps: Sequence[Any], spec: ClassSpec) -> list[str]:
    """Names of the steps that can't be run by bands."""
    return [config.name for config in steps if reach_of(config, spec) is None]


class BandedSteps:
    """Runs steps over the bands of one map, from top to bottom.

    Parameters
    ----------
    steps
        Step configurations, none of them in `unbounded_steps`.
    spec
        The classes.
    height
        Rows of the map.
    """

    def __init__(self, steps: Sequence[Any], spec: ClassSpec, *, height: int) -> None:
        self._steps = build_steps(steps, spec)
        self._reach = sum(reach_of(config, spec) or 0 for config in steps)
        self._height = height
        self._held: LabelArray | None = None
        self._top = self._done = 0  # first row that is held, and first that is not given out
        self.changed = {name: 0 for name, _ in self._steps}

    def push(self, rows: LabelArray) -> LabelArray:
        """Take the next rows, (h, W) or (K, h, W), and give out those that nothing to come can change, maybe none."""
        held = rows if self._held is None else np.concatenate([self._held, rows], -2)
        end = self._top + held.shape[-2]
        stop = end if end == self._height else max(self._done, end - self._reach)
        core = slice(self._done - self._top, stop - self._top)
        cleaned = self._run(held, core) if stop > self._done else held[..., core, :]
        keep = max(self._top, stop - self._reach)
        self._held, self._top, self._done = held[..., keep - self._top :, :], keep, stop
        return cleaned

    def _run(self, labels: LabelArray, core: slice) -> LabelArray:
        for name, step in self._steps:
            before, labels = labels, step(labels)  # type: ignore[assignment]  # none of these steps splits
            self.changed[name] += int(np.count_nonzero(before[..., core, :] != labels[..., core, :]))
        return labels[..., core, :]
