"""Makes the content of tune.json: every setting with its score, and the chosen one corrected for the choice."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel, Field

from segmeter.checks import expected, nearest
from segmeter.errors import InputError
from segmeter.metrics.arrays import FloatArray, minus, plain, say
from segmeter.metrics.config.scores import find_direction
from segmeter.metrics.statistics.bootstrap import Resampled, Statistic
from segmeter.metrics.statistics.choosing import choose, fold_sums
from segmeter.metrics.statistics.columns import join_means
from segmeter.metrics.summary.scoreboard import Scoreboard

SCHEMA = 1


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
        The scores of each setting, which are dropped one after the other.
    values
        The keys and values of each setting.
    by
        The score to judge by, one of theirs; if the data set has one, that is used.
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
    found, held, statistic, board = _resampled(boards, by)
    better = find_direction(by) or "higher"
    estimates = np.array([one.estimate[0] for one in found])
    order = {key: rank for rank, key in enumerate(sorted(set(simplicity)))}
    choice = choose(
        estimates,
        np.stack([one.replicates[:, 0] for one in found], axis=1),
        np.stack(held),
        statistic,
        usual=usual,
        simplicity=[order[key] for key in simplicity],
        higher_is_better=better == "higher",
        n_units=found[0].n_units,
    )
    few = np.isnan([found[usual].low[0], found[choice.chosen].low[0]]).any()  # too few units have the score
    ends = {"gain_ci95": choice.gain_ci95, "score_ci95": choice.score_ci95}
    chosen: dict[str, Any] = {name: [None if few else plain(end) for end in each] for name, each in ends.items()}
    chosen |= {name: plain(getattr(choice, name)) for name in ("gain", "optimism", "corrected_gain", "score")}
    sign = 1.0 if better == "higher" else -1.0
    tried = [
        Tried(
            values=dict(values[s]),
            score=say(estimates[s]),
            ci95=one.ends(0),
            gain=say(sign * minus(estimates[s], estimates[usual])),
            share=float(choice.shares[s]),
        )
        for s, one in enumerate(found)
    ]
    return Tuned(
        by=by,
        kind=board.key(by)[0],
        better=better,
        split=split,
        n_cases=len(board.run.case_ids),
        n_units=found[0].n_units,
        cluster=board.config.cluster,
        usual=usual,
        settings=tried,
        chosen=choice.chosen,
        **chosen,
    ).model_dump(by_alias=True)


def _resampled(
    boards: Iterable[Scoreboard], by: str
) -> tuple[list[Resampled], list[FloatArray], Statistic, Scoreboard]:
    """Resample the score of each setting, and sum up its folds. The last board describes the cases of all settings."""
    found, held = [], []
    for board in boards:  # with the run's seed, each resample draws the same cases for all settings
        if by not in board.names:
            raise InputError(expected("tune", "by", "to be a score of the cases", repr(by), nearest(by, board.names)))
        columns, parts = board.choose([board.key(by)])

        def statistic(sums: FloatArray, parts: Statistic = parts) -> FloatArray:
            return join_means(parts(sums))

        found.append(board.resample(columns, statistic))
        held.append(fold_sums(columns, board.config.seed, board.clusters))
    return found, held, statistic, board
