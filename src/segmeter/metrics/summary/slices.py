"""Scores each slice of the cases, and compares it with the other cases or with another run.

Axis letters: N cases, U units that are resampled, S slices by one column, C columns that are added up, R resamples, H
scores.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from segmeter.metrics.arrays import FloatArray, IntArray, json_number, json_number_or_inf
from segmeter.metrics.config.metrics import has_one_object
from segmeter.metrics.config.scores import find_direction, is_overall, name_change
from segmeter.metrics.statistics.clusters import MIN_UNITS
from segmeter.metrics.statistics.columns import Columns, draw_pools, join_means, minus_means
from segmeter.metrics.statistics.paired_tests import add_adjusted
from segmeter.metrics.summary.scoreboard import Scoreboard, side_by_side
from segmeter.metrics.summary.slice_labels import hash_labels, order_labels, slice_labels

MOST_UNITS = 1000  # more cases are resampled in this many random groups, see `_units`


def summarise_slices(board: Scoreboard) -> dict[str, Any]:
    """Score each slice of the cases, and compare it with the rest of them.

    Scores are the headlines: of the data set where there is such a score, else the mean over the slice's cases. All
    slices by one column are resampled together, so that a cluster in two of them counts once.

    Returns
    -------
    dict
        ``headline``, the name of the first score; ``worst``, the slice where it is worst among those that have an
        interval (``by, slice``, or None); ``table``, where the facts are from, or None;
        ``hashes``, column to that of its labels (see `hash_labels`); and ``by``: column to label to
        ``n`` cases and ``scores``, of each name ``value, ci95, difference`` (to all other cases), ``difference_ci95, p,
        p_holm`` (adjusted over all slices and scores). Infinity is the text "inf"; a mean over cases then has
        ``n_infinite``, the cases that are infinite, and the slice with the larger share of them is the larger one.

    Raises
    ------
    InputError
        As `slice_labels`.
    """
    labels = slice_labels(board)
    names = headlines(board)
    found = {by: _by(board, names, each) for by, each in labels.items()}
    add_adjusted([score for by in found.values() for one in by.values() for score in one["scores"].values()], "p")
    return {
        "headline": names[0],
        "worst": _worst(found, names[0]),
        "table": board.config.slices,
        "hashes": {by: hash_labels(board.run.case_ids, each) for by, each in labels.items()},
        "by": found,
    }


def compare_slices(base: Scoreboard, new: Scoreboard, labels: Mapping[str, Sequence[str]]) -> dict[str, dict[str, Any]]:
    """Compare the headlines of two runs on the same cases in each slice: new minus base.

    Returns
    -------
    dict
        Column to label to ``n`` cases and ``scores``, of each name ``difference, change`` ("better", "worse", "equal"
        or None), ``ci95, p, p_holm``, adjusted over all slices and scores.
    """
    names = headlines(base)
    keys = [base.key(name) for name in names]
    columns, scores = side_by_side(base.choose(keys, new), new.choose(keys, base))

    def difference(sums: FloatArray) -> FloatArray:
        """Turn sums (R, S, C) into differences (R, S, H)."""
        old, now = scores(sums.reshape(-1, sums.shape[2]))
        return minus_means(now, old).reshape(*sums.shape[:2], -1)

    found: dict[str, dict[str, Any]] = {}
    for by, each in labels.items():
        found[by], index = _index(each)
        sums = sum_slices(columns, _units(base), index)
        drawn = base.resample(sums, difference, test=True, units=True)
        for (i, label), (h, name) in product(enumerate(found[by]), enumerate(names)):
            found[by][label]["scores"][name] = {
                "difference": json_number_or_inf(drawn.estimate[i, h]),
                "change": name_change(name, drawn.estimate[i, h]),
                "ci95": drawn.ends((i, h)),
                "p": json_number(drawn.p_of_zero[i, h]),
            }
    add_adjusted([score for by in found.values() for one in by.values() for score in one["scores"].values()], "p")
    return found


def headlines(board: Scoreboard) -> list[str]:
    """List the scores of slices: the headline, for binary the object's IoU and Dice, and those of all classes."""
    spec = board.spec
    objects = [f"{name}/{spec.names[1]}" for name in ("iou", "dice")] if has_one_object(spec.task, spec.names) else []
    own = list(dict.fromkeys([board.headline, *objects]))
    return own + [name for name in board.names if is_overall(name) and name not in own]


