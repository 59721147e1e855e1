"""Runs on the same cases are ranked by a score, and resampled cases show how stable that order is."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected
from segmeter.errors import InputError
from segmeter.metrics.arrays import FloatArray
from segmeter.metrics.statistics.bootstrap import (
    Resampled,
    Statistic,
    bootstrap,
    bootstrap_columns,
    mean_of_columns,
)
from segmeter.metrics.summary.directions import Direction, split_means
from segmeter.metrics.summary.scoreboard import Scoreboard


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


@dataclass(frozen=True, kw_only=True)
class DrawnScores:
    """Scores of several runs and their resamples; each score has one value, or several as `rank_values` takes them."""

    names: list[str]
    runs: list[Resampled]

    def _columns(self, name: str) -> list[int]:
        width = len(self.runs[0].estimate)
        return list(range(self.names.index(name), width, len(self.names)))

    def values(self, name: str) -> FloatArray:
        """A score of all cases, (runs, values)."""
        return np.stack([run.estimate[self._columns(name)] for run in self.runs])

    def rank(self, name: str, better: Direction) -> Ranking:
        """Rank the runs by a score."""
        sign, columns = 1 if better == "higher" else -1, self._columns(name)
        replicates = np.stack([sign * run.replicates[:, columns] for run in self.runs], axis=1)
        return rank_values(sign * self.values(name), replicates)


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """Scores of the data set, means over cases, and of the means that are infinite in a run what orders them."""

    dataset: DrawnScores
    per_case: DrawnScores
    failing: DrawnScores

    def rank(self, name: str, better: Direction) -> Ranking:
        """Rank the runs by the score of the data set where there is one, else by the mean over cases."""
        kinds = (self.dataset, self.failing, self.per_case)
        return next(scores for scores in kinds if name in scores.names).rank(name, better)


def draw_scores(boards: Sequence[Scoreboard], **options: Any) -> Drawn:
    """Resample the scores of each run by the same cases; options are those of `bootstrap_columns`.

    A mean that is infinite in some run is ordered by the share of its values that are, then by the mean of the others.
    """
    first = boards[0]
    dataset = [bootstrap_columns(board.columns, board.score, **options) for board in boards]
    means = [bootstrap_columns(board.means(), mean_of_columns, **options) for board in boards]
    infinite = np.any([np.isinf(one.estimate) for one in means], axis=0)
    failing = [name for name, each in zip(first.values, infinite, strict=True) if each]

    def apart(sums: FloatArray) -> FloatArray:
        return np.concatenate([*split_means(sums)], axis=1)

    ordered = [bootstrap_columns(board.means(names=failing), apart, **options) for board in boards] if failing else []
    return Drawn(
        dataset=DrawnScores(names=first.whole, runs=dataset),
        per_case=DrawnScores(names=list(first.values), runs=means),
        failing=DrawnScores(names=failing, runs=ordered),
    )


def rank_values(values: FloatArray, replicates: FloatArray) -> Ranking:
    """Rank M models by K values each (M, K), of which more is better, and by those of B resamples (B, M, K).

    The first values decide, and the next where these are equal. Undefined ones rank last.
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
    return rank_values(resampled.estimate[:, None], resampled.replicates[..., None])


def _ranks(values: FloatArray) -> FloatArray:
    """Ranks (R, M) by values (R, M, K), 1 is the largest; equals share their mean rank, NaN ranks last."""
    from scipy import stats  # takes half a second to load, and is seldom needed

    keys = -np.nan_to_num(values, nan=-np.inf, posinf=np.inf, neginf=-np.inf)
    ranks: FloatArray = stats.rankdata(keys[..., 0], axis=1)
    for k in range(1, keys.shape[2]):
        ranks = stats.rankdata(2 * values.shape[1] * ranks + stats.rankdata(keys[..., k], axis=1), axis=1)
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
