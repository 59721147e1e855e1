"""Gives every score of a run, per case and as one function of sums over cases, and resamples them.

No other module calls the bootstrap. Axis letters: N cases, C columns that are added up, R sums (one per resample), D
and V scores.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected, nearest
from segmeter.classes import ClassSpec
from segmeter.errors import ConfigError
from segmeter.metrics.arrays import FloatArray, IntArray, mean_defined
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.cases.typed import RunColumns, lay_out_run
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

Key = tuple[Literal["dataset", "per_case"], str]  # a score of the data set, or the mean over cases, and its name
# Columns (N, C), and a function from their sums (R, C) to S scores (2, R, S): the share of infinite values, which is 0
# for a score of the data set, and the score without them
Chosen = tuple[Columns, Callable[[FloatArray], FloatArray]]

_CASES = 1 << 12  # that are scored at a time
_PROBE = 16  # edge of the empty map that tells which scores measures give, pixels


@dataclass(frozen=True, kw_only=True)
class Scoreboard:
    """The scores of one run.

    They are called mean_iou, mean_dice, pixel_accuracy and so on, "iou/car" for a class or group of classes, and
    "<metric>/<class>" or "<metric>/mean" where measures give them. A score of the data set is a function of sums over
    cases; the mean over cases of a score is one of the sums of its values.

    Parameters
    ----------
    run
        N cases, ordered by id.
    spec, config
        Those by which the run was measured.
    measured
        Values per case (N,) of measures, with the means over classes.
    sums
        Columns (N,) of measures that are added up over cases.
    measures
        They turn the sums into scores.
    overall
        The scores of `PER_CASE` of each case (N,).
    counted
        The classes that means run over.
    further
        Scores of the data set from measures.
    per_case
        Scores that are compared and have a value per case, and so a mean over cases.
    headline
        The score that the run is judged by; without the configured one, that of the counts.
    """

    run: RunColumns
    spec: ClassSpec
    config: MetricsConfig
    measured: Mapping[Name, FloatArray]
    sums: Mapping[Name, FloatArray]
    measures: tuple[Measure, ...]
    overall: Mapping[str, FloatArray]
    counted: list[str]
    further: list[str]
    per_case: list[str]
    headline: str

    @cached_property
    def whole(self) -> list[str]:
        """Scores of the data set that are compared."""
        return [*PER_CASE, *(f"{name}/{region}" for name in PER_REGION for region in self.run.regions), *self.further]

    @property
    def keys(self) -> list[Key]:
        """The scores of the data set, then the means over cases, that are compared."""
        return [*(("dataset", name) for name in self.whole), *(("per_case", name) for name in self.per_case)]

    def key(self, name: str) -> Key:
        """Return a score of the data set where there is one of this name, else the mean over cases."""
        return ("dataset" if name in self.whole else "per_case", name)

    @property
    def names(self) -> list[str]:
        """All scores that are compared."""
        return list(dict.fromkeys([*self.per_case, *self.whole]))

    def worst_first(self, name: str | None = None) -> IntArray:
        """Return indices of cases with a score, by default the headline, worst first; ties keep the order of ids."""
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
        if name in self.overall:
            return self.overall[name]
        if (metric, region) in self.measured:
            return self.measured[metric, region]
        return self.run.totals(region).ratio(metric)

    @cached_property
    def columns(self) -> Columns:
        """Columns (N, C) whose sums give the scores of the data set: margins of regions, then sums of measures."""
        held = [*(part[:, k] for part in self.run.margins for k in range(len(self.run.regions))), *self.sums.values()]
        dtype: np.dtype[Any] = np.dtype(np.float64 if self.sums else np.int64)
        return Columns(
            count=len(self.run.case_ids),
            shape=(len(held),),
            dtype=dtype,
            make=lambda place: held[place].astype(dtype, copy=False),
        )

    def score(self, sums: NDArray[Any], names: Sequence[str]) -> FloatArray:
        """Compute scores of the data set (R, D) from sums (R, C) of `columns`."""
        width, found = 4 * len(self.run.regions), dict[str, FloatArray]()
        margins = ClassTotals.from_columns(sums[:, :width])
        own = margins.map(lambda part: part[..., : self.spec.num_classes])  # without the groups
        classes = mean_classes(self.config, self.spec)
        further = set(names) & set(self.further)
        if further:
            own_sums = dict(zip(self.sums, np.asarray(sums[:, width:], np.float64).T, strict=True))
            measured = _score_sums(self.measures, own_sums, self.counted)
            found = {"/".join(name): score for name, score in measured.items()}
        for metric in dict.fromkeys(name.partition("/")[0] for name in names if name not in further):
            if metric in AGGREGATES:
                found[metric] = aggregate(metric, own, task=self.spec.task, classes=classes)
            else:
                ratios = margins.ratio(metric).T
                found |= {f"{metric}/{region}": ratio for region, ratio in zip(self.run.regions, ratios, strict=True)}
        return np.stack([found[name] for name in names], axis=1) if names else np.empty((len(sums), 0))

    def choose(self, keys: Sequence[Key], other: "Scoreboard | None" = None) -> Chosen:
        """Choose S scores, those of the data set and means over the cases that have a value, in `other` too.

        An infinite value counts even if the other one is undefined, for example if a run predicts an object that isn't
        there.
        """
        whole, means = ([name for kind, name in keys if kind == wanted] for wanted in ("dataset", "per_case"))
        listed = [*(("dataset", name) for name in whole), *(("per_case", name) for name in means)]
        order, width = [listed.index(key) for key in keys], self.columns.width if whole else 0

        def make(place: int) -> FloatArray:
            """Do what `mean_columns` does, one column at a time."""
            kind, number = divmod(place, len(means))
            values = self.values(means[number])
            if other is not None:
                values = np.where(np.isnan(other.values(means[number])) & ~np.isinf(values), np.nan, values)
            if kind == 0:
                return np.where(np.isfinite(values), values, 0.0)
            return (~np.isnan(values) if kind == 1 else np.isinf(values)).astype(np.float64)

        def parts(sums: FloatArray) -> FloatArray:
            scores = self.score(sums[:, :width], whole)
            found = np.concatenate([[np.zeros_like(scores), scores], split_means(sums[:, width:])], axis=2)
            return np.take(found, order, axis=2)  # in C order: the last bits of sums over resamples depend on it

        count, shape = len(self.run.case_ids), (3 * len(means),)
        averaged = Columns(count=count, shape=shape, dtype=np.dtype(np.float64), make=make)
        return Columns.join(*([self.columns] if whole else []), averaged), parts

    def resample(
        self, columns: Columns | NDArray[Any], statistic: Statistic, *, test: bool = False, units: bool = False
    ) -> Resampled:
        """Find the intervals of a statistic of sums, as the configuration says.

        Parameters
        ----------
        columns, statistic, test
            As for `bootstrap`.
        units
            Whether the rows of `columns` are units already, and not cases.
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


