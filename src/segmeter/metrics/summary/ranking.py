"""columns of several models on the same cases -> their ranking, and its stability under resampling."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected
from segmeter.errors import InputError
from segmeter.metrics.arrays import FloatArray
from segmeter.metrics.statistics.bootstrap import Statistic, bootstrap


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """Models ordered by a statistic where more is better, and the stability of that order.

    Parameters
    ----------
    order : (M,)
        Indices of the models, best first.
    ranks : (M,)
        1 is best; equals share the mean of their ranks.
    rank_shares : (M, M)
        ``[m, r]`` is the share of the resamples in which model m came r-th (0 is best); ties are shared out.
    stability
        Mean Kendall tau-b between the ranking and those of the resamples; 1 is never another order. NaN when undefined.
    """

    order: NDArray[np.int64]
    ranks: FloatArray
    rank_shares: FloatArray
    stability: float


def rank_values(values: FloatArray, replicates: FloatArray) -> Ranking:
    """Rank M models by their values (M,), of which more is better, and by those of B resamples (B, M).

    Undefined ones rank last.
    """
    ranks = _ranks(values[None])[0]
    drawn = _ranks(replicates)
    return Ranking(
        order=np.argsort(ranks, kind="stable"),
        ranks=ranks,
        rank_shares=_rank_shares(drawn),
        stability=_mean_tau(ranks, drawn),
    )


def rank_models(columns: Sequence[NDArray[Any]], statistic: Statistic, **options: Any) -> Ranking:
    """Rank models by a statistic where more is better, and resample the cases for the stability of the order.

    Parameters
    ----------
    columns : M arrays (N, C)
        One per model, row by row of the same case.
    statistic
        Column sums (R, C) to one value each (R, 1); an undefined one ranks last.
    options
        Passed to `bootstrap`: resamples, seed, clusters.

    Raises
    ------
    InputError
        Fewer than two models, or shapes that differ.
    """
    shapes = {part.shape for part in columns}
    if len(columns) < 2 or len(shapes) > 1:
        raise InputError(expected("rank_models", "columns", "to be two or more arrays of one shape", sorted(shapes)))

    def values(sums: FloatArray) -> FloatArray:
        parts = np.split(sums, len(columns), axis=1)
        return np.concatenate([statistic(np.ascontiguousarray(part)) for part in parts], axis=1)

    resampled = bootstrap(np.concatenate(list(columns), axis=1), values, interval="percentile", **options)
    return rank_values(resampled.estimate, resampled.replicates)


def _ranks(values: FloatArray) -> FloatArray:
    """Ranks (R, M), 1 is the largest; equals share their mean rank, NaN ranks last."""
    from scipy import stats  # takes half a second to load, and is seldom needed

    ranks: FloatArray = stats.rankdata(-np.nan_to_num(values, nan=-np.inf, posinf=np.inf, neginf=-np.inf), axis=1)
    return ranks


def _rank_shares(ranks: FloatArray) -> FloatArray:
    """A mean rank of t equals covers t places; each place gets 1 / t."""
    models = ranks.shape[1]
    ties = (ranks[:, :, None] == ranks[:, None, :]).sum(axis=2)
    places = np.arange(1, models + 1)
    covers = np.abs(places - ranks[:, :, None]) <= (ties[:, :, None] - 1) / 2
    shares: FloatArray = (covers / ties[:, :, None]).mean(axis=0)
    return shares


def _mean_tau(ranks: FloatArray, drawn: FloatArray) -> float:
    """Kendall's tau-b of each resampled ranking with `ranks`, averaged where it is defined."""
    pairs = np.array(list(combinations(range(len(ranks)), 2)))
    fixed = np.sign(ranks[pairs[:, 0]] - ranks[pairs[:, 1]])
    moved = np.sign(drawn[:, pairs[:, 0]] - drawn[:, pairs[:, 1]])
    scale = np.sqrt((fixed != 0).sum() * (moved != 0).sum(axis=1))
    if not scale.any():
        return float("nan")
    return float((moved @ fixed)[scale > 0].dot(1 / scale[scale > 0]) / (scale > 0).sum())
