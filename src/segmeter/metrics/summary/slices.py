"""Scores each slice of the cases, and compares it with the other cases or with another run.

A slice is a subset of the cases, such as those of one scanner; it is not a plane of a volume.

Axis letters: N cases, U units that are resampled, S slices by one column, C columns that are added up, R sums (one per
resample), H scores.
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

MOST_UNITS = 1000  # if there are more units, they are resampled in this many random groups, see `_units`


def summarise_slices(board: Scoreboard) -> dict[str, Any]:
    """Score each slice of the cases, and compare it with the rest of them.

    The scores are the headlines: of the data set where there is such a score, else the mean over the slice's cases. All
    slices by one column are resampled together, so that a cluster in two slices is drawn as one.

    Returns
    -------
    dict
        ``headline`` is the name of the first score. ``worst`` (``by, slice``, or None) is the slice where it is worst,
        among those that have an interval. ``table`` is the table of the facts, or None. ``hashes`` has the hash of each
        column's labels (see `hash_labels`). ``by`` maps column to label to ``n`` cases and ``scores``, and these map
        the name of a score to ``value, ci95, difference`` (from all other cases), ``difference_ci95, p, p_holm``
        (adjusted over all slices and scores). Infinity is the text "inf". A mean over cases then has ``n_infinite``,
        the number of infinite cases, and the slice with the larger share of them is the larger one.

    Raises
    ------
    InputError
        As `slice_labels`.
    """
    labels = slice_labels(board)
    names = headlines(board)
    slices = {by: _score_slices(board, names, of_cases) for by, of_cases in labels.items()}
    _adjust(slices)
    return {
        "headline": names[0],
        "worst": _worst(slices, names[0]),
        "table": board.config.slices,
        "hashes": {by: hash_labels(board.run.case_ids, of_cases) for by, of_cases in labels.items()},
        "by": slices,
    }


def _adjust(slices: dict[str, dict[str, dict[str, Any]]]) -> None:
    """Add p-values that are adjusted over all slices and scores."""
    entries = (entry for by_label in slices.values() for entry in by_label.values())
    add_adjusted([score for entry in entries for score in entry["scores"].values()], "p")


def compare_slices(base: Scoreboard, new: Scoreboard, labels: Mapping[str, Sequence[str]]) -> dict[str, dict[str, Any]]:
    """Compare the headlines of two runs on the same cases in each slice: new minus base.

    Returns
    -------
    dict
        Column to label to ``n`` cases and ``scores``. These map the name of a score to ``difference, change``
        ("better", "worse", "equal" or None) and ``ci95, p, p_holm`` (adjusted over all slices and scores).
    """
    names = headlines(base)
    keys = [base.key(name) for name in names]
    columns, scores = side_by_side(base.choose(keys, new), new.choose(keys, base))

    def difference(sums: FloatArray) -> FloatArray:
        """Turn sums (R, S, C) into differences (R, S, H)."""
        base_scores, new_scores = scores(sums.reshape(-1, sums.shape[2]))
        return minus_means(new_scores, base_scores).reshape(*sums.shape[:2], -1)

    slices: dict[str, dict[str, Any]] = {}
    for by, of_cases in labels.items():
        slices[by], index = _index(of_cases)
        sums = sum_slices(columns, _units(base), index)
        resampled = base.resample(sums, difference, test=True, units=True)
        for (i, label), (h, name) in product(enumerate(slices[by]), enumerate(names)):
            slices[by][label]["scores"][name] = {
                "difference": json_number_or_inf(resampled.estimate[i, h]),
                "change": name_change(name, resampled.estimate[i, h]),
                "ci95": resampled.ends((i, h)),
                "p": json_number(resampled.p_of_zero[i, h]),
            }
    _adjust(slices)
    return slices


def headlines(board: Scoreboard) -> list[str]:
    """List the scores of slices: the headline, the IoU and Dice of an only object, and the scores of all classes."""
    spec = board.spec
    objects = [f"{name}/{spec.names[1]}" for name in ("iou", "dice")] if has_one_object(spec.task, spec.names) else []
    leading = list(dict.fromkeys([board.headline, *objects]))
    return leading + [name for name in board.names if is_overall(name) and name not in leading]


def _index(labels: Sequence[str]) -> tuple[dict[str, dict[str, Any]], IntArray]:
    """Make an entry for each slice in order, with its number of cases, and find the index (N,) of each case's slice."""
    slices = order_labels(labels)
    numbers = {label: i for i, label in enumerate(slices)}
    index = np.array([numbers[label] for label in labels], np.int64)
    return {label: {"n": n, "scores": {}} for label, n in zip(slices, np.bincount(index).tolist(), strict=True)}, index


