"""Makes the content of tune.json: the score of every setting, and the gain of the chosen one, corrected for the choice.

The best of many settings looks better than it is. Cross-validation tells by how much: each part of the cases is scored
with the setting that the other parts choose. For the interval, the bootstrap repeats the choice within each resample.
Axis letters: S settings, B resamples, R sums, C columns that are added up, M partitions of the cases, K parts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field
from scipy.special import ndtri, stdtrit

from segmeter.checks import expected, nearest
from segmeter.errors import InputError
from segmeter.metrics.arrays import FloatArray, IntArray, json_number, json_number_or_inf, minus
from segmeter.metrics.config.scores import find_direction
from segmeter.metrics.statistics.bootstrap import Resampled, Statistic
from segmeter.metrics.statistics.clusters import MIN_UNITS, sum_by
from segmeter.metrics.statistics.columns import Columns, draw_pools, join_means, to_grid
from segmeter.metrics.summary.scoreboard import Scoreboard

SCHEMA = 1
_FOLDS, _REPEATS = 5, 10  # the cross-validation's parts, and how often it is repeated with other parts
_TIE = 1e-12  # largest relative difference of scores that count as equal


class Tried(BaseModel):
    """One setting."""

    values: dict[str, str]
    """The value of each key that was tried."""
    score: float | str | None
    """Null if it is undefined, "inf" if it is infinite."""
    ci95: list[float | str | None]
    """The score's interval, without any correction for choosing."""
    gain: float | str | None
    """Gain over the usual setting, in the better direction."""
    share: float
    """How often it was chosen in the resamples."""


class Tuned(BaseModel):
    """The content of tune.json."""

    schema_number: int = Field(SCHEMA, alias="schema")
    by: str
    """The score that the settings are judged by."""
    kind: str
    """"dataset" for a score of sums over all cases, "per_case" for the mean of the cases' values."""
    better: str
    split: str
    n_cases: int
    n_units: int
    cluster: str | None
    usual: int
    """Index of the usual setting."""
    chosen: int
    """Index of the chosen setting."""
    gain: float | None
    """The gain of the chosen setting over the usual one, in the cases that it was chosen on; null if either of them has
    no finite score."""
    optimism: float | None
    """How much of the gain comes from choosing."""
    corrected_gain: float | None
    """The gain on cases that had no part in the choice, by cross-validation."""
    gain_ci95: list[float | None]
    """Interval of the true gain of the chosen setting; null ends with fewer than 5 units that have the score."""
    score: float | None
    """The score on cases that had no part in the choice, by cross-validation."""
    score_ci95: list[float | None]
    settings: list[Tried]


def tune_boards(
    boards: Iterable[Scoreboard],
    values: Sequence[dict[str, str]],
    *,
    by: str,
    usual: int,
    simplicity: Sequence[tuple[float, ...]],
    split: str,
) -> dict[str, Any]:
    """Choose the best of several settings that were measured on the same cases.

    Parameters
    ----------
    boards
        The scores of each setting. Only one is in memory at a time if they come from a generator.
    values
        The keys and values of each setting.
    by
        The name of the score to judge by. A score of the data set has precedence over a mean over cases.
    usual
        Index of the setting to compare with.
    simplicity
        Decides ties: the lowest is the simplest.
    split
        The split of the cases.

    Returns
    -------
    dict
        A `Tuned`, plain values.

    Raises
    ------
    InputError
        The cases have no score of that name.
    """
    scores, fold_totals, statistic, board = _resample_settings(boards, by)
    better = find_direction(by) or "higher"
    estimates = np.array([score.estimate[0] for score in scores])
    choice = choose(
        estimates,
        np.stack([score.replicates[:, 0] for score in scores], axis=1),
        np.stack(fold_totals),
        statistic,
        usual=usual,
        simplicity=simplicity,
        higher_is_better=better == "higher",
        n_units=scores[0].n_units,
    )
    few = np.isnan([scores[usual].low[0], scores[choice.chosen].low[0]]).any()  # too few units have the score
    sign = 1.0 if better == "higher" else -1.0
    tried = [
        Tried(
            values=dict(values[s]),
            score=json_number_or_inf(estimates[s]),
            ci95=score.ends(0),
            gain=json_number_or_inf(sign * minus(estimates[s], estimates[usual])),
            share=float(choice.shares[s]),
        )
        for s, score in enumerate(scores)
    ]
    return Tuned(
        by=by,
        kind=board.key(by)[0],
        better=better,
        split=split,
        n_cases=len(board.run.case_ids),
        n_units=scores[0].n_units,
        cluster=board.config.cluster,
        usual=usual,
        settings=tried,
        chosen=choice.chosen,
        gain=json_number(choice.gain),
        optimism=json_number(choice.optimism),
        corrected_gain=json_number(choice.corrected_gain),
        gain_ci95=[None if few else json_number(end) for end in choice.gain_ci95],
        score=json_number(choice.score),
        score_ci95=[None if few else json_number(end) for end in choice.score_ci95],
    ).model_dump(by_alias=True)


