"""rows -> scores of each slice of the cases, and how they differ from those of the rest.

Axis letters: N cases, U units that are resampled, S slices by one column, C columns that are added up, R resamples, H
headline scores.
"""

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from segmeter.classes import ClassSpec
from segmeter.metrics.arrays import FloatArray, IntArray
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.cases.typed import class_regions, lay_out_run
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.statistics.bootstrap import (
    Resampled,
    bootstrap,
)
from segmeter.metrics.statistics.describe import plain, say
from segmeter.metrics.statistics.intervals import MIN_UNITS
from segmeter.metrics.statistics.lazy_columns import Columns, join_columns
from segmeter.metrics.statistics.paired_tests import holm
from segmeter.metrics.summary.directions import find_direction, join_means, minus_means, name_change, split_means
from segmeter.metrics.summary.scoreboard import Scoreboard, build_scoreboards, is_overall
from segmeter.metrics.summary.slice_labels import hash_labels, order_labels, slice_labels

OF_OBJECT = ("iou", "dice")  # scores of a binary task's object that slices are given by
MOST_UNITS = 1000  # more cases are resampled in this many random groups, see `_units`


def summarise_slices(
    rows: Sequence[CaseRow], spec: ClassSpec, config: MetricsConfig, clusters: list[str] | None
) -> dict[str, Any]:
    """Score each slice of the cases, and compare it with the rest of them.

    Scores are the headlines: of the data set where there is such a score, else the mean over the slice's cases. All
    slices by one column are resampled together, so that a cluster that lies in two of them counts once.

    Parameters
    ----------
    rows
        One or more, in the order of `clusters`.
    spec, config
        As for `summarise`.
    clusters
        One label per row, or None.

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
    labels = slice_labels(rows, spec, config)
    per_region = OF_OBJECT if spec.task == "binary" else ()
    columns = lay_out_run(rows, spec, class_regions(spec, config.groups))
    board = build_scoreboards({"run": columns}, spec, config, per_region=per_region)[0]["run"]
    names = headlines(board, spec)
    found = {by: _by(board, names, each, config, clusters) for by, each in labels.items()}
    _adjust([score for slices in found.values() for each in slices.values() for score in each["scores"].values()])
    return {
        "headline": names[0],
        "worst": _worst(found, names[0]),
        "table": config.slices,
        "hashes": {by: hash_labels(board.case_ids, each) for by, each in labels.items()},
        "by": found,
    }


def compare_slices(
    base: Scoreboard,
    new: Scoreboard,
    names: list[str],
    labels: Mapping[str, Sequence[str]],
    config: MetricsConfig,
    clusters: list[str] | None,
) -> dict[str, dict[str, Any]]:
    """Differences of two runs on the same cases in each slice: new minus base, with intervals and tests.

    Returns
    -------
    dict
        Column to label to ``n`` cases and ``scores``, of each name ``difference, change`` ("better", "worse", "equal"
        or None), ``ci95, p, p_holm``, adjusted over all slices and scores.
    """
    columns, parts = _columns(base, names, new)
    other, _ = _columns(new, names, base)
    found: dict[str, dict[str, Any]] = {}
    for by, each in labels.items():
        slices, index = _index(each)
        sums = sum_slices(join_columns([columns, other]), _units(len(each), clusters, config.seed), index)
        drawn = bootstrap(sums, _paired(parts), **_options(config))
        p_values, cases = drawn.p_of_zero, np.bincount(index)
        found[by] = {
            label: {
                "n": int(cases[i]),
                "scores": {
                    name: {
                        "difference": say(drawn.estimate[i, h]),
                        "change": name_change(name, drawn.estimate[i, h]),
                        "ci95": [say(drawn.low[i, h]), say(drawn.high[i, h])],
                        "p": plain(p_values[i, h]),
                    }
                    for h, name in enumerate(names)
                },
            }
            for i, label in enumerate(slices)
        }
    _adjust([score for slices in found.values() for each in slices.values() for score in each["scores"].values()])
    return found


def _paired(parts: Callable[[FloatArray], FloatArray]) -> Callable[[FloatArray], FloatArray]:
    """Sums (R, S, 2 C) -> differences (R, S, H)."""

    def difference(sums: FloatArray) -> FloatArray:
        count, slices, width = sums.shape
        flat = sums.reshape(count * slices, 2, width // 2)
        old, now = (parts(np.ascontiguousarray(flat[:, side])) for side in range(2))
        return minus_means(now, old).reshape(count, slices, -1)

    return difference


def _options(config: MetricsConfig) -> dict[str, Any]:
    return {"resamples": config.bootstrap, "seed": config.seed, "interval": config.interval, "test": True}


def _index(labels: Sequence[str]) -> tuple[list[str], IntArray]:
    """The slices in order, and which of them each case is in."""
    slices = order_labels(labels)
    places = {label: i for i, label in enumerate(slices)}
    return slices, np.array([places[label] for label in labels], np.int64)


def headlines(board: Scoreboard, spec: ClassSpec) -> list[str]:
    """Scores that slices are given by: of a binary task those of its object first, then those of all classes."""
    own = [f"{name}/{spec.names[1]}" for name in OF_OBJECT] if spec.task == "binary" else []
    return own + [name for name in board.names if is_overall(name) and name not in own]


def _by(
    board: Scoreboard, names: list[str], labels: Sequence[str], config: MetricsConfig, clusters: list[str] | None
) -> dict[str, dict[str, Any]]:
    """Scores of the slices by one column."""
    slices, index = _index(labels)
    columns, parts = _columns(board, names)
    units, cases = _units(len(labels), clusters, config.seed), np.bincount(index)
    sums = sum_slices(columns, units, index)
    if not config.bootstrap:
        values = _with_differences(parts, sums.sum(axis=0)[None])[0]
        plain = {each: {"n": int(cases[i]), "scores": _plain(names, values[i])} for i, each in enumerate(slices)}
        return _count_infinite(plain, board, names, index)
    flat, place = _distinct_columns(sums.reshape(-1, sums.shape[-1]))  # all classes share their total
    distinct = flat.reshape(*sums.shape[:2], -1)
    found = bootstrap(distinct, lambda totals: _with_differences(parts, totals[..., place]), **_options(config))
    p_values = found.p_of_zero
    held = sum_slices(Columns.of(np.ones((len(labels), 1))), units, index)[..., 0] > 0
    few = np.minimum(held.sum(axis=0), [np.delete(held, i, axis=1).any(axis=1).sum() for i in range(len(slices))])
    for part in (found.low, found.high, p_values):
        part[few < MIN_UNITS, len(names) :] = np.nan  # as few units decide one of the two that differ
    described = {
        each: {"n": int(cases[i]), "scores": _described(names, found, p_values, i)} for i, each in enumerate(slices)
    }
    return _count_infinite(described, board, names, index)


def _count_infinite(
    found: dict[str, dict[str, Any]], board: Scoreboard, names: list[str], index: IntArray
) -> dict[str, dict[str, Any]]:
    """Add how many cases of each slice are infinite to the means over cases of which some are."""
    for name in (name for name in names if name not in board.whole):
        infinite = np.isinf(board.values[name])
        if infinite.any():
            for entry, count in zip(found.values(), np.bincount(index[infinite], minlength=len(found)), strict=True):
                entry["scores"][name]["n_infinite"] = int(count)
    return found


def _columns(
    board: Scoreboard, names: list[str], other: Scoreboard | None = None
) -> tuple[Columns, Callable[[FloatArray], FloatArray]]:
    """Columns (N, C) of the named scores alone, and what turns sums (R, C) into these scores as `split_means` does.

    Means over cases are of those whose values are defined, in `other` too. Scores of the data set have no share.
    """
    whole = [board.whole.index(name) for name in names if name in board.whole]
    means = [name for name in names if name not in board.whole]
    order = [names.index(name) for name in [*(n for n in names if n in board.whole), *means]]
    split = board.columns.width

    def parts(sums: FloatArray) -> FloatArray:
        scores = board.score(sums[:, :split])[:, whole]
        found = np.concatenate([[np.zeros_like(scores), scores], split_means(sums[:, split:])], axis=2)
        return found[:, :, np.argsort(order)]

    return join_columns([board.columns, board.means(other, names=means)]), parts


def sum_slices(columns: Columns, units: IntArray, index: IntArray) -> FloatArray:
    """Sums (U, S, C) of the columns (N, C) by unit and slice: products of a sparse matrix."""
    n_units, n_slices = int(units.max()) + 1, int(index.max()) + 1
    place = sparse.csr_matrix(
        (np.ones(len(units)), (units * n_slices + index, np.arange(len(units)))),
        shape=(n_units * n_slices, len(units)),
    )
    sums = np.empty((n_units * n_slices, columns.width))
    for number, column in enumerate(columns):
        sums[:, number] = place @ column
    return sums.reshape(n_units, n_slices, columns.width)


def _units(n_cases: int, clusters: Sequence[str] | None, seed: int) -> NDArray[np.int64]:
    """The unit of each case: itself or its cluster; of more than `MOST_UNITS` units random groups of equal size.

    The variance of a sum over groups is that of the sum over units, and 1000 of them tell it to 2 %.
    """
    if clusters is None:
        units, count = np.arange(n_cases), n_cases
    else:
        distinct, units = np.unique(np.asarray(clusters), return_inverse=True)
        count = len(distinct)
    if count <= MOST_UNITS:
        return units.astype(np.int64)
    shuffled = np.argsort(np.random.PCG64(seed).random_raw(count), kind="stable")
    group = np.empty(count, np.int64)
    group[shuffled] = np.arange(count) % MOST_UNITS
    return group[units]


def _distinct_columns(columns: NDArray[Any]) -> tuple[NDArray[Any], list[int]]:
    """Columns that differ, and which of these each column is: what classes share, such as a total, is summed once."""
    numbers: dict[bytes, int] = {}
    places, first = list[int](), list[int]()
    for column, values in enumerate(columns.T):
        place = numbers.setdefault(sha256(values.tobytes()).digest(), len(numbers))
        if place == len(first):
            first.append(column)
        places.append(place)
    return np.take(columns, first, axis=1), places


def _with_differences(parts: Callable[[FloatArray], FloatArray], sums: FloatArray) -> FloatArray:
    """Sums (R, S, C) -> scores of each slice, then what it differs by from the others together: (R, S, 2 H)."""
    count, slices, width = sums.shape
    rest = sums.sum(axis=1, keepdims=True) - sums
    flat = np.concatenate([sums.reshape(-1, width), rest.reshape(-1, width)])
    found = parts(flat).reshape(2, 2, count, slices, -1)
    own, other = found[:, 0], found[:, 1]
    return np.concatenate([join_means(own), minus_means(own, other)], axis=2)


def _plain(names: list[str], values: FloatArray) -> dict[str, Any]:
    half = len(names)
    nothing = {"ci95": None, "difference_ci95": None, "p": None}
    return {
        name: {"value": say(values[h]), "difference": say(values[half + h])} | nothing for h, name in enumerate(names)
    }


def _described(names: list[str], found: Resampled, p_values: FloatArray, i: int) -> dict[str, Any]:
    entries = _plain(names, found.estimate[i])
    for h, entry in enumerate(entries.values()):
        d = len(names) + h
        entry["ci95"] = [say(found.low[i, h]), say(found.high[i, h])]
        entry["difference_ci95"] = [say(found.low[i, d]), say(found.high[i, d])]
        entry["p"] = plain(p_values[i, d])
    return entries


def _adjust(scores: Sequence[dict[str, Any]]) -> None:
    tested = [score for score in scores if score["p"] is not None]
    for score in scores:
        score["p_holm"] = None
    for score, adjusted in zip(tested, holm([score["p"] for score in tested]), strict=True):
        score["p_holm"] = float(adjusted)


def _worst(found: dict[str, dict[str, dict[str, Any]]], name: str) -> dict[str, str] | None:
    """The slice with the worst score among those with an interval, by which chance has less say."""
    sign = -1 if find_direction(name) == "lower" else 1
    known = [
        (sign * float(each["scores"][name]["value"]), sign * _share(each, name), by, label)
        for by, slices in found.items()
        for label, each in slices.items()
        if None not in (each["scores"][name]["ci95"] or [None])
    ]
    return dict(zip(("by", "slice"), min(known)[2:], strict=True)) if known else None


def _share(each: Mapping[str, Any], name: str) -> float:
    """The share of a slice's cases that are infinite, which orders means that are."""
    return float(each["scores"][name].get("n_infinite", 0) / each["n"])
