"""Gives every score of a run, per case and as one function of sums over cases, and resamples them.

No other module of this folder calls the bootstrap. Axis letters: N cases, C columns that are added up, R sums (one per
resample), S scores, D of them of the data set.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected, nearest
from segmeter.classes import ClassSpec
from segmeter.errors import ConfigError
from segmeter.metrics.arrays import FloatArray, IntArray, mean_defined
from segmeter.metrics.cases.run_columns import RunColumns, lay_out_run
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.config.metrics import MetricsConfig, choose_headline, headline_of, mean_classes
from segmeter.metrics.config.scores import CONTENT, MEAN, find_direction, is_number
from segmeter.metrics.measures.protocol import CaseMaps, Measure, Name, build_measures
from segmeter.metrics.measures.row import make_row
from segmeter.metrics.pixels.overlap import AGGREGATES, ClassTotals, aggregate
from segmeter.metrics.statistics.bootstrap import Resampled, Statistic, bootstrap_columns
from segmeter.metrics.statistics.clusters import cluster_labels
from segmeter.metrics.statistics.columns import Columns, split_means

PER_CASE = ("mean_iou", "mean_dice", "pixel_accuracy")
PER_REGION = ("iou", "dice", "precision", "recall")

Key = tuple[Literal["dataset", "per_case"], str]  # a score of the data set or a mean over cases, and its name

_CASES = 1 << 12  # cases scored at a time
_PROBE = 16  # edge in pixels of the empty map that shows which scores the measures give


class ScoreColumns(NamedTuple):
    """Columns (N, C), and a function that computes scores from their sums (R, C).

    The scores of `Scoreboard.choose` are (2, R, S): the share of infinite values, which is 0 for a score of the data
    set, and the score without them.
    """

    columns: Columns
    score: Callable[[FloatArray], FloatArray]


@dataclass(frozen=True, kw_only=True)
class Scoreboard:
    """The scores of one run.

    They are called mean_iou, mean_dice, pixel_accuracy and so on, "iou/car" for a class or group of classes, and
    "<metric>/<class>" or "<metric>/mean" where measures give them. A score of the data set is computed from sums over
    cases. A mean over cases is computed from the sum of the cases' values.

    Parameters
    ----------
    run
        N cases, ordered by id.
    spec, config
        The classes and settings that the run was measured with.
    measured
        Values per case (N,) of measures, with the means over classes.
    sums, measures
        Columns (N,) of measures that are added up over cases, and the measures that turn their sums into scores.
    case_scores
        The scores of `PER_CASE` of each case (N,).
    mean_classes
        The classes that means run over.
    measure_scores
        Names of the scores of the data set that come from measures.
    names_per_case
        Names of the compared scores that have a value per case, and so a mean over cases.
    headline
        The score that the run is judged by: the configured one, or the counts' default if the cases lack that.
    """

    run: RunColumns
    spec: ClassSpec
    config: MetricsConfig
    measured: Mapping[Name, FloatArray]
    sums: Mapping[Name, FloatArray]
    measures: tuple[Measure, ...]
    case_scores: Mapping[str, FloatArray]
    mean_classes: list[str]
    measure_scores: list[str]
    names_per_case: list[str]
    headline: str

    @cached_property
    def dataset_names(self) -> list[str]:
        """Names of the compared scores of the data set."""
        by_region = (f"{metric}/{region}" for metric in PER_REGION for region in self.run.regions)
        return [*PER_CASE, *by_region, *self.measure_scores]

    @property
    def keys(self) -> list[Key]:
        """The compared scores: those of the data set, then the means over cases."""
        of_dataset: list[Key] = [("dataset", name) for name in self.dataset_names]
        return [*of_dataset, *(("per_case", name) for name in self.names_per_case)]

    def key(self, name: str) -> Key:
        """Return the key of the data set's score if there is one of this name, else that of the mean over cases."""
        return ("dataset" if name in self.dataset_names else "per_case", name)

    @property
    def names(self) -> list[str]:
        """Names of all compared scores."""
        return list(dict.fromkeys([*self.names_per_case, *self.dataset_names]))

    def worst_first(self, name: str | None = None) -> IntArray:
        """Return indices of the cases with a score (default: the headline), worst first; ties stay in order of ids."""
        name = name or self.headline
        values = self.values(name)
        defined = np.flatnonzero(~np.isnan(values))
        ranked = -values[defined] if find_direction(name) == "lower" else values[defined]
        return defined[np.argsort(ranked, kind="stable")]

    @cached_property
    def clusters(self) -> IntArray | None:
        """The number of each case's cluster; None if every case is a unit."""
        labels = cluster_labels(self.run.case_ids, self.config.cluster)
        return None if labels is None else np.unique(np.asarray(labels), return_inverse=True)[1]

    @property
    def units(self) -> IntArray:
        """The number of each case's independent unit: its cluster, or itself."""
        return np.arange(len(self.run.case_ids)) if self.clusters is None else self.clusters

    @property
    def n_units(self) -> int:
        """The number of independent cases or clusters."""
        return int(self.units.max()) + 1

    def values(self, name: str) -> FloatArray:
        """Return a score of each case (N,); NaN is undefined."""
        metric, _, region = name.partition("/")
        if name in self.case_scores:
            return self.case_scores[name]
        if (metric, region) in self.measured:
            return self.measured[metric, region]
        return self.run.totals(region).ratio(metric)

    @cached_property
    def columns(self) -> Columns:
        """Columns (N, C) whose sums give the scores of the data set: totals of regions, then sums of measures."""
        by_region = (part[:, k] for part in self.run.region_totals for k in range(len(self.run.regions)))
        columns = [*by_region, *self.sums.values()]
        dtype: np.dtype[Any] = np.dtype(np.float64 if self.sums else np.int64)
        return Columns(
            count=len(self.run.case_ids),
            shape=(len(columns),),
            dtype=dtype,
            make=lambda index: columns[index].astype(dtype, copy=False),
        )

    def score(self, sums: NDArray[Any], names: Sequence[str]) -> FloatArray:
        """Compute scores of the data set (R, D) from sums (R, C) of `columns`."""
        width = 4 * len(self.run.regions)
        totals = ClassTotals.from_columns(sums[:, :width])
        of_classes = totals.map(lambda part: part[..., : self.spec.num_classes])  # without the groups
        classes = mean_classes(self.config, self.spec)
        scores = dict[str, FloatArray]()
        from_measures = set(names) & set(self.measure_scores)
        if from_measures:
            measure_sums = dict(zip(self.sums, np.asarray(sums[:, width:], np.float64).T, strict=True))
            measured = _score_sums(self.measures, measure_sums, self.mean_classes)
            scores = {"/".join(name): score for name, score in measured.items()}
        for metric in dict.fromkeys(name.partition("/")[0] for name in names if name not in from_measures):
            if metric in AGGREGATES:
                scores[metric] = aggregate(metric, of_classes, task=self.spec.task, classes=classes)
            else:
                ratios = totals.ratio(metric).T
                scores |= {f"{metric}/{region}": ratio for region, ratio in zip(self.run.regions, ratios, strict=True)}
        return np.stack([scores[name] for name in names], axis=1) if names else np.empty((len(sums), 0))

    def choose(self, keys: Sequence[Key], other: "Scoreboard | None" = None) -> ScoreColumns:
        """Choose S scores: scores of the data set, and means over the cases that have a value, in `other` too.

        An infinite value counts even if the other is undefined, as if a run predicts an object that isn't there.
        """
        dataset, means = ([name for kind, name in keys if kind == wanted] for wanted in ("dataset", "per_case"))
        computed = [*(("dataset", name) for name in dataset), *(("per_case", name) for name in means)]
        order = [computed.index(key) for key in keys]
        width = self.columns.width if dataset else 0

        def make(index: int) -> FloatArray:
            """Do what `mean_columns` does, one column at a time."""
            kind, mean = divmod(index, len(means))
            values = self.values(means[mean])
            if other is not None:
                values = np.where(np.isnan(other.values(means[mean])) & ~np.isinf(values), np.nan, values)
            if kind == 0:
                return np.where(np.isfinite(values), values, 0.0)
            return (~np.isnan(values) if kind == 1 else np.isinf(values)).astype(np.float64)

        def score(sums: FloatArray) -> FloatArray:
            of_dataset = self.score(sums[:, :width], dataset)
            scores = np.concatenate([[np.zeros_like(of_dataset), of_dataset], split_means(sums[:, width:])], axis=2)
            return np.take(scores, order, axis=2)  # in C order: the last bits of sums over resamples depend on it

        mean_sums = Columns(count=len(self.run.case_ids), shape=(3 * len(means),), dtype=np.dtype(float), make=make)
        return ScoreColumns(Columns.join(*([self.columns] if dataset else []), mean_sums), score)

    def resample(
        self, columns: Columns | NDArray[Any], statistic: Statistic, *, test: bool = False, units: bool = False
    ) -> Resampled:
        """Resample the cases or clusters for the intervals of a statistic of sums, with the configured method.

        Parameters
        ----------
        columns, statistic, test
            As for `bootstrap`.
        units
            Whether the rows of `columns` are units already instead of cases.
        """
        config = self.config
        return bootstrap_columns(
            columns if isinstance(columns, Columns) else Columns.of(columns),
            statistic,
            resamples=config.bootstrap,
            seed=config.seed,
            interval=config.interval,
            clusters=None if units else self.clusters,
            test=test,
        )


