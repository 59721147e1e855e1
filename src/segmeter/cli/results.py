"""Settles the metrics of an evaluation before it starts, and records its results when it is finished.

The first result is the one by which a sweep compares jobs. `better` says in which direction it gets better.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from segmeter.checks import expected, nearest
from segmeter.classes import ClassSpec
from segmeter.cli.run_folder import note_done
from segmeter.errors import ConfigError
from segmeter.metrics.config.metrics import MetricsConfig, check_metrics, with_objects
from segmeter.metrics.config.scores import MEAN, Direction, find_direction
from segmeter.metrics.summary.scoreboard import probe_scores, settle_headline
from segmeter.report.config import ReportConfig
from segmeter.report.figures import AGGREGATES, aggregates, score_row


def results(summary: Mapping[str, Any], objective: str | None) -> dict[str, float | None]:
    """Return the results of an evaluation for run.json. The result that a sweep compares comes first.

    Parameters
    ----------
    summary
        The content of metrics.json.
    objective
        A metric as named by `find_objective`; None means the headline.
    """
    rows = {row["name"]: row for row in aggregates(summary)}
    first = next(iter(rows))
    if objective is None and find_direction(rows[first]["score"]) == "lower":
        objective = rows.pop(first)["score"]  # this name tells a sweep that lower is better
    if objective is not None:
        rows = {objective: score_row(summary, objective)} | rows
    # the score of the data set if there is one, otherwise the mean over cases
    return {name: as_number(row["mean"] if row["dataset"] is None else row["dataset"]) for name, row in rows.items()}


def record_results(
    folder: Path, summary: Mapping[str, Any], report: ReportConfig, objective: str | None = None
) -> float | None:
    """Record the results of an evaluation, write its HTML report, and return the score that a sweep compares.

    Parameters
    ----------
    summary
        The content of metrics.json; empty for predictions that were not measured.
    """
    scores = results(summary, objective) if summary else {}
    note_done(folder, scores)
    if report.html:
        from segmeter.report.html import write_report  # imported only here, so that a run without a report is faster

        write_report(folder, report)
    return next(iter(scores.values()), None)


def as_number(value: Any) -> float | None:
    """Return a number from JSON, where infinity is written as text."""
    return float(value) if value in ("inf", "-inf") else value


def settle_metrics(metrics: MetricsConfig, spec: ClassSpec, *, instances: object) -> MetricsConfig:
    """Add measures of objects to the settings of metrics if files hold objects, check them, and set the headline."""
    metrics = with_objects(metrics) if instances else metrics
    check_metrics(metrics, spec)
    return settle_headline(metrics, spec)


def find_objective(objective: str | None, metrics: MetricsConfig, spec: ClassSpec) -> str | None:
    """Return the full name of the metric that a sweep compares. It is checked before anything is measured.

    Raises
    ------
    ConfigError
        The metric will not be measured; the line has the nearest name.
    """
    if objective is None or objective in AGGREGATES:
        return objective
    board = probe_scores(metrics, spec)
    known = list(dict.fromkeys([*AGGREGATES, *map("/".join, board.measured), *board.measure_scores]))
    for name in (objective, f"{objective}/{MEAN}"):
        if name in known:
            return name
    short_names = dict.fromkeys(name.removesuffix(f"/{MEAN}") for name in known)
    remedy = nearest(objective, short_names) if metrics.measures else "Set metrics.measures, for example [surface]."
    raise ConfigError(expected("config", "objective", "to be a metric that is measured", repr(objective), remedy))


def better(objective: str | None) -> Direction | None:
    """Tell whether "higher" or "lower" is better; None for a metric of the user's own.

    Examples
    --------
    >>> better(None), better("hd95/car"), better("loss"), better("mine")
    ('higher', 'lower', 'lower', None)
    """
    if objective is None:
        return "higher"  # a headline such as IoU or PQ gets better upwards
    return "lower" if objective == "loss" else find_direction(objective)