def side_by_side(*chosen: Chosen) -> tuple[Columns, Callable[[FloatArray], list[FloatArray]]]:
    """Join the columns of several choices. The function turns their sums into the scores of each choice."""
    ends = np.cumsum([columns.width for columns, _ in chosen])[:-1]

    def scores(sums: FloatArray) -> list[FloatArray]:
        split = np.split(sums, ends, axis=1)
        return [parts(np.ascontiguousarray(own)) for (_, parts), own in zip(chosen, split, strict=True)]

    return Columns.join(*(columns for columns, _ in chosen)), scores


def build_scoreboards(
    runs: Mapping[str, RunColumns], spec: ClassSpec, config: MetricsConfig
) -> tuple[dict[str, Scoreboard], list[str]]:
    """Lay out the scores that all runs have, and name the columns of measures that only some have.

    Parameters
    ----------
    runs
        Name of a run to its cases, ordered by id.
    spec
        The classes of all runs.
    config
        Background, groups, and the measures that the runs were measured by.
    """
    classes, measures = mean_classes(config, spec), build_measures(config, spec)
    counted = [spec.names[k] for k in classes]
    values, sums = dict[str, dict[Name, FloatArray]](), dict[str, dict[Name, FloatArray]]()
    for run, columns in runs.items():
        own: tuple[dict[Name, FloatArray], ...] = ({}, {})
        for (metric, region, summed), found in columns.measured.items():
            own[summed][metric, region] = found
        values[run], sums[run] = _with_means(own[0], counted), own[1]
    every = dict.fromkeys(name for found in values.values() for name in found)
    shared = [name for name in every if all(name in found for found in values.values())]
    added = [name for name in next(iter(sums.values())) if all(name in found for found in sums.values())]
    further = _score_sums(measures, {name: np.zeros(1) for name in added}, counted)
    scores = (f"{name}/{region}" for name in PER_REGION for region in next(iter(runs.values())).regions)
    kept = ("/".join(name) for name in shared if name[0] not in CONTENT)
    per_case, headline = list(dict.fromkeys([*PER_CASE, *scores, *kept])), headline_of(config, spec)
    if headline not in per_case:
        headline = choose_headline(spec.task, spec.names, objects=False)
    boards = dict[str, Scoreboard]()
    for run, columns in runs.items():
        overall = np.empty((len(PER_CASE), len(columns.case_ids)))
        for start in range(0, overall.shape[1], _CASES):
            part = slice(start, start + _CASES)
            margins = columns.totals(spec.names, part)
            overall[:, part] = [aggregate(name, margins, task=spec.task, classes=classes) for name in PER_CASE]
        boards[run] = Scoreboard(
            run=columns,
            spec=spec,
            config=config,
            measured={name: values[run][name] for name in shared},
            sums={name: np.nan_to_num(sums[run][name]) for name in added},
            measures=measures,
            overall=dict(zip(PER_CASE, overall, strict=True)),
            counted=counted,
            further=["/".join(name) for name in further],
            per_case=per_case,
            headline=headline,
        )
    return boards, ["/".join(name) for name in every if name not in shared and name[0] not in CONTENT]