def side_by_side(*choices: ScoreColumns) -> tuple[Columns, Callable[[FloatArray], list[FloatArray]]]:
    """Join the columns of several choices. The function turns their sums into the scores of each choice."""
    ends = np.cumsum([choice.columns.width for choice in choices])[:-1]

    def score(sums: FloatArray) -> list[FloatArray]:
        parts = np.split(sums, ends, axis=1)
        return [choice.score(np.ascontiguousarray(part)) for choice, part in zip(choices, parts, strict=True)]

    return Columns.join(*(choice.columns for choice in choices)), score


def build_scoreboards(
    runs: Mapping[str, RunColumns], spec: ClassSpec, config: MetricsConfig
) -> tuple[dict[str, Scoreboard], list[str]]:
    """Lay out the scores that all runs have, and list the columns of measures that only some runs have.

    Parameters
    ----------
    runs
        Name of a run to its cases, ordered by id.
    spec
        The classes of all runs.
    config
        Background, groups, and the measures that the runs were measured by.
    """
    measures = build_measures(config, spec)
    classes = mean_classes(config, spec)
    class_names = [spec.names[k] for k in classes]
    values, sums = dict[str, dict[Name, FloatArray]](), dict[str, dict[Name, FloatArray]]()
    for run, columns in runs.items():
        by_kind: tuple[dict[Name, FloatArray], ...] = ({}, {})
        for (metric, region, summed), column in columns.measured.items():
            by_kind[summed][metric, region] = column
        values[run], sums[run] = _with_means(by_kind[0], class_names), by_kind[1]
    all_names = dict.fromkeys(name for measured in values.values() for name in measured)
    shared = [name for name in all_names if all(name in measured for measured in values.values())]
    shared_sums = [name for name in next(iter(sums.values())) if all(name in summed for summed in sums.values())]
    measure_scores = _score_sums(measures, {name: np.zeros(1) for name in shared_sums}, class_names)
    by_region = (f"{name}/{region}" for name in PER_REGION for region in next(iter(runs.values())).regions)
    from_measures = ("/".join(name) for name in shared if name[0] not in CONTENT)
    names_per_case = list(dict.fromkeys([*PER_CASE, *by_region, *from_measures]))
    headline = headline_of(config, spec)
    if headline not in names_per_case:
        headline = choose_headline(spec.task, spec.names, objects=False)
    boards = dict[str, Scoreboard]()
    for run, columns in runs.items():
        case_scores = np.empty((len(PER_CASE), len(columns.case_ids)))
        for start in range(0, case_scores.shape[1], _CASES):
            part = slice(start, start + _CASES)
            totals = columns.totals(spec.names, part)
            case_scores[:, part] = [aggregate(name, totals, task=spec.task, classes=classes) for name in PER_CASE]
        boards[run] = Scoreboard(
            run=columns,
            spec=spec,
            config=config,
            measured={name: values[run][name] for name in shared},
            sums={name: np.nan_to_num(sums[run][name]) for name in shared_sums},
            measures=measures,
            case_scores=dict(zip(PER_CASE, case_scores, strict=True)),
            mean_classes=class_names,
            measure_scores=["/".join(name) for name in measure_scores],
            names_per_case=names_per_case,
            headline=headline,
        )
    return boards, ["/".join(name) for name in all_names if name not in shared and name[0] not in CONTENT]


