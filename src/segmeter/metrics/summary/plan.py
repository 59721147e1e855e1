"""Turns the spread of a pilot into the number of cases that are needed, and writes the content of plan.json."""

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from pydantic import BaseModel, Field

from segmeter.metrics.arrays import json_number, json_number_or_inf
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.config.scores import find_direction
from segmeter.metrics.statistics.planning import LEAST_EFFECTIVE, Pilot

SCHEMA = 1
MORE = 10  # more cases, whose gain every answer names
_CURVE = 40  # points of the law


class Needed(BaseModel):
    """The number of cases for one aim, a width or a power."""

    aim: float
    """The width or power that was asked for."""
    now: float | None
    """The same in the pilot; null if it is not known."""
    after_10_more: float | None
    """The same with ten more cases, or clusters."""
    units: int | None
    """Units (cases or clusters) that reach the aim; null if ten million do not."""
    units_ci95: list[int | None] | None
    """Its 95 % interval: null without one; an end is null if ten million units do not reach the aim."""
    cases: int | None
    """Cases of these units, if clusters stay as large as in the pilot."""
    extrapolated: bool
    """Whether that is more than the pilot has, so that the answer comes from the root law."""


class Point(BaseModel):
    """One point of the curve."""

    units: int
    width: float
    width_ci95: list[float] | None = None
    """The widths of the smallest and largest spread that fit the pilot."""
    power: float | None = None
    drawn_width: float | None = None
    """Median width in data sets of this size that were drawn from the pilot; null if none were."""
    drawn_power: float | None = None


class PlanRow(BaseModel):
    """The plan for one score."""

    score: str
    kind: str
    """"dataset" for a score of sums over all cases, "per_case" for the mean of the cases' values."""
    slice: dict[str, str] | None = None
    """``by`` and ``value`` of the slice; null for all cases."""
    better: str | None
    estimate: float | str | None
    """The pilot's score, or the difference of its runs, new minus base."""
    pilot_width: float | None
    """Width of the pilot's own interval."""
    n_cases: int | None
    n_units: int | None
    """Cases or clusters of the pilot; null for published results without their number of cases."""
    effective: float | None
    """Kish's number of units of a score of sums, allowing for the rare large ones that a pilot seldom contains."""
    design_effect: float | None = None
    """How many times as many cases clusters need as independent cases would; null without clusters."""
    width: Needed | None
    power: Needed | None
    cannot_tell: str | None
    """Why the pilot can't answer; null if it does."""
    ask_again: int | None
    """The number of units at which to plan again; null if that is not known."""
    curve: list[Point]


class Plan(BaseModel):
    """The content of plan.json."""

    schema_number: int = Field(SCHEMA, alias="schema")
    runs: dict[str, str]
    """Name of each run to its folder; the base first."""
    cluster: str | None
    width: float | None
    detect: float | None
    power: float
    rows: list[PlanRow]


@dataclass(frozen=True, kw_only=True)
class Aims:
    """The aims: the width of the 95 % interval, or a difference to detect with some power, or both."""

    width: float | None = None
    detect: float | None = None
    power: float = 0.8


def plan_published(
    *, mean: float | None, sd: float, cases: int | None, config: MetricsConfig, aims: Aims
) -> dict[str, Any]:
    """Find how many cases a mean over cases needs, given only its mean and standard deviation.

    Parameters
    ----------
    mean, sd
        Of the cases' values; for `aims.detect`, of the paired differences.
    cases
        The number of cases behind them; None takes `sd` as exact, and gives no interval.
    config
        How intervals are computed.
    aims
        The width, or the difference to detect.

    Returns
    -------
    dict
        A `Plan` of one row.
    """
    given = math.nan if mean is None else mean
    pilot = Pilot.published(mean=given, sd=sd, cases=cases, interval=config.interval)
    return make_plan([plan_row(pilot, aims, score="published", kind="per_case", n_cases=cases)], {}, None, aims)


def make_plan(rows: list[PlanRow], runs: dict[str, str], cluster: str | None, aims: Aims) -> dict[str, Any]:
    """Return the content of plan.json as plain values."""
    found = Plan(runs=runs, cluster=cluster, rows=rows, width=aims.width, detect=aims.detect, power=aims.power)
    return found.model_dump(by_alias=True)


def plan_row(
    pilot: Pilot, aims: Aims, points: Mapping[int, tuple[float | None, float | None]] | None = None, **known: Any
) -> PlanRow:
    """Answer for one score, or say why the pilot can't.

    Parameters
    ----------
    points
        Median width and power of data sets that were drawn from the pilot, by their number of units.
    known
        The fields of the row that name the score and its cases.
    """
    reason, width, power, curve = _reason(pilot), None, None, list[Point]()
    if reason is None:
        n_cases, points = known["n_cases"], points or {}
        per_unit = n_cases / pilot.n_units if n_cases and pilot.n_units else 1.0
        if aims.width is not None:
            width = _needed(pilot, aims.width, pilot.width_of, operator.le, per_unit)
        if aims.detect is not None:
            power = _needed(pilot, aims.power, partial(pilot.power_of, aims.detect), operator.ge, per_unit)
        # the root law from 5 units to twice those needed, and the data sets drawn from the pilot
        last = max([50, *(2 * one.units for one in (width, power) if one is not None and one.units), *points])
        spreads = [] if pilot.n_units is None else [pilot.sigma_low, pilot.sigma_high]
        for n in sorted({*np.geomspace(5, last, _CURVE).astype(int).tolist(), *points}):
            drawn_width, drawn_power = points.get(n, (None, None))
            point = Point(
                units=n,
                width=pilot.width_of(n),
                width_ci95=[pilot.width_of(n, sigma) for sigma in spreads] or None,
                power=None if aims.detect is None else pilot.power_of(aims.detect, n),
                drawn_width=drawn_width,
                drawn_power=drawn_power,
            )
            curve.append(point)
    return PlanRow(
        **known,
        better=find_direction(known["score"]),
        estimate=json_number_or_inf(pilot.estimate),
        pilot_width=json_number(pilot.width),
        n_units=pilot.n_units,
        effective=None if pilot.effective is None else json_number(pilot.effective),
        width=width,
        power=power,
        cannot_tell=reason,
        ask_again=pilot.ask_again,
        curve=curve,
    )


def _reason(pilot: Pilot) -> str | None:
    """Explain why a pilot can't answer; None if it can."""
    if pilot.n_units is not None and not math.isfinite(pilot.width):
        return "the score is infinite, or fewer than 5 units have it, or it is undefined without one of them"
    if not pilot.sigma > 0:
        return "all units are equal, so it is not known how much they differ"
    if pilot.ask_again is not None and pilot.effective is not None:
        equal = math.floor(10 * pilot.effective) / 10  # 19.98 is not yet 20
        few = "large cases, including those that a pilot of this size seldom contains, outweigh the others"
        return f"{few}: all count like {equal} equal ones, and {LEAST_EFFECTIVE} are needed"
    return None


def _needed(
    pilot: Pilot, aim: float, measure: Callable[..., float], reaches: Callable[[float, float], bool], per_unit: float
) -> Needed:
    """Find the number of units with which `measure`, a function of number and spread, reaches the aim."""
    units, low, high = pilot.units_for(lambda n, sigma: reaches(measure(n, sigma), aim))
    now = pilot.n_units
    return Needed(
        aim=aim,
        now=None if now is None else measure(now),
        after_10_more=None if now is None else measure(now + MORE),
        units=units,
        units_ci95=None if now is None else [low, high],
        cases=None if units is None else math.ceil(units * per_unit),
        extrapolated=now is None or units is None or units > now,
    )
