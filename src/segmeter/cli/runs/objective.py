"""Finds the number of a finished evaluation by which a sweep compares jobs, and its better direction."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from segmeter.checks import expected, nearest
from segmeter.classes import ClassSpec
from segmeter.errors import ConfigError
from segmeter.metrics.cases.typed import class_regions, lay_out_run
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.config.scores import MEAN, Direction, find_direction
from segmeter.metrics.measures.protocol import CaseMaps, build_measures
from segmeter.metrics.measures.row import make_row
from segmeter.metrics.summary.scoreboard import build_scoreboards
from segmeter.report.figures import AGGREGATES, aggregates

_PROBE = 16  # pixels, edge of the empty map


def results(summary: Mapping[str, Any], objective: str | None) -> dict[str, float | None]:
    """The results of an evaluation for run.json. The one that a sweep compares comes first.

    Parameters
    ----------
    summary
        The content of metrics.json.
    objective
        A metric as named by `find_objective`; None means the headline.
    """
    headlines = {row["name"]: row["dataset"] for row in aggregates(summary)}
    return headlines if objective is None else {objective: _value(summary, objective)} | headlines


def _value(summary: Mapping[str, Any], objective: str) -> float | None:
    """The value of the whole data set if there is one, otherwise the mean over cases."""
    if objective in AGGREGATES:
        value = summary["dataset"][objective]
    else:
        metric, _, region = objective.partition("/")
        entry = summary["measures"].get(metric, {}).get(region, {})
        value = entry.get("dataset", entry.get("mean"))
    return float(value) if value in ("inf", "-inf") else value


def find_objective(objective: str | None, metrics: MetricsConfig, spec: ClassSpec) -> str | None:
    """The full name of the metric that a sweep compares, checked before anything is measured.

    Raises
    ------
    ConfigError
        The metric will not be measured; the line has the nearest name.
    """
    if objective is None or objective in AGGREGATES:
        return objective
    known = [*AGGREGATES, *_measured(metrics, spec)]
    for name in (objective, f"{objective}/{MEAN}"):
        if name in known:
            return name
    short = dict.fromkeys(name.removesuffix(f"/{MEAN}") for name in known)
    remedy = nearest(objective, short) if metrics.measures else "Set metrics.measures, for example [surface]."
    raise ConfigError(expected("config", "objective", "to be a metric that is measured", repr(objective), remedy))


def _measured(metrics: MetricsConfig, spec: ClassSpec) -> list[str]:
    """The names of all metrics that will be measured, found by measuring a small empty map."""
    planes = (spec.num_classes,) if spec.is_multilabel else ()
    empty = np.zeros((*planes, _PROBE, _PROBE), spec.label_dtype)
    maps = CaseMaps(case_id="probe", target=empty, labels=empty, spacing=(1.0, 1.0), spec=spec)
    rows = [make_row(maps, build_measures(metrics, spec))]
    run = lay_out_run(rows, spec, class_regions(spec, metrics.groups))
    board = build_scoreboards({"probe": run}, spec, metrics)[0]["probe"]
    return list(dict.fromkeys([*map("/".join, board.measured), *board.further]))


def better(objective: str | None) -> Direction | None:
    """Whether "higher" or "lower" is better; None for a metric of the user's own.

    Examples
    --------
    >>> better(None), better("hd95/car"), better("loss"), better("mine")
    ('higher', 'lower', 'lower', None)
    """
    if objective is None:
        return "higher"  # the headline is an IoU
    return "lower" if objective == "loss" else find_direction(objective)
