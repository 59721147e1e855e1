"""Flattens the summary of an evaluation for experiment trackers, and writes it for grand-challenge.org."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from segmeter.checks import expected, shown, some
from segmeter.errors import InputError
from segmeter.files import write_json

_KEPT = ("dataset", "per_class", "per_group", "per_case", "measures", "calibration", "loss")
_LEFT_OUT = ("reliability", "curve", "ci95", "classes")  # no single numbers, or written as low and high
_FOREIGN = re.compile(r"[^A-Za-z0-9_\-. /]")  # what MLflow refuses in a name


def flatten(summary: Mapping[str, Any]) -> dict[str, float]:
    """Return every score of a summary under one name, such as "per_class/car/iou" or "measures/hd95/car/mean".

    Undefined scores are left out, as neither tool has them; infinity stays. An interval is "..._low" and "..._high".
    "@" becomes "_at_", and other characters that MLflow refuses become "_".

    Parameters
    ----------
    summary
        The content of metrics.json.

    Raises
    ------
    InputError
        Two classes would get one name, or this is no summary.

    Examples
    --------
    >>> summary = {"n_cases": 2, "dataset": {"mean_iou": 0.5, "kappa": None}}
    >>> flatten(summary | {"dataset_ci95": {"mean_iou": [0.25, 0.75]}})
    {'n_cases': 2.0, 'dataset/mean_iou': 0.5, 'dataset/mean_iou_low': 0.25, 'dataset/mean_iou_high': 0.75}
    """
    if not isinstance(summary, Mapping) or not isinstance(summary.get("n_cases"), int):
        raise InputError(expected("flatten", "summary", "to be the content of metrics.json", shown(summary)))
    found = [("n_cases", float(summary["n_cases"]))]
    for part in _KEPT:
        found += _leaves(part, summary.get(part), summary.get(f"{part}_ci95") or {})
    named = [(_FOREIGN.sub("_", name.replace("@", "_at_")), value) for name, value in found]
    twice = [name for name, count in Counter(name for name, _ in named).items() if count > 1]
    if twice:
        raise InputError(expected("flatten", "classes", "to differ in letters and digits", some(twice), "Rename one."))
    return dict(named)


def _leaves(name: str, value: Any, intervals: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the numbers below a name, each followed by the ends of its interval."""
    if isinstance(value, Mapping):
        ends = value.get("ci95")
        own = ends if isinstance(ends, Mapping) else {"mean": ends, "dataset": value.get("dataset_ci95")}
        for key, each in value.items():
            if key not in _LEFT_OUT:
                yield from _leaves(f"{name}/{key}", each, {})
                yield from _ends(f"{name}/{key}", intervals.get(key) or own.get(key))
    elif isinstance(value, bool) or value is None or isinstance(value, list):
        return
    elif isinstance(value, int | float) or value in ("inf", "-inf"):
        yield name, float(value)


def _ends(name: str, ends: Any) -> Iterator[tuple[str, float]]:
    if ends and None not in ends:
        yield from ((f"{name}_{side}", float(end)) for side, end in zip(("low", "high"), ends, strict=True))


def write_metrics(path: Path, cases: pa.Table, summary: dict[str, Any]) -> None:
    """Write ``{"results": [one per case], "aggregates": {...}}``.

    A result has the columns of cases.csv; aggregates are the numbers of `flatten`, nested at each "/", so that a
    leaderboard takes "aggregates.dataset.mean_iou". Undefined is null, and infinity the text "inf".
    """
    table = cases.drop_columns(["confusion"])
    results = [{name: _plain(value) for name, value in row.items()} for row in table.to_pylist()]
    aggregates: dict[str, Any] = {}
    for name, value in flatten(summary).items():
        *folders, leaf = name.split("/")
        place = aggregates
        for folder in folders:
            place = place.setdefault(folder, {})
        place[leaf] = _plain(value)
    write_json(path, {"results": results, "aggregates": aggregates})


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, float) and value in (float("inf"), float("-inf")) else value
