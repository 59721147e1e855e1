"""A stream of cases -> the pictures that are worth keeping: the worst, and a fair sample of the rest."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.classes import ClassSpec
from segmeter.files import remove
from segmeter.report.config import ReportConfig
from segmeter.report.objects import Objects
from segmeter.report.overlay import NO_OBJECTS, draw_overlay, picture_path, write_overlay

Key = tuple[float, str] | tuple[str, str]


class Gallery:
    """Keeps overlays/ at the chosen cases while cases stream by, whatever their order.

    A case is drawn only if it is among the worst so far or in the sample; what is pushed out is deleted.

    Parameters
    ----------
    folder
        The run's overlays folder; made when first needed.
    config
        Which cases, how many, how large.
    spec
        The classes.
    """

    def __init__(self, folder: Path, config: ReportConfig, spec: ClassSpec) -> None:
        self.folder = folder
        self.config = config
        self.spec = spec
        self._worst: set[tuple[float, str]] = set()
        self._sample: set[tuple[str, str]] = set()

    def offer(
        self,
        case_id: str,
        *,
        image: NDArray[Any],
        target: NDArray[Any] | None,
        labels: NDArray[Any],
        score: float | None,
        objects: Objects = NO_OBJECTS,
    ) -> bool:
        """Draw and keep the case if it is one of the chosen so far; shapes as `draw_overlay` takes them."""
        if not self._admit(case_id, score):
            return False
        picture = draw_overlay(
            image, target, labels, self.spec, title=case_id, score=score, panel=self.config.panel, objects=objects
        )
        write_overlay(self.folder, case_id, picture)
        return True

    def remember(self, case_id: str, score: float | None) -> None:
        """Let a case that an interrupted run has drawn, or left out, take part in the choice."""
        self._admit(case_id, score)

    def chosen(self) -> set[str]:
        """Ids of the cases that are kept now."""
        return {case_id for _, case_id in self._worst} | {case_id for _, case_id in self._sample}

    def _admit(self, case_id: str, score: float | None) -> bool:
        if self.config.overlays < 0:
            self._sample.add((_draw(case_id), case_id))
            return True
        before = self.chosen()
        worst = min(self.config.worst, self.config.overlays)
        if score is not None and not np.isnan(score):
            _keep_lowest(self._worst, (score, case_id), worst)
        _keep_lowest(self._sample, (_draw(case_id), case_id), self.config.overlays - worst)
        after = self.chosen()
        for gone in before - after:
            if self.folder.is_dir():
                remove(picture_path(self.folder, gone))
        return case_id in after


def choose_cases(scores: Mapping[str, float | None], config: ReportConfig) -> set[str]:
    """The cases that a `Gallery` keeps once it has seen all of these, by their scores; None and NaN are undefined."""
    if config.overlays < 0:
        return set(scores)
    worst = min(config.worst, config.overlays)
    defined = sorted((score, name) for name, score in scores.items() if score is not None and not np.isnan(score))
    drawn = sorted((_draw(name), name) for name in scores)
    return {name for _, name in defined[:worst]} | {name for _, name in drawn[: config.overlays - worst]}


def _draw(case_id: str) -> str:
    """What the fair sample is ordered by."""
    return hashlib.sha256(case_id.encode("utf-8", "surrogateescape")).hexdigest()


def _keep_lowest(kept: set[Any], item: Key, most: int) -> None:
    kept.add(item)
    if len(kept) > most:
        kept.remove(max(kept))


def worst_first(scores: Mapping[str, float | None]) -> list[str]:
    """Case ids by rising score; undefined ones (None) last, equal ones by id.

    Examples
    --------
    >>> worst_first({"b": 0.5, "a": None, "c": 0.1})
    ['c', 'b', 'a']
    """
    defined = sorted((score, case_id) for case_id, score in scores.items() if score is not None)
    return [case_id for _, case_id in defined] + sorted(case_id for case_id, score in scores.items() if score is None)
