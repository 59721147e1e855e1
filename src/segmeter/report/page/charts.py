"""Numbers -> positions of what a chart draws; the page's template turns them into SVG, so that it escapes all text."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

Point = tuple[float, float | None]

WIDTH, HEIGHT = 520.0, 190.0  # of the plotted area, SVG units
MOST_POINTS = 600  # of one line; longer ones are thinned evenly
MOST_CURVES = 4  # of calibration in one chart
_RING = "m-3 0a3 3 0 1 0 6 0a3 3 0 1 0 -6 0"  # around a point without a neighbour, which no line would show


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
    axes: tuple[str, str]
    lines: list[Line]
    x_ticks: list[tuple[float, str]]
    y_ticks: list[tuple[float, str]]


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
        _unit_chart(
            "reliability", ("probability", "share that came true"), {"as said": ([0.0, 1.0], [0.0, 1.0], None)} | said
        ),
        _unit_chart("precision and recall", ("recall", "precision"), found),
    ]
    return [chart for chart in charts if chart.lines]


def _unit_chart(
    title: str, axes: tuple[str, str], series: Mapping[str, tuple[Sequence[Any], Sequence[Any], float | None]]
) -> Chart:
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
        axes=axes,
        lines=lines,
        x_ticks=[(x * WIDTH, f"{x:g}") for x in marks],
        y_ticks=[((1 - y) * HEIGHT, f"{y:g}") for y in marks],
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