def _score_slices(board: Scoreboard, names: list[str], labels: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Score the slices by one column."""
    entries, index = _index(labels)
    columns, score = board.choose([board.key(name) for name in names])
    units = _units(board)
    sums = sum_slices(columns, units, index)
    half = len(names)
    resampled = None
    if board.config.bootstrap > 0:
        resampled = board.resample(sums, lambda totals: _with_differences(score, totals), test=True, units=True)
        values = resampled.estimate
        has_cases = sum_slices(Columns.of(np.ones((len(labels), 1))), units, index)[..., 0] > 0
        others = [np.delete(has_cases, i, axis=1).any(axis=1).sum() for i in range(len(entries))]
        few = np.minimum(has_cases.sum(axis=0), others) < MIN_UNITS
        for part in (resampled.low, resampled.high, resampled.p_of_zero):
            part[few, half:] = np.nan  # few units decide the slice's score, or that of the other cases
    else:
        values = _with_differences(score, sums.sum(axis=0)[None])[0]
    infinite = {name: np.isinf(board.values(name)) for name in names if name not in board.dataset_names}
    n_infinite = {name: np.bincount(index[at], minlength=len(entries)) for name, at in infinite.items() if at.any()}
    for (i, label), (h, name) in product(enumerate(entries), enumerate(names)):
        entries[label]["scores"][name] = {
            "value": json_number_or_inf(values[i, h]),
            "ci95": resampled.ends((i, h)) if resampled else None,
            "difference": json_number_or_inf(values[i, half + h]),
            "difference_ci95": resampled.ends((i, half + h)) if resampled else None,
            "p": json_number(resampled.p_of_zero[i, half + h]) if resampled else None,
            **({"n_infinite": int(n_infinite[name][i])} if name in n_infinite else {}),
        }
    return entries


def sum_slices(columns: Columns, units: IntArray, index: IntArray) -> FloatArray:
    """Sum the columns (N, C) by unit and slice, (U, S, C)."""
    n_units, n_slices = int(units.max()) + 1, int(index.max()) + 1
    cells = units * n_slices + index
    sums = [np.bincount(cells, weights=column, minlength=n_units * n_slices) for column in columns]
    return np.stack(sums, axis=1, dtype=np.float64).reshape(n_units, n_slices, columns.width)


def _units(board: Scoreboard) -> IntArray:
    """Find the unit of each case: itself or its cluster, or one of `MOST_UNITS` random groups if there are more units.

    The variance of a sum over groups is that of the sum over units, and 1000 groups determine it to 2 %.
    """
    if board.n_units <= MOST_UNITS:
        return board.units
    return draw_pools(board.n_units, MOST_UNITS, board.config.seed, stream=())[board.units]


def _with_differences(score: Callable[[FloatArray], FloatArray], sums: FloatArray) -> FloatArray:
    """Turn sums (R, S, C) into scores of each slice and their differences from all other cases: (R, S, 2 H)."""
    count, slices, width = sums.shape
    rest = sums.sum(axis=1, keepdims=True) - sums
    flat = np.concatenate([sums.reshape(-1, width), rest.reshape(-1, width)])
    scores = score(flat).reshape(2, 2, count, slices, -1)
    own, other = scores[:, 0], scores[:, 1]
    return np.concatenate([join_means(own), minus_means(own, other)], axis=2)


def _worst(slices: dict[str, dict[str, dict[str, Any]]], name: str) -> dict[str, str] | None:
    """Find the slice with the worst score among those with an interval; in the others, chance decides too much.

    Among infinite means, the one with the largest share of infinite cases is the worst.
    """
    sign = -1 if find_direction(name) == "lower" else 1
    known = [
        (sign * float(score["value"]), sign * float(score.get("n_infinite", 0) / entry["n"]), by, label)
        for by, by_label in slices.items()
        for label, entry in by_label.items()
        if None not in ((score := entry["scores"][name])["ci95"] or [None])
    ]
    return dict(zip(("by", "slice"), min(known)[2:], strict=True)) if known else None
