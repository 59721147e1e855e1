"""Numbers -> positions of what a chart draws; the page's template turns them into SVG, so that it escapes all text."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

Row = Mapping[str, Any]
Point = tuple[float, float | None]

WIDTH, HEIGHT = 520.0, 190.0  # of the plotted area, SVG units
MOST_POINTS = 600  # of one line; longer ones are thinned evenly
MOST_CURVES = 4  # of calibration in one chart
_PLACE = ("step", "epoch", "seconds")  # where a row stands, not what it measures
_HEAT_SIDE = 600.0
_BINS = 20
_RING = "m-3 0a3 3 0 1 0 6 0a3 3 0 1 0 -6 0"  # around a point without a neighbour, which no line would show


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One non-empty cell of a confusion matrix; `share` is of its row, in [0, 1]."""

    row: int
    column: int
    count: int
    share: float


@dataclass(frozen=True, kw_only=True)
class Heat:
    """A confusion matrix as drawn: cells of `side` units, empty ones left out."""

    names: list[str]
    side: float
    cells: list[Cell]


@dataclass(frozen=True, kw_only=True)
class Line:
    """One curve: its SVG path, and the figure beside its name, such as its last value."""

    name: str
    path: str
    last: float | None


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Curves on common axes; ticks are (position, text)."""

    title: str
    lines: list[Line]
    x_ticks: list[tuple[float, str]]
    y_ticks: list[tuple[float, str]]


def heat_map(matrix: Sequence[Sequence[int]], names: Sequence[str]) -> Heat:
    """Lay out a confusion matrix, rows = target, each cell as share of its row."""
    cells = [
        Cell(row=i, column=j, count=count, share=count / sum(row))
        for i, row in enumerate(matrix)
        for j, count in enumerate(row)
        if count
    ]
    return Heat(names=list(names), side=min(46.0, _HEAT_SIDE / len(names)), cells=cells)


def histogram(scores: Sequence[float]) -> list[tuple[float, float, int]]:
    """Bars (left edge in [0, 1], height relative to the highest, count) of scores in [0, 1]; 1 is in the last bar.

    Examples
    --------
    >>> [bar for bar in histogram([0.0, 0.01, 1.0]) if bar[2]]
    [(0.0, 1.0, 2), (0.95, 0.5, 1)]
    """
    counts = [0] * _BINS
    for score in scores:
        counts[min(int(score * _BINS), _BINS - 1)] += 1
    highest = max(counts) or 1
    return [(round(i / _BINS, 6), count / highest, count) for i, count in enumerate(counts)]


def curves(history: Sequence[Row]) -> list[Chart]:
    """One chart per measured name in a training history; training and validation of the same name share one.

    Parameters
    ----------
    history
        Rows of history.jsonl: numbers under names, those of validation one level down. What is not finite breaks the
        line.
    """
    series: dict[str, dict[str, list[Point]]] = {}
    for position, row in enumerate(history):
        x = float(row.get("step", position))
        for name, value in _numbers(row):
            measure = name.rpartition("/")[2]
            series.setdefault(measure, {}).setdefault(name, []).append((x, value))
    order = sorted(series, key=lambda measure: not any("/" in name for name in series[measure]))  # validation first
    charts = [_chart(measure, series[measure]) for measure in order]
    return [chart for chart in charts if chart is not None]


def calibration_charts(calibration: Mapping[str, Any]) -> list[Chart]:
    """What was said against what came true, and precision against recall, both from 0 to 1.

    Parameters
    ----------
    calibration
        The part of metrics.json of this name. Of many classes the curves are those with the lowest average precision.
    """
    entries = calibration["per_class"]
    sure = {"winning class": calibration} if calibration["reliability"] else entries
    said = {
        f"{name}, ECE": (entry["reliability"]["confidence"], entry["reliability"]["accuracy"], entry["ece"])
        for name, entry in list(sure.items())[:MOST_CURVES]
    }
    worst = sorted(
        (name for name in entries if entries[name]["average_precision"] is not None),
        key=lambda name: entries[name]["average_precision"],
    )[:MOST_CURVES]
    found = {
        f"{name}, AP": (
            entries[name]["curve"]["recall"],
            entries[name]["curve"]["precision"],
            entries[name]["average_precision"],
        )
        for name in worst
    }
    charts = [
        _unit_chart("share that came true, by probability", {"as said": ([0.0, 1.0], [0.0, 1.0], None)} | said),
        _unit_chart("precision, by recall", found),
    ]
    return [chart for chart in charts if chart.lines]


def _unit_chart(title: str, series: Mapping[str, tuple[Sequence[Any], Sequence[Any], float | None]]) -> Chart:
    """Curves (x, y, the figure to show with the name) on axes from 0 to 1; empty bins are left out."""
    marks = [i / 5 for i in range(6)]
    lines = []
    for name, (xs, ys, figure) in series.items():
        points = [(x, y) for x, y in zip(xs, ys, strict=True) if x is not None and y is not None]
        if points:
            line = _line(name, points, lambda x, y: (x * WIDTH, (1 - y) * HEIGHT))
            lines.append(replace(line, last=figure))
    return Chart(
        title=title,
        lines=lines,
        x_ticks=[(x * WIDTH, f"{x:g}") for x in marks],
        y_ticks=[((1 - y) * HEIGHT, f"{y:g}") for y in marks],
    )


def _numbers(row: Row, prefix: str = "") -> list[tuple[str, float | None]]:
    found: list[tuple[str, float | None]] = []
    for name, value in row.items():
        if isinstance(value, Mapping):
            found += _numbers(value, f"{prefix}{name}/")
        elif name not in _PLACE and not isinstance(value, bool) and (value is None or isinstance(value, int | float)):
            found.append((f"{prefix}{name}", value))
    return found


def _chart(title: str, series: Mapping[str, list[Point]]) -> Chart | None:
    values = [y for points in series.values() for _, y in points if y is not None and math.isfinite(y)]
    if not values:
        return None
    x_all = [x for points in series.values() for x, _ in points]
    x_ticks, y_ticks = ticks(min(x_all), max(x_all), most=6), ticks(min(values), max(values), most=5)
    x_low, x_high = min(x_all), max(x_all)
    y_low, y_high = min(y_ticks[0], *values), max(y_ticks[-1], *values)

    def place(x: float, y: float) -> tuple[float, float]:
        return _scale(x, x_low, x_high) * WIDTH, (1 - _scale(y, y_low, y_high)) * HEIGHT

    return Chart(
        title=title,
        lines=[_line(name, points, place) for name, points in series.items() if _drawable(points)],
        x_ticks=[(place(x, y_low)[0], f"{x:g}") for x in x_ticks if x_low <= x <= x_high],
        y_ticks=[(place(x_low, y)[1], f"{y:g}") for y in y_ticks],
    )


def _line(name: str, points: list[Point], place: Any) -> Line:
    stride = math.ceil(len(points) / MOST_POINTS)
    runs: list[list[str]] = [[]]
    for x, y in [*points[:-1:stride], points[-1]]:
        if y is None or not math.isfinite(y):
            runs.append([])
            continue
        left, top = place(x, y)
        runs[-1].append(f"{left:.1f} {top:.1f}")
    parts = [f"M{run[0]}{_RING}" if len(run) == 1 else f"M{' L'.join(run)}" for run in runs if run]
    last = next(y for _, y in reversed(points) if y is not None and math.isfinite(y))
    return Line(name=name, path=" ".join(parts), last=last)


def _drawable(points: Sequence[Point]) -> bool:
    return any(y is not None and math.isfinite(y) for _, y in points)


def _scale(value: float, low: float, high: float) -> float:
    return (value - low) / (high - low) if high > low else 0.5


def ticks(low: float, high: float, *, most: int) -> list[float]:
    """Round numbers from at or below `low` to at or above `high`, about `most` of them at the most.

    Examples
    --------
    >>> ticks(0.12, 0.83, most=5)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    if high <= low:
        return [low]
    raw = (high - low) / (most - 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= raw * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{index * step:.12g}") for index in range(first, last + 1)]