def _index(labels: Sequence[str]) -> tuple[dict[str, dict[str, Any]], IntArray]:
    """Make an entry for each slice in order, with its number of cases, and find the slice of each case."""
    slices = order_labels(labels)
    places = {label: i for i, label in enumerate(slices)}
    index = np.array([places[label] for label in labels], np.int64)
    return {label: {"n": n, "scores": {}} for label, n in zip(slices, np.bincount(index).tolist(), strict=True)}, index


def _by(board: Scoreboard, names: list[str], labels: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Score the slices by one column."""
    entries, index = _index(labels)
    columns, parts = board.choose([board.key(name) for name in names])
    units, half = _units(board), len(names)
    sums, resampled = sum_slices(columns, units, index), board.config.bootstrap > 0
    if resampled:
        found = board.resample(sums, lambda totals: _with_differences(parts, totals), test=True, units=True)
        values = found.estimate
        held = sum_slices(Columns.of(np.ones((len(labels), 1))), units, index)[..., 0] > 0
        others = [np.delete(held, i, axis=1).any(axis=1).sum() for i in range(len(entries))]
        few = np.minimum(held.sum(axis=0), others) < MIN_UNITS
        for part in (found.low, found.high, found.p_of_zero):
            part[few, half:] = np.nan  # as few units decide one of the two scores
    else:
        values = _with_differences(parts, sums.sum(axis=0)[None])[0]
    infinite = {name: np.isinf(board.values(name)) for name in names if name not in board.whole}
    counted = {name: np.bincount(index[one], minlength=len(entries)) for name, one in infinite.items() if one.any()}
    for (i, label), (h, name) in product(enumerate(entries), enumerate(names)):
        entries[label]["scores"][name] = {
            "value": json_number_or_inf(values[i, h]),
            "ci95": found.ends((i, h)) if resampled else None,
            "difference": json_number_or_inf(values[i, half + h]),
            "difference_ci95": found.ends((i, half + h)) if resampled else None,
            "p": json_number(found.p_of_zero[i, half + h]) if resampled else None,
            **({"n_infinite": int(counted[name][i])} if name in counted else {}),
        }
    return entries


def sum_slices(columns: Columns, units: IntArray, index: IntArray) -> FloatArray:
    """Sum the columns (N, C) by unit and slice, (U, S, C)."""
    n_units, n_slices = int(units.max()) + 1, int(index.max()) + 1
    place, count = units * n_slices + index, n_units * n_slices
    sums = [np.bincount(place, weights=column, minlength=count) for column in columns]
    return np.stack(sums, axis=1, dtype=np.float64).reshape(n_units, n_slices, columns.width)


def _units(board: Scoreboard) -> IntArray:
    """Find the unit of each case: itself or its cluster, or one of `MOST_UNITS` random groups if there are more units.

    The variance of a sum over groups is that of the sum over units, and 1000 groups determine it to 2 %.
    """
    if board.n_units <= MOST_UNITS:
        return board.units
    return draw_pools(board.n_units, MOST_UNITS, board.config.seed, stream=())[board.units]


def _with_differences(parts: Callable[[FloatArray], FloatArray], sums: FloatArray) -> FloatArray:
    """Turn sums (R, S, C) into scores of each slice and their differences from all other cases: (R, S, 2 H)."""
    count, slices, width = sums.shape
    rest = sums.sum(axis=1, keepdims=True) - sums
    flat = np.concatenate([sums.reshape(-1, width), rest.reshape(-1, width)])
    found = parts(flat).reshape(2, 2, count, slices, -1)
    own, other = found[:, 0], found[:, 1]
    return np.concatenate([join_means(own), minus_means(own, other)], axis=2)


def _worst(found: dict[str, dict[str, dict[str, Any]]], name: str) -> dict[str, str] | None:
    """Find the slice with the worst score among those with an interval; the others are left to chance.

    Among infinite means, the one with the largest share of infinite cases is the worst.
    """
    sign = -1 if find_direction(name) == "lower" else 1
    known = [
        (sign * float(score["value"]), sign * float(score.get("n_infinite", 0) / each["n"]), by, label)
        for by, slices in found.items()
        for label, each in slices.items()
        if None not in ((score := each["scores"][name])["ci95"] or [None])
    ]
    return dict(zip(("by", "slice"), min(known)[2:], strict=True)) if known else None