def _score_sums(
    measures: Sequence[Measure], sums: Mapping[Name, FloatArray], counted: Sequence[str]
) -> dict[Name, FloatArray]:
    """Compute scores (R,) of measures from their sums (R,), with means over classes."""
    found = dict[Name, FloatArray]()
    for measure in measures:
        found |= measure.summarise(sums)
    return _with_means(found, counted)


def build_scoreboard(rows: Sequence[CaseRow], spec: ClassSpec, config: MetricsConfig) -> Scoreboard:
    """Lay out the scores of a run from its rows, which are ordered by case id."""
    return build_scoreboards({"run": lay_out_run(rows, spec, config.groups)}, spec, config)[0]["run"]


def known_scores(config: MetricsConfig, spec: ClassSpec) -> Scoreboard:
    """Make the scoreboard of a small empty map: it names all scores that will be measured, before the first case is."""
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
    known = [name for name in known_scores(config, spec).per_case if find_direction(name)]
    for name in (config.headline, f"{config.headline}/{MEAN}"):
        if name in known:
            return config.replace(headline=name)
    remedy = nearest(config.headline, dict.fromkeys(name.removesuffix(f"/{MEAN}") for name in known))
    raise ConfigError(expected("metrics", "headline", "to be a score of each case", repr(config.headline), remedy))


def _with_means(values: Mapping[Name, FloatArray], counted: Sequence[str]) -> dict[Name, FloatArray]:
    """Append the mean over classes of each metric after its classes; numbers of objects have none."""
    by_metric: dict[str, dict[str, FloatArray]] = {}
    for (metric, region), found in values.items():
        by_metric.setdefault(metric, {})[region] = found
    complete: dict[Name, FloatArray] = {}
    for metric, regions in by_metric.items():
        complete |= {(metric, region): found for region, found in regions.items()}
        classes = [found for region, found in regions.items() if region in counted]
        if classes and not is_number(metric):
            complete[metric, MEAN] = mean_defined(np.stack(classes, axis=-1))
    return complete
