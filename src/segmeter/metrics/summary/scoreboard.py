"""rows of runs -> every score that can be compared, as functions of sums over cases.

Axis letters: N cases, C columns that are added up, R sums (one per resample), D scores of the data set, V values per
case.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.classes import ClassSpec
from segmeter.metrics.arrays import FloatArray
from segmeter.metrics.cases.typed import Margins, RunColumns, class_regions
from segmeter.metrics.config.metrics import MetricsConfig, mean_classes
from segmeter.metrics.measures.content import CONTENT
from segmeter.metrics.measures.protocol import build_measures
from segmeter.metrics.pixels.overlap import ClassTotals, divide, mean_defined
from segmeter.metrics.statistics.bootstrap import Statistic, mean_columns, mean_of_columns
from segmeter.metrics.statistics.clusters import sum_clusters
from segmeter.metrics.statistics.lazy_columns import Columns, held_columns, lazy_means
from segmeter.metrics.summary.measures import MEAN, WholeScores, split_measured

PER_CASE = ("mean_iou", "mean_dice", "pixel_accuracy")
PER_REGION = ("iou", "dice", "precision", "recall")

_CASES = 1 << 14  # that are scored at a time


@dataclass(frozen=True, kw_only=True)
class Scoreboard:
    """Every score of one run.

    Scores are called mean_iou, mean_dice, pixel_accuracy, then "iou/car" and so on for each class and group of classes,
    then "<metric>/<class>" and "<metric>/mean" of the measures.

    Parameters
    ----------
    case_ids
        Of the N cases, ascending.
    values
        Name of a score to its values per case (N,), which are mostly made when they are asked for; NaN is undefined.
    columns
        (N, C), whose sums give the scores of the data set.
    whole
        Names of the D scores of the data set, most of which have values per case too.
    score
        Sums (R, C) -> scores (R, D).
    """

    case_ids: list[str]
    values: Mapping[str, FloatArray]
    columns: Columns
    whole: list[str]
    score: Statistic

    @property
    def names(self) -> list[str]:
        """All scores."""
        return list(dict.fromkeys([*self.values, *self.whole]))

    def means(self, other: "Scoreboard | None" = None, *, names: Sequence[str] | None = None) -> Columns:
        """Columns (N, 3 V) of the means over cases, all or some, of those whose values are defined, in `other` too.

        An infinite value counts even where the other one is undefined, as where an object was made up.
        """

        def defined(name: str) -> FloatArray:
            values = self.values[name]
            if other is None:
                return values
            return np.where(np.isnan(other.values[name]) & ~np.isinf(values), np.nan, values)

        return lazy_means(
            len(self.case_ids), [partial(defined, name) for name in (self.values if names is None else names)]
        )


def build_scoreboards(
    runs: Mapping[str, RunColumns],
    spec: ClassSpec,
    config: MetricsConfig,
    *,
    per_region: tuple[str, ...] = PER_REGION,
) -> tuple[dict[str, Scoreboard], list[str]]:
    """Lay out the scores that all runs have, and name the columns of measures that only some have.

    Parameters
    ----------
    runs
        Name of a run to its cases, ordered by id, with the margins of `class_regions`.
    spec
        The classes of all runs.
    config
        Background, groups, and the measures that the runs were measured by.
    per_region
        Which of `PER_REGION` are wanted.
    """
    measured = {run: split_measured(columns.measured, spec, config) for run, columns in runs.items()}
    every = dict.fromkeys(name for values, _ in measured.values() for name in values if name[0] not in CONTENT)
    shared = [name for name in every if all(name in values for values, _ in measured.values())]
    added = [name for name in next(iter(measured.values()))[1] if all(name in sums for _, sums in measured.values())]
    whole = WholeScores(build_measures(config, spec), tuple(added), [spec.names[k] for k in mean_classes(config, spec)])
    boards = {}
    for run, (values, sums) in measured.items():
        own = {"/".join(name): values[name] for name in shared}
        totals = [sums[name] for name in added]
        boards[run] = _board(runs[run], spec, config, values=own, sums=totals, whole=whole, per_region=per_region)
    return boards, ["/".join(name) for name in every if name not in shared]


def is_overall(name: str) -> bool:
    """Whether a score is of all classes together, and not of one of them.

    Examples
    --------
    >>> [is_overall(name) for name in ("mean_iou", "pq/mean", "pq/car")]
    [True, True, False]
    """
    return "/" not in name or name.partition("/")[2] == MEAN


def paired_units(
    one: Scoreboard, other: Scoreboard, clusters: Sequence[str] | None
) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Of each score the values of both runs per case, or their means per cluster, where both are defined."""
    places = None if clusters is None else np.unique(np.asarray(clusters), return_inverse=True)[1]
    for name in one.values:
        values = one.values[name], other.values[name]
        undefined = np.isnan(values[0]) | np.isnan(values[1])
        columns = (mean_columns(np.where(undefined, np.nan, each)[:, None]) for each in values)
        ours, theirs = (mean_of_columns(sum_clusters(each, places))[:, 0] for each in columns)
        yield ours, theirs


