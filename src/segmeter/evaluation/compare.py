"""Compares finished runs on the same cases, from their rows alone. No torch."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from segmeter.checks import expected, nearest
from segmeter.classes import ClassSpec
from segmeter.data.files.refusals import known_place
from segmeter.errors import DataError, InputError
from segmeter.evaluation.pieces import find_runs
from segmeter.metrics.cases.nnunet import is_nnunet
from segmeter.metrics.cases.stored import open_cases, read_spec
from segmeter.metrics.config.measures import MEASURES
from segmeter.metrics.config.metrics import MetricsConfig, check_metrics, headline_of, mean_classes
from segmeter.metrics.summary.compare import SCHEMA, compare_laid_out, lay_out
from segmeter.metrics.summary.summarise import count_effective, note_resampling
from segmeter.records import Summary, read_json

_CONVENTION, _CLUSTER = "metrics.convention", "metrics.cluster"
_MEANS = "classes in means (metrics.background)"
_REMEDIES = {
    _CLUSTER: "Set metrics.cluster for the comparison.",
    _MEANS: "Set metrics.background as it was in the runs; if they differ, measure one again.",
}
_DATE = re.compile(r"^\d{4}-\d{2}-\d{2}_\d{6}_(?=.)")


def compare(
    folders: Sequence[Path], config: MetricsConfig, *, rank_by: str | None = None, require: Sequence[str] = ()
) -> dict[str, Any]:
    """Compare evaluations that saw the same cases, classes and references.

    Parameters
    ----------
    folders
        Run folders of `eval` or `score`, or nnU-Net's summary.json, two or more. The first of each pair is the base.
    config
        Convention, background, bootstrap, interval, cluster and seed. Keys that change a score must have the runs'
        values. Measures come from the runs, and so do clusters and groups unless given.
    rank_by
        The metric that orders the runs: a name of ``metrics`` in the result; "pq" is short for "pq/mean". None is the
        headline.
    require
        Requirements for the new run of two, see `compare_runs`.

    Returns
    -------
    dict
        The content of compare.json: the result of `segmeter.metrics.summary.compare.compare_runs`, with ``schema``,
        ``convention``, the classes' `ClassSpec.meaning`, ``folders``, ``bootstrap``, ``rank_by`` (the metric),
        ``order`` (the runs, best first), and ``other_orders``: the metrics that order them in another way.

    Raises
    ------
    DataError
        A folder is not a finished evaluation.
    InputError
        The runs differ in cases, classes, convention, references, clusters or settings of measures, with one line per
        difference. Or they can't be ranked by `rank_by`.
    """
    named, spec, config = read_runs(folders, config)
    laid_out = lay_out({name: open_cases([folder]) for name, folder in named.items()}, spec, config, require=require)
    boards = list(laid_out.boards.values())
    counts_by_run = [count_effective(board) for board in boards]
    compared = compare_laid_out(laid_out)
    least = {name: min(counts[name] or np.inf for counts in counts_by_run) for name in spec.names}
    return {
        "schema": SCHEMA,
        "convention": config.convention,
        **spec.meaning,
        "mean_classes": boards[0].mean_classes,
        "folders": {name: known_place(folder) for name, folder in named.items()},
        **order_runs(compared["metrics"], rank_by or headline_of(config, spec)),
        **compared,
        "bootstrap": note_resampling(boards[0], least),
    }


def read_runs(
    folders: Sequence[Path], config: MetricsConfig, *, least: int = 2
) -> tuple[dict[str, Path], ClassSpec, MetricsConfig]:
    """Name finished runs, `least` or more, and find the classes and settings that all of them share.

    Returns
    -------
    tuple
        Folders by name, the classes, and `config` with the clusters, measures, groups and headline of the runs.

    Raises
    ------
    DataError
        A folder is not a finished evaluation.
    InputError
        There are too few, a folder is given twice, or the runs differ in classes, convention, clusters or settings of
        measures.
    """
    resolved = find_runs("compare", folders, keep=lambda name: not name.startswith(("predictions/", "overlays/")))
    if len(resolved) < least:
        remedy = "Write runs=[A,B]."
        raise InputError(expected("compare", "runs", "to be two or more run folders", len(resolved), remedy))
    named = dict(zip(short_names(resolved), resolved, strict=True))
    summaries = {name: _summary(folder, config) for name, folder in named.items()}
    specs = {name: read_spec(folder) for name, folder in named.items()}
    first, spec = next(iter(specs.items()))
    settings_by_run = {
        name: {settings["name"]: settings for settings in run.get("measure_settings", ())}
        for name, run in summaries.items()
    }
    shared = [measure for measure in settings_by_run[first] if all(measure in run for run in settings_by_run.values())]
    measures = [settings_by_run[first][measure] for measure in shared if measure in MEASURES.names()]
    problems = _differences({name: classes.meaning for name, classes in specs.items()}, {})
    if not problems:
        asked = {_CONVENTION: config.convention, _MEANS: [spec.names[k] for k in mean_classes(config, spec)]}
        facts = {
            name: {
                _CONVENTION: run["convention"],
                _MEANS: run.get("mean_classes", list(spec.names)),
                **({} if config.cluster else {_CLUSTER: run["bootstrap"]["cluster"]}),
                **{
                    f"metrics.measures.{measure}.{key}": value
                    for measure in shared
                    for key, value in settings_by_run[name][measure].items()
                },
            }
            for name, run in summaries.items()
        }
        problems = _differences(facts, asked)
    if problems:
        raise InputError(problems)
    config = _inherit(list(summaries.values()), config, measures)
    check_metrics(config, spec)
    return named, spec, config


def _differences(facts: Mapping[str, Mapping[str, Any]], asked: Mapping[str, Any]) -> list[str]:
    """Name what runs don't share with the first run, or with the settings requested for all."""
    first, first_facts = next(iter(facts.items()))
    return [
        expected(
            "compare",
            "runs",
            f"to have the same {what}, as {'this comparison' if what in asked else repr(first)} with {_shown(value)}",
            f"{_shown(run_facts.get(what))} in {name!r}",
            _REMEDIES.get(what, ""),
        )
        for name, run_facts in facts.items()
        for what, value in {**first_facts, **asked}.items()
        if run_facts.get(what) != value
    ]


