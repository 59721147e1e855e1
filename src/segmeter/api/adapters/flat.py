"""metrics.json -> one flat dict of numbers, as W&B and MLflow log them."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from segmeter.checks import expected, shown, some
from segmeter.errors import InputError

_KEPT = ("dataset", "per_class", "per_group", "per_case", "measures", "calibration", "loss")
_LEFT_OUT = ("reliability", "curve", "ci95", "classes")  # no single numbers, or written as low and high
_FOREIGN = re.compile(r"[^A-Za-z0-9_\-. /]")  # what MLflow refuses in a name


def flatten(summary: Mapping[str, Any]) -> dict[str, float]:
    """Every score of a summary under one name, such as "per_class/car/iou" or "measures/hd95/car/mean".

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
    """Numbers below a name, each followed by the ends of its interval."""
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