def _resample_settings(
    boards: Iterable[Scoreboard], by: str
) -> tuple[list[Resampled], list[FloatArray], Statistic, Scoreboard]:
    """Resample the score of each setting, and sum up its folds. The last board describes the cases of all settings."""
    scores, fold_totals = [], []
    for board in boards:  # with the run's seed, each resample draws the same cases for all settings
        if by not in board.names:
            raise InputError(expected("tune", "by", "to be a score of the cases", repr(by), nearest(by, board.names)))
        columns, score = board.choose([board.key(by)])

        def statistic(sums: FloatArray, score: Statistic = score) -> FloatArray:
            return join_means(score(sums))

        scores.append(board.resample(columns, statistic))
        fold_totals.append(fold_sums(columns, board.config.seed, board.clusters))
    return scores, fold_totals, statistic, board


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The setting that was chosen, and its gain over the usual one.

    Parameters
    ----------
    chosen
        Index of the best setting; if several are equal, of the simplest of them.
    gain
        Gain of the chosen setting over the usual one, in the better direction, on the cases that it was chosen on. NaN
        if either of them has no finite score.
    corrected_gain
        The gain on cases that had no part in the choice, by cross-validation.
    gain_ci95
        95 % interval of the true gain of the chosen setting; NaN with fewer than 5 units, or without a gain.
    score, score_ci95
        The score of cases that had no part in the choice, by cross-validation, and its interval, in the score's own
        direction.
    shares : (S,)
        How often each setting was chosen in the resamples.
    """

    chosen: int
    gain: float
    corrected_gain: float
    gain_ci95: tuple[float, float]
    score: float
    score_ci95: tuple[float, float]
    shares: FloatArray

    @property
    def optimism(self) -> float:
        """The part of the gain that comes from choosing."""
        return self.gain - self.corrected_gain


def fold_sums(columns: Columns, seed: int, clusters: NDArray[Any] | None = None) -> FloatArray:
    """Sum columns (N, C) over random fifths of the cases or clusters, ten times: (10, 5, C)."""
    labels = np.arange(columns.count) if clusters is None else np.unique(clusters, return_inverse=True)[1]
    count = int(labels.max()) + 1
    units = np.stack([sum_by(labels, count, to_grid(column)) for column in columns], axis=1).astype(columns.dtype)
    folds = [draw_pools(count, min(_FOLDS, count), seed + repeat) for repeat in range(_REPEATS)]
    return np.stack([np.stack([units[fold == k].sum(axis=0) for k in range(fold.max() + 1)]) for fold in folds])


def choose(
    estimates: FloatArray,
    replicates: FloatArray,
    fold_totals: FloatArray,
    statistic: Statistic,
    *,
    usual: int,
    simplicity: Sequence[Any],
    higher_is_better: bool,
    n_units: int,
) -> Choice:
    """Choose the best setting, and repeat the choice within each resample.

    Parameters
    ----------
    estimates : (S,), replicates : (B, S)
        The score of each setting in all cases and in each resample; all settings share the resamples. NaN is never
        chosen.
    fold_totals : (S, M, K, C)
        Sums of each setting's columns over K parts of the cases, in M random partitions, from `fold_sums`.
    statistic
        Turns sums (R, C) into scores (R, 1).
    usual
        The setting to compare with.
    simplicity : (S,)
        Decides ties: the lowest is the simplest.
    higher_is_better
        The direction of the score.
    n_units
        The number of cases or clusters that were resampled.

    Notes
    -----
    The gain's interval subtracts errors of the resamples from the gain. Its upper end takes the error of the chosen
    setting alone. Its lower end takes the larger of that and the error of choosing again in each resample (the nested
    bootstrap, Efron 1983). Errors are widened by sqrt(n / (n - 1)), and by Student's quantile over the normal one.
    Resamples in which a score is undefined or infinite, for example without any case of the class, are left out.
    Corrected values come from repeated cross-validation (Stone 1974), as the bootstrap's own estimate misses about a
    third of the optimism if settings are alike. They stay within their intervals.
    """
    sign = 1.0 if higher_is_better else -1.0
    order = np.array(sorted(range(len(estimates)), key=simplicity.__getitem__))
    points = _defined(sign * estimates[order])
    resampled = _defined(sign * replicates[:, order])
    base = int(np.flatnonzero(order == usual)[0])
    picked = int(_first_best(points[None])[0])
    picks = _first_best(resampled)  # the choice in each resample
    rows = np.arange(len(resampled))
    with np.errstate(invalid="ignore"):
        gains = points - points[base]
        picked_gains = resampled[:, picked] - resampled[:, base]
        pick_gains = resampled[rows, picks] - resampled[:, base]
        fixed_errors = _finite(picked_gains - gains[picked])
        nested_errors = _finite(pick_gains - gains[picks])
        score_errors = _finite(resampled[rows, picks] - points[picks])
    n = max(n_units, 2)
    widening = float(np.sqrt(n / (n - 1)) * stdtrit(n - 1, 0.975) / ndtri(0.975))
    low = gains[picked] - widening * max(np.quantile(fixed_errors, 0.975), np.quantile(nested_errors, 0.975))
    high = gains[picked] - widening * np.quantile(fixed_errors, 0.025)
    ends = points[picked] - widening * np.quantile(score_errors, [0.975, 0.025])
    # every part is scored with the setting that the other parts choose
    parts = fold_totals[order]
    others = statistic((parts.sum(axis=2, keepdims=True) - parts).reshape(-1, parts.shape[3])).reshape(len(parts), -1)
    repeat, part = np.ogrid[: parts.shape[1], : parts.shape[2]]
    best = _first_best(_defined(sign * others.T)).reshape(parts.shape[1:3])
    unseen = sign * float(_finite(statistic(parts[best, repeat, part].sum(axis=1))[:, 0]).mean())
    shares = np.zeros(len(points))
    shares[order] = np.bincount(picks, minlength=len(points)) / len(resampled)
    enough = n_units >= MIN_UNITS
    score_low, score_high = sorted(sign * ends) if enough else (np.nan, np.nan)
    low, high = (low, high) if enough else (np.nan, np.nan)
    has_gain = np.isfinite(gains[picked])
    return Choice(
        chosen=int(order[picked]),
        gain=float(gains[picked]) if has_gain else np.nan,
        corrected_gain=_within(unseen - points[base], low, high) if has_gain else np.nan,
        gain_ci95=(float(low), float(high)),
        score=_within(sign * unseen, score_low, score_high),
        score_ci95=(float(score_low), float(score_high)),
        shares=shares,
    )


def _within(value: float, low: float, high: float) -> float:
    return float(np.fmin(np.fmax(value, low), high)) if np.isfinite(value) else np.nan


def _finite(values: FloatArray) -> FloatArray:
    """Return the finite values, or one NaN if there are none."""
    finite = values[np.isfinite(values)]
    return finite if len(finite) else np.array([np.nan])


def _defined(values: FloatArray) -> FloatArray:
    """Replace NaN, so that it is never the best."""
    return np.where(np.isnan(values), -np.inf, values)


def _first_best(values: FloatArray) -> IntArray:
    """Return the index (R,) of the first of the best values (R, S), which are ordered by simplicity."""
    best = values.max(axis=1, keepdims=True)
    tolerance = _TIE * np.maximum(np.abs(best), 1.0)
    indices: IntArray = np.argmax(values >= best - np.where(np.isfinite(tolerance), tolerance, 0.0), axis=1)
    return indices