def _score_sums(
    measures: Sequence[Measure], sums: Mapping[Name, FloatArray], class_names: Sequence[str]
) -> dict[Name, FloatArray]:
    """Compute scores (R,) of measures from their sums (R,), with means over classes."""
    scores = dict[Name, FloatArray]()
    for measure in measures:
        scores |= measure.summarise(sums)
    return _with_means(scores, class_names)


def build_scoreboard(rows: Sequence[CaseRow], spec: ClassSpec, config: MetricsConfig) -> Scoreboard:
    """Lay out the scores of a run from its rows, which are ordered by case id."""
    return build_scoreboards({"run": lay_out_run(rows, spec, config.groups)}, spec, config)[0]["run"]


def probe_scores(config: MetricsConfig, spec: ClassSpec) -> Scoreboard:
    """Make the scoreboard of a small empty map, which lists the scores of a run before its first case is measured."""
    planes = (spec.num_classes,) if spec.is_multilabel else ()
    empty = np.zeros((*planes, _PROBE, _PROBE), spec.label_dtype)
    maps = CaseMaps(case_id="probe", target=empty, labels=empty, spacing=(1.0, 1.0), spec=spec)
    return build_scoreboard([make_row(maps, build_measures(config, spec))], spec, config)


def settle_headline(config: MetricsConfig, spec: ClassSpec) -> MetricsConfig:
    """Write the headline's full name into the configuration, before the first case is measured.

    Raises
    ------
    ConfigError
        `metrics.headline` names a score that the cases will not have.
    """
    if config.headline is None:
        return config.replace(headline=headline_of(config, spec))
    names = [name for name in probe_scores(config, spec).names_per_case if find_direction(name)]
    for name in (config.headline, f"{config.headline}/{MEAN}"):
        if name in names:
            return config.replace(headline=name)
    remedy = nearest(config.headline, dict.fromkeys(name.removesuffix(f"/{MEAN}") for name in names))
    raise ConfigError(expected("metrics", "headline", "to be a score of each case", repr(config.headline), remedy))


def _with_means(values: Mapping[Name, FloatArray], class_names: Sequence[str]) -> dict[Name, FloatArray]:
    """Append the mean over classes of each metric after its classes; numbers of objects have none."""
    by_metric: dict[str, dict[str, FloatArray]] = {}
    for (metric, region), column in values.items():
        by_metric.setdefault(metric, {})[region] = column
    complete: dict[Name, FloatArray] = {}
    for metric, regions in by_metric.items():
        complete |= {(metric, region): column for region, column in regions.items()}
        classes = [column for region, column in regions.items() if region in class_names]
        if classes and not is_number(metric):
            complete[metric, MEAN] = mean_defined(np.stack(classes, axis=-1))
    return complete
