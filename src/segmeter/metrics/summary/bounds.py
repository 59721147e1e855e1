"""The bounds that a gate decides, one interval each, and the columns whose sums give their scores.

A mean over cases of which some are infinite has two: their share, and the mean of the finite ones. Axis letters: N
cases, R sums (one per resample), B slices, C columns of the scores of the data set, M means over cases.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from segmeter.metrics.arrays import BoolArray, FloatArray
from segmeter.metrics.config.requirements import Requirement
from segmeter.metrics.pixels.overlap import divide
from segmeter.metrics.statistics.lazy_columns import Columns
from segmeter.metrics.summary.scoreboard import Scoreboard


@dataclass(frozen=True, kw_only=True)
class Bound:
    """A bound that an interval of its own decides: a requirement, or what it asks of infinite values.

    Parameters
    ----------
    requirement
        With ``infinite`` where it is about the share of cases whose value is infinite.
    members
        The cases (N,) that it is about.
    counted
        Of a mean over cases, those that count for the base and for the new run; None for a score of the data set.
    lost
        How many cases had a value in the base alone.
    numbers
        What the entry says of the cases.
    """

    requirement: Requirement
    members: BoolArray
    counted: tuple[BoolArray, BoolArray] | None = None
    lost: int = 0
    numbers: Mapping[str, Any] = field(default_factory=dict)

    def column(self, board: Scoreboard, run: int, *, number: bool) -> FloatArray:
        """Values (N,) of one run, 0 where they don't count; or the number of values, 1 where they do."""
        assert self.counted is not None
        if number:
            return self.counted[run].astype(np.float64)
        values = board.values[self.requirement.metric]
        return np.where(self.counted[run], np.isinf(values) if self.requirement.infinite else values, 0.0)


def find_bounds(one: Requirement, base: Scoreboard, new: Scoreboard, members: BoolArray) -> list[Bound]:
    """Split a requirement of a mean over cases where values are infinite: these are counted, the others averaged.

    Infinite values, as of a missed object, can't be subtracted. That there are no more of them than in the base is one
    bound, and the mean of the finite ones another: of the cases that are finite in both runs, or for a fixed bound of
    those that are in the new one.
    """
    if one.metric in base.whole and not one.per_case:
        return [Bound(requirement=one, members=members)]
    had, has = (np.where(members, board.values[one.metric], np.nan) for board in (base, new))
    infinite, known = (np.isinf(had), np.isinf(has)), (np.isfinite(had), np.isfinite(has))
    used = known[0] & known[1] if one.factor else known[1]
    numbers: dict[str, Any] = {"n_used": int(used.sum())}
    numbers["n_undefined"] = int((members & ~used & ~infinite[0] & ~infinite[1]).sum())
    if infinite[0].any() or infinite[1].any():
        base_count, new_count = (int(each.sum()) for each in infinite)
        numbers["n_infinite"] = {"base": base_count, "new": new_count, "cases": int(members.sum())}
    lost = int((known[0] & np.isnan(has)).sum())
    failing = infinite[1].any() or (infinite[0].any() and one.factor != 0)
    found = []
    if used.any() or not failing:
        counted = (used & known[0], used)
        found.append(Bound(requirement=one, members=members, counted=counted, lost=lost, numbers=numbers))
    if failing:
        share = replace(one, infinite=True, factor=1.0 if one.factor else 0.0, offset=0.0)
        numbers = numbers | {"n_used": int(members.sum()), "n_undefined": 0}
        found.append(Bound(requirement=share, members=members, counted=(members, members), numbers=numbers))
    return found


@dataclass(frozen=True, kw_only=True)
class BoundColumns:
    """Columns of both runs whose sums give the scores of all bounds.

    The first are those of the scores of the data set, for the cases of each slice (B, 2, C); then a sum and a number
    for each run of every mean (M, 2, 2).
    """

    boards: tuple[Scoreboard, Scoreboard]
    bounds: list[Bound]
    blocks: dict[tuple[str, str] | None, BoolArray]

    @property
    def means(self) -> list[Bound]:
        return [bound for bound in self.bounds if bound.counted is not None]

    def columns(self) -> Columns:
        """One at a time, as all of them together may not fit."""
        base = self.boards[0]
        width, members, means = base.columns.width, list(self.blocks.values()), self.means
        split = 2 * len(members) * width

        def make(place: int) -> FloatArray:
            if place < split:
                block, rest = divmod(place, 2 * width)
                run, column = divmod(rest, width)
                found: FloatArray = self.boards[run].columns.make(column) * members[block]
                return found.astype(np.float64)
            mean, kind = divmod(place - split, 4)
            run, number = divmod(kind, 2)
            return means[mean].column(self.boards[run], run, number=bool(number))

        shape = (split + 4 * len(means),)
        return Columns(count=len(base.case_ids), shape=shape, dtype=np.dtype(np.float64), make=make)

    def scores(self, sums: FloatArray) -> FloatArray:
        """Sums (R, W) to the scores of base and new run (R, 2, number of bounds)."""
        board, count = self.boards[0], len(sums)
        split = 2 * len(self.blocks) * board.columns.width
        found = np.empty((count, 2, len(self.bounds)))
        if self.blocks:
            flat = np.ascontiguousarray(sums[:, :split].reshape(-1, board.columns.width))
            whole = board.score(flat).reshape(count, len(self.blocks), 2, -1)
        means = sums[:, split:].reshape(count, -1, 2, 2)
        means, blocks, mean = divide(means[..., 0], means[..., 1]), list(self.blocks), 0
        for i, bound in enumerate(self.bounds):
            if bound.counted is None:
                place = board.whole.index(bound.requirement.metric)
                found[:, :, i] = whole[:, blocks.index(bound.requirement.slice), :, place]
            else:
                found[:, :, i], mean = means[:, mean], mean + 1
        return found
