"""Computes the number of cases that are needed from the spread of a pilot, and makes the content of plan.json."""

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
MORE = 10  # every answer tells the gain of this many more cases
_CURVE_POINTS = 40  # points of the curve that the root law gives


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
    """The aims of a plan: the width of the 95 % interval, or a difference to detect with some power, or both."""

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
        Mean and standard deviation of the cases' values; for `aims.detect`, of the paired differences.
    cases
        The number of cases that they come from. With None, `sd` is taken as exact, and there are no intervals.
    config
        The settings of intervals.
    aims
        The width, or the difference to detect.

    Returns
    -------
    dict
        A `Plan` of one row.
    """
    estimate = math.nan if mean is None else mean
    pilot = Pilot.published(mean=estimate, sd=sd, cases=cases, interval=config.interval)
    return make_plan([plan_row(pilot, aims, score="published", kind="per_case", n_cases=cases)], {}, None, aims)


def make_plan(rows: list[PlanRow], runs: dict[str, str], cluster: str | None, aims: Aims) -> dict[str, Any]:
    """Return the content of plan.json as plain values."""
    plan = Plan(runs=runs, cluster=cluster, rows=rows, width=aims.width, detect=aims.detect, power=aims.power)
    return plan.model_dump(by_alias=True)


def plan_row(
    pilot: Pilot,
    aims: Aims,
    points: Mapping[int, tuple[float | None, float | None]] | None = None,
    *,
    score: str,
    kind: str,
    n_cases: int | None,
    slice: dict[str, str] | None = None,
    design_effect: float | None = None,
) -> PlanRow:
    """Plan for one score, or say why the pilot can't tell.

    Parameters
    ----------
    points
        Median width and power of data sets that were drawn from the pilot, by their number of units.
    score, kind, n_cases, slice, design_effect
        Fields of the row.
    """
    reason = _reason(pilot)
    width = power = None
    curve = list[Point]()
    if reason is None:
        points = points or {}
        per_unit = n_cases / pilot.n_units if n_cases and pilot.n_units else 1.0
        if aims.width is not None:
            width = _needed(pilot, aims.width, pilot.width_of, operator.le, per_unit)
        if aims.detect is not None:
            power = _needed(pilot, aims.power, partial(pilot.power_of, aims.detect), operator.ge, per_unit)
        # the curve goes from 5 units to twice those needed, and has a point for the data sets drawn from the pilot
        last = max([50, *(2 * needed.units for needed in (width, power) if needed and needed.units), *points])
        spreads = [] if pilot.n_units is None else [pilot.sigma_low, pilot.sigma_high]
        for n in sorted({*np.geomspace(5, last, _CURVE_POINTS).astype(int).tolist(), *points}):
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
        score=score,
        kind=kind,
        n_cases=n_cases,
        slice=slice,
        design_effect=design_effect,
        better=find_direction(score),
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
        cause = "large cases, including those that a pilot of this size seldom contains, outweigh the others"
        return f"{cause}: all count like {equal} equal ones, and {LEAST_EFFECTIVE} are needed"
    return None


def _needed(
    pilot: Pilot, aim: float, measure: Callable[..., float], reaches: Callable[[float, float], bool], per_unit: float
) -> Needed:
    """Find the number of units with which `measure`, a function of their number and spread, reaches the aim."""
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