class _Values(Mapping[str, FloatArray]):
    """Values per case by name, of which those of regions are made when they are asked for."""

    def __init__(self, makers: dict[str, Callable[[], FloatArray]]) -> None:
        self._makers = makers

    def __getitem__(self, name: str) -> FloatArray:
        return self._makers[name]()

    def __contains__(self, name: object) -> bool:
        return name in self._makers

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


def _board(
    run: RunColumns,
    spec: ClassSpec,
    config: MetricsConfig,
    *,
    values: dict[str, FloatArray],
    sums: list[FloatArray],
    whole: WholeScores,
    per_region: tuple[str, ...],
) -> Scoreboard:
    regions = class_regions(spec, config.groups)
    classes, count = mean_classes(config, spec), len(run.case_ids)
    width, further = 4 * len(regions), list(whole.score(np.zeros((1, len(sums)))))

    def score(totals: NDArray[Any]) -> FloatArray:
        own = _scores(ClassTotals.from_columns(totals[:, :width]), spec, classes, per_region)
        more = whole.score(np.asarray(totals[:, width:], np.float64))
        return np.concatenate([own, *(more[name][:, None] for name in further)], axis=1)

    names = [*PER_CASE, *(f"{name}/{region}" for name in per_region for region in regions)]
    makers: dict[str, Callable[[], FloatArray]] = {
        name: partial(_constant, found) for name, found in zip(PER_CASE, _overall(run, spec, classes).T, strict=True)
    }
    for name in per_region:
        makers |= {f"{name}/{region}": partial(score_region, name, run.margins, k) for k, region in enumerate(regions)}
    makers |= {name: partial(_constant, found) for name, found in values.items()}
    return Scoreboard(
        case_ids=run.case_ids,
        values=_Values(makers),
        columns=held_columns(count, [*run.margins.columns, *sums], np.float64 if sums else np.int64),
        whole=[*names, *map("/".join, further)],
        score=score,
    )


def _scores(margins: ClassTotals, spec: ClassSpec, classes: list[int], per_region: tuple[str, ...]) -> FloatArray:
    """The aggregates over the classes, which come first, then the named scores of each region.

    They are those of `score_totals`; its others would take as long again for every resample.
    """
    each = {name: divide(*_terms(name, margins)) for name in dict.fromkeys(("iou", "dice", *per_region))}
    means = [mean_defined(np.take(each[name], classes, axis=-1)) for name in ("iou", "dice")]
    overall = [part[:, None] for part in (*means, _pixel_accuracy(margins, spec))]
    return np.concatenate([*overall, *(each[name] for name in per_region)], axis=1)


def _terms(name: str, margins: ClassTotals) -> tuple[NDArray[Any], NDArray[Any]]:
    """What a score of `PER_REGION` divides by what."""
    both = margins.target + margins.predicted
    return {
        "iou": (margins.tp, both - margins.tp),
        "dice": (2 * margins.tp, both),
        "precision": (margins.tp, margins.predicted),
        "recall": (margins.tp, margins.target),
    }[name]


def score_region(name: str, margins: Margins, region: int) -> FloatArray:
    """A score of `PER_REGION` of each case, (N,)."""
    return divide(*_terms(name, margins.totals(region)))


def _constant(values: FloatArray) -> FloatArray:
    return values


def _overall(run: RunColumns, spec: ClassSpec, classes: list[int]) -> FloatArray:
    """The aggregates over the classes per case, (N, 3): some thousand cases at a time."""
    count = len(run.case_ids)
    found = np.empty((len(PER_CASE), count))
    for start in range(0, count, _CASES):
        part = slice(start, start + _CASES)
        margins = np.stack([column[part] for column in run.margins.columns], axis=1).astype(np.int64)
        found[:, part] = _scores(ClassTotals.from_columns(margins), spec, classes, ()).T
    return found.T


def _pixel_accuracy(margins: ClassTotals, spec: ClassSpec) -> FloatArray:
    """The share of pixels with the right class, of multilabel of decisions that are right; groups overlap with it."""
    parts = (margins.tp, margins.target, margins.predicted, margins.total)
    tp, target, predicted, total = (part[..., : spec.num_classes] for part in parts)
    if spec.is_multilabel:
        return divide((total - target - predicted + 2 * tp).sum(axis=-1), total.sum(axis=-1))
    return divide(tp.sum(axis=-1), target.sum(axis=-1))
