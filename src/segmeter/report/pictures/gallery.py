"""Chooses the cases of a run that are worth a picture: the worst, the worst of each class, and a fair sample."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from segmeter.report.config import ReportConfig

OVERLAYS = "overlays"  # of a run's folder

_MOST_CLASSES = 64  # whose worst case is drawn


def choose_cases(
    scores: Mapping[str, float | None],
    config: ReportConfig,
    class_scores: Mapping[str, Sequence[float]] | None = None,
) -> set[str]:
    """Choose the worst cases, the worst of each class, and a fair sample; scores of None and NaN are undefined."""
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


def worst_first(scores: Mapping[str, float | None]) -> list[str]:
    """Case ids by rising score; undefined ones (None) last, equal ones by id.

    Examples
    --------
    >>> worst_first({"b": 0.5, "a": None, "c": 0.1})
    ['c', 'b', 'a']
    """
    defined = sorted((score, case_id) for case_id, score in scores.items() if score is not None)
    return [case_id for _, case_id in defined] + sorted(case_id for case_id, score in scores.items() if score is None)