def _inherit(
    summaries: Sequence[Mapping[str, Any]], config: MetricsConfig, measures: Sequence[Mapping[str, Any]]
) -> MetricsConfig:
    """Take the runs' shared measures, and their clusters, groups and headline where the configuration has none."""
    headlines = {run.get("headline_score") for run in summaries}
    groups = [{name: tuple(group["classes"]) for name, group in run.get("per_group", {}).items()} for run in summaries]
    return config.replace(
        headline=config.headline or (headlines.pop() if len(headlines) == 1 else None),
        cluster=config.cluster or summaries[0]["bootstrap"]["cluster"],
        measures=tuple(
            MEASURES.schema(settings["name"])(
                **{k: tuple(v) if isinstance(v, list) else v for k, v in settings.items()}
            )
            for settings in measures
        ),
        groups=config.groups
        or {name: classes for name, classes in groups[0].items() if all(run.get(name) == classes for run in groups)},
    )


def short_names(places: Sequence[Path]) -> list[str]:
    """Name places by their last part, without a run's date if the names still differ; otherwise by their path."""
    names = [str(place) for place in places]
    last_parts = [path.parent.name if is_nnunet(path) else path.name for path in places]
    for shorter in (last_parts, [_DATE.sub("", name) for name in last_parts]):
        names = shorter if len(set(shorter)) == len(places) else names
    return names


def _summary(folder: Path, config: MetricsConfig) -> Mapping[str, Any]:
    """Read metrics.json; nnU-Net's summary has only counts, which follow any convention."""
    if is_nnunet(folder):
        names = list(read_spec(folder).names)
        return {"convention": config.convention, "bootstrap": {"cluster": None}, "mean_classes": names}
    path = folder / "metrics.json"
    remedy = "Give the folder of a finished `segmeter eval` or `segmeter score`."
    if not path.is_file():
        raise DataError(expected("compare", "runs", "to hold metrics.json", f"{folder}, which has none", remedy))
    summary = read_json(path, Summary)
    if not {"convention", "bootstrap"} <= summary.keys():
        raise DataError(expected("compare", "runs", "to hold a summary in metrics.json", str(path), remedy))
    return summary


def order_runs(metrics: Mapping[str, Mapping[str, Any]], rank_by: str, *, key: str = "rank_by") -> dict[str, Any]:
    """Order the runs by one metric, and find the other metrics that disagree.

    Raises
    ------
    InputError
        `rank_by`, which the user gave as `key`, is not a metric of all runs.
    """
    ranked = {name: entry["ranking"]["order"] for name, entry in metrics.items() if entry["ranking"]}
    chosen = rank_by if rank_by in ranked else f"{rank_by}/mean"
    if chosen not in ranked:
        rule = "to be a metric of all runs whose better direction is known"
        raise InputError(expected("compare", key, rule, repr(rank_by), nearest(rank_by, ranked)))
    ranks = metrics[chosen]["ranking"]["ranks"]
    other_orders = {}
    for name, order in ranked.items():
        other_ranks = metrics[name]["ranking"]["ranks"]
        # Two metrics disagree if they order a pair of runs in opposite ways; a tie in either is no disagreement
        if any((ranks[a] - ranks[b]) * (other_ranks[a] - other_ranks[b]) < 0 for a in ranks for b in ranks):
            other_orders[name] = order
    return {"rank_by": chosen, "order": ranked[chosen], "other_orders": other_orders}


def _shown(value: Any) -> str:
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value))
    return "none" if value is None else str(value)
