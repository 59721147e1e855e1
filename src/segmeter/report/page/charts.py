"""The curves that show how far probabilities can be believed; the page's script draws them."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

MOST_POINTS = 600  # of one line; longer ones are thinned evenly
MOST_CURVES = 4  # in one chart

Chart = dict[str, Any]


def calibration_charts(calibration: Mapping[str, Any]) -> list[Chart]:
    """Lay out said against true probabilities, and precision against recall, both from 0 to 1.

    A chart has ``title``, the names of both ``axes`` and ``lines``, each with ``name``, rising ``xs``, ``ys`` and
    ``last``, the number beside its name.

    Parameters
    ----------
    calibration
        The part of metrics.json of this name. Of many classes the curves are those with the lowest average precision.
    """
    entries = calibration["per_class"]
    sure = {"winning class": calibration} if calibration["reliability"] else entries
    said = [
        _line(f"{name}, ECE", entry["reliability"]["confidence"], entry["reliability"]["accuracy"], entry["ece"])
        for name, entry in list(sure.items())[:MOST_CURVES]
    ]
    known = [name for name in entries if entries[name]["average_precision"] is not None]
    worst = sorted(known, key=lambda name: entries[name]["average_precision"])[:MOST_CURVES]
    curves = {name: (entries[name]["curve"], entries[name]["average_precision"]) for name in worst}
    found = [_line(f"{name}, AP", curve["recall"], curve["precision"], last) for name, (curve, last) in curves.items()]
    charts = [
        _chart("reliability", ("probability", "share that came true"), [_line("as said", [0, 1], [0, 1], None), *said]),
        _chart("precision and recall", ("recall", "precision"), found),
    ]
    return [chart for chart in charts if chart["lines"]]


def _chart(title: str, axes: tuple[str, str], lines: Sequence[Chart]) -> Chart:
    return {"title": title, "axes": axes, "lines": [line for line in lines if line["xs"]]}


def _line(name: str, xs: Sequence[Any], ys: Sequence[Any], last: float | None) -> Chart:
    """One curve; empty bins are left out."""
    points = [(x, y) for x, y in zip(xs, ys, strict=True) if x is not None and y is not None]
    kept = [*points[: -1 : math.ceil(len(points) / MOST_POINTS)], *points[-1:]] if points else []
    kept = kept[::-1] if kept and kept[0][0] > kept[-1][0] else kept
    return {"name": name, "xs": [round(x, 5) for x, _ in kept], "ys": [round(y, 5) for _, y in kept], "last": last}
