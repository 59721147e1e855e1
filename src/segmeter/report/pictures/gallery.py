"""A stream of cases -> the pictures that are worth keeping: the worst, and a fair sample of the rest."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.classes import ClassSpec
from segmeter.files import remove
from segmeter.report.config import ReportConfig
from segmeter.report.pictures.layers import draw_layers, layers_path, write_layers
from segmeter.report.pictures.objects import NO_OBJECTS, Objects
from segmeter.report.pictures.overlay import draw_overlay, picture_path, write_overlay

OVERLAYS = "overlays"  # of a run's folder

_MOST_CLASSES = 64  # whose worst case is drawn
_NO_SCORES: Sequence[float] = ()

Key = tuple[float, str] | tuple[str, str]


class Gallery:
    """Keeps the pictures of the chosen cases of a run while cases stream by, whatever their order.

    A case is drawn only if it is among the worst so far, the worst so far of a class, or in the sample; what is pushed
    out is deleted. Each has a picture in overlays/ and its layers in pictures/.

    Parameters
    ----------
    folder
        The run's folder.
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
        self._of_class: dict[int, tuple[float, str]] = {}

    def offer(
        self,
        case_id: str,
        *,
        image: NDArray[Any],
        target: NDArray[Any] | None,
        labels: NDArray[Any],
        score: float | None,
        class_scores: Sequence[float] = _NO_SCORES,
        objects: Objects = NO_OBJECTS,
        notes: Mapping[str, Any] | None = None,
    ) -> bool:
        """Draw and keep the case if it is one of the chosen so far; shapes as `draw_overlay` takes them.

        `class_scores` has a score per class, NaN where it is undefined; `notes` are those of `draw_layers`.
        """
        if not self._admit(case_id, score, class_scores):
            return False
        panel = self.config.panel
        picture = draw_overlay(
            image, target, labels, self.spec, title=case_id, score=score, panel=panel, objects=objects
        )
        write_overlay(self.folder / OVERLAYS, case_id, picture)
        layers = draw_layers(image, target, labels, self.spec, panel=panel, objects=objects, notes=notes)
        write_layers(self.folder, case_id, layers)
        return True

    def remember(self, case_id: str, score: float | None, class_scores: Sequence[float] = _NO_SCORES) -> None:
        """Let a case that an interrupted run has drawn, or left out, take part in the choice."""
        self._admit(case_id, score, class_scores)

    def chosen(self) -> set[str]:
        """Ids of the cases that are kept now."""
        return {case_id for _, case_id in (*self._worst, *self._sample, *self._of_class.values())}

    def _admit(self, case_id: str, score: float | None, class_scores: Sequence[float]) -> bool:
        if self.config.overlays <= 0:
            self._sample |= {(_draw(case_id), case_id)} if self.config.overlays else set()
            return self.config.overlays < 0
        before = self.chosen()
        worst = min(self.config.worst, self.config.overlays)
        if score is not None and not np.isnan(score):
            _keep_lowest(self._worst, (score, case_id), worst)
        _keep_lowest(self._sample, (_draw(case_id), case_id), self.config.overlays - worst)
        for k, value in _defined(class_scores):
            self._of_class[k] = min(self._of_class.get(k, (value, case_id)), (value, case_id))
        after = self.chosen()
        for gone in before - after:
            self._remove(gone)
        return case_id in after

    def _remove(self, case_id: str) -> None:
        for path in (picture_path(self.folder / OVERLAYS, case_id), layers_path(self.folder, case_id)):
            if path.parent.is_dir() and path.exists():
                remove(path)


def choose_cases(
    scores: Mapping[str, float | None],
    config: ReportConfig,
    class_scores: Mapping[str, Sequence[float]] | None = None,
) -> set[str]:
    """The cases that a `Gallery` keeps once it has seen all of these, by their scores; None and NaN are undefined."""
    if config.overlays < 0:
        return set(scores)
    if not config.overlays:
        return set()
    worst = min(config.worst, config.overlays)
    defined = sorted((score, name) for name, score in scores.items() if score is not None and not np.isnan(score))
    drawn = sorted((_draw(name), name) for name in scores)
    of_class = dict[int, tuple[float, str]]()
    for name, values in (class_scores or {}).items():
        for k, value in _defined(values):
            of_class[k] = min(of_class.get(k, (value, name)), (value, name))
    chosen = [*defined[:worst], *drawn[: config.overlays - worst], *of_class.values()]
    return {name for _, name in chosen}


def _defined(class_scores: Sequence[float]) -> Iterable[tuple[int, float]]:
    return ((k, float(value)) for k, value in enumerate(class_scores[:_MOST_CLASSES]) if not np.isnan(value))


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
