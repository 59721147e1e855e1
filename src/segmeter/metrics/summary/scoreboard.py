"""rows of runs -> every score that can be compared, as functions of sums over cases.

Axis letters: N cases, C columns that are added up, R sums (one per resample), D scores of the data set, V values per
case.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.classes import ClassSpec
from segmeter.metrics.arrays import BoolArray, FloatArray
from segmeter.metrics.cases.regions import class_regions, region_totals
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.config.metrics import MetricsConfig, mean_classes
from segmeter.metrics.measures.content import CONTENT
from segmeter.metrics.measures.protocol import build_measures
from segmeter.metrics.pixels.overlap import ClassTotals, divide, mean_defined
from segmeter.metrics.statistics.bootstrap import Statistic, mean_columns, mean_of_columns
from segmeter.metrics.summary.measures import MEAN, WholeScores, gather_columns

PER_CASE = ("mean_iou", "mean_dice", "pixel_accuracy")
PER_REGION = ("iou", "dice", "precision", "recall")


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
        Name of a score to its values per case (N,); NaN is undefined.
    columns
        (N, C), whose sums give the scores of the data set.
    whole
        Names of the D scores of the data set, most of which have values per case too.
    score
        Sums (R, C) -> scores (R, D).
    """

    case_ids: list[str]
    values: dict[str, FloatArray]
    columns: NDArray[Any]
    whole: list[str]
    score: Statistic

    @property
    def names(self) -> list[str]:
        """All scores."""
        return list(dict.fromkeys([*self.values, *self.whole]))

    def table(self) -> FloatArray:
        """The values per case (N, V)."""
        return np.stack(list(self.values.values()), axis=1)

    def all_columns(self) -> FloatArray:
        """Columns (N, C + 3 V), whose sums give every score and every mean over cases, see `all_scores`."""
        return np.concatenate([self.columns, mean_columns(self.table())], axis=1)

    def all_scores(self, sums: FloatArray) -> FloatArray:
        """Sums (R, C + 3 V) of `all_columns` -> the scores of the data set, then the means over cases: (R, D + V)."""
        split = self.columns.shape[1]
        return np.concatenate([self.score(sums[:, :split]), mean_of_columns(sums[:, split:])], axis=1)

    def place(self, name: str, *, per_case: bool = False) -> int:
        """Column of `all_scores` that holds a score: of the data set where it has one, unless its mean is wanted."""
        if name in self.whole and not per_case:
            return self.whole.index(name)
        return len(self.whole) + list(self.values).index(name)


def build_scoreboards(
    runs: Mapping[str, Sequence[CaseRow]],
    spec: ClassSpec,
    config: MetricsConfig,
    *,
    per_region: tuple[str, ...] = PER_REGION,
) -> tuple[dict[str, Scoreboard], list[str]]:
    """Lay out the scores that all runs have, and name the columns of measures that only some have.

    Parameters
    ----------
    runs
        Name of a run to its rows, ordered by case id.
    spec
        The classes of all runs.
    config
        Background, groups, and the measures that the runs were measured by.
    per_region
        Which of `PER_REGION` are wanted.
    """
    measured = {run: gather_columns(rows, spec, config) for run, rows in runs.items()}
    every = dict.fromkeys(name for one in measured.values() for name in one.values if name[0] not in CONTENT)
    shared = [name for name in every if all(name in one.values for one in measured.values())]
    sums = [name for name in next(iter(measured.values())).sums if all(name in one.sums for one in measured.values())]
    whole = WholeScores(build_measures(config, spec), tuple(sums), [spec.names[k] for k in mean_classes(config, spec)])
    boards = {}
    for run, rows in runs.items():
        found = measured[run]
        added = np.stack([found.sums[name] for name in sums], axis=1) if sums else np.empty((len(rows), 0))
        values = {"/".join(name): found.values[name] for name in shared}
        boards[run] = _board(rows, spec, config, values=values, sums=added, whole=whole, per_region=per_region)
    return boards, ["/".join(name) for name in every if name not in shared]


def is_overall(name: str) -> bool:
    """Whether a score is of all classes together, and not of one of them.

    Examples
    --------
    >>> [is_overall(name) for name in ("mean_iou", "pq/mean", "pq/car")]
    [True, True, False]
    """
    return "/" not in name or name.partition("/")[2] == MEAN


def paired_means(one: FloatArray, other: FloatArray) -> tuple[BoolArray, FloatArray, FloatArray]:
    """Where one of two tables of values (N, V) is undefined, and the columns (N, 3 V) of both means without these."""
    undefined = np.isnan(one) | np.isnan(other)
    ours, theirs = (mean_columns(np.where(undefined, np.nan, part)) for part in (one, other))
    return undefined, ours, theirs


def _board(
    rows: Sequence[CaseRow],
    spec: ClassSpec,
    config: MetricsConfig,
    *,
    values: dict[str, FloatArray],
    sums: FloatArray,
    whole: WholeScores,
    per_region: tuple[str, ...],
) -> Scoreboard:
    regions = class_regions(spec, config.groups)
    margins, classes = region_totals(rows, spec, regions), mean_classes(config, spec)
    width, further = 4 * len(regions), list(whole.score(np.zeros((1, sums.shape[1]))))

    def score(totals: NDArray[Any]) -> FloatArray:
        own = _scores(ClassTotals.from_columns(totals[:, :width]), spec, classes, per_region)
        more = whole.score(np.asarray(totals[:, width:], np.float64))
        return np.concatenate([own, *(more[name][:, None] for name in further)], axis=1)

    names = [*PER_CASE, *(f"{name}/{region}" for name in per_region for region in regions)]
    own = _scores(margins, spec, classes, per_region)
    return Scoreboard(
        case_ids=[row.case_id for row in rows],
        values={name: own[:, i] for i, name in enumerate(names)} | values,
        columns=np.concatenate([margins.columns(), sums], axis=1),
        whole=[*names, *map("/".join, further)],
        score=score,
    )


def _scores(margins: ClassTotals, spec: ClassSpec, classes: list[int], per_region: tuple[str, ...]) -> FloatArray:
    """The aggregates over the classes, which come first, then the named scores of each region.

    They are those of `score_totals`; its others would take as long again for every resample.
    """
    both = margins.target + margins.predicted
    pairs = {
        "iou": (margins.tp, both - margins.tp),
        "dice": (2 * margins.tp, both),
        "precision": (margins.tp, margins.predicted),
        "recall": (margins.tp, margins.target),
    }
    each = {name: divide(*pair) for name, pair in pairs.items() if name in ("iou", "dice", *per_region)}
    means = [mean_defined(np.take(each[name], classes, axis=-1)) for name in ("iou", "dice")]
    overall = [part[:, None] for part in (*means, _pixel_accuracy(margins, spec))]
    return np.concatenate([*overall, *(each[name] for name in per_region)], axis=1)


def _pixel_accuracy(margins: ClassTotals, spec: ClassSpec) -> FloatArray:
    """The share of pixels with the right class, of multilabel of decisions that are right; groups overlap with it."""
    parts = (margins.tp, margins.target, margins.predicted, margins.total)
    tp, target, predicted, total = (part[..., : spec.num_classes] for part in parts)
    if spec.is_multilabel:
        return divide((total - target - predicted + 2 * tp).sum(axis=-1), total.sum(axis=-1))
    return divide(tp.sum(axis=-1), target.sum(axis=-1))
