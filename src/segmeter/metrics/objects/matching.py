"""two instance maps -> the pairs of objects that share pixels, and which of them match.

Axis letters: P pairs that overlap, M pairs that match.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from segmeter.metrics.arrays import BoolArray, FloatArray, IntArray

_UNIQUE = 0.5  # objects that do not overlap have at most one partner with a larger IoU (Kirillov et al. 2019)
_DENSE = 1 << 24  # cells of a table that is still quicker to fill than pixels are to sort
_BAND = 1 << 20  # pixels that are counted at a time: counting takes some 30 bytes for each

_Counted = tuple[IntArray, IntArray]  # ids, and how many pixels each has


@dataclass(frozen=True, kw_only=True)
class Overlaps:
    """Objects of both maps with their pixels, and the pairs (P,) that share some: indices into the objects.

    Sizes and common pixels are without void pixels; `mostly_void` is of the predicted objects, counted before.
    """

    target_ids: IntArray
    instance_ids: IntArray
    target_sizes: IntArray
    instance_sizes: IntArray
    first: IntArray
    second: IntArray
    common: IntArray
    mostly_void: BoolArray

    def spurious(self, chosen: IntArray) -> IntArray:
        """Indices of the predicted objects that are in none of the chosen pairs and do not lie mostly in void."""
        alone = ~self.mostly_void
        alone[self.second[chosen]] = False
        return np.flatnonzero(alone)

    def iou(self) -> FloatArray:
        union = self.target_sizes[self.first] + self.instance_sizes[self.second] - self.common
        return self.common / union

    def dice(self) -> FloatArray:
        return 2 * self.common / (self.target_sizes[self.first] + self.instance_sizes[self.second])


def find_overlaps(target: NDArray[Any], instances: NDArray[Any], void: BoolArray | None = None) -> Overlaps:
    """Count each map's objects and the pixels of each pair; ids may be as large as int64.

    Void follows panopticapi's rule wherever objects are matched: a void pixel belongs to no object of
    either map, so it is in no union, and a predicted object without a partner is not spurious where more than half of
    it, as it was predicted, is void.
    """
    rows = max(1, _BAND * len(target) // max(target.size, 1))
    bands = [slice(top, top + rows) for top in range(0, max(len(target), 1), rows)]
    parts = [_share(target[band], instances[band], None if void is None else void[band]) for band in bands]
    excused = np.empty(0, np.int64) if void is None else _find_mostly_void(instances, void, bands)
    shared = parts[0] if len(parts) == 1 else _join(parts)
    return Overlaps(**shared._asdict(), mostly_void=np.isin(shared.instance_ids, excused))


class _Shared(NamedTuple):
    """What `Overlaps` holds, of a band of rows."""

    target_ids: IntArray
    instance_ids: IntArray
    target_sizes: IntArray
    instance_sizes: IntArray
    first: IntArray
    second: IntArray
    common: IntArray


def _share(target: NDArray[Any], instances: NDArray[Any], void: BoolArray | None) -> _Shared:
    if void is not None:
        target, instances = np.where(void, 0, target), np.where(void, 0, instances)
    held = np.flatnonzero(target.reshape(-1)), np.flatnonzero(instances.reshape(-1))
    target_ids, rows, target_sizes = _number(target.reshape(-1)[held[0]])
    instance_ids, columns, instance_sizes = _number(instances.reshape(-1)[held[1]])
    row_of = np.full(target.size, -1, np.int64)
    row_of[held[0]] = rows
    row_of = row_of[held[1]]
    both = row_of >= 0
    codes = row_of[both] * len(instance_ids) + columns[both]
    pairs, common = _tally(codes, len(target_ids) * len(instance_ids))
    first, second = np.divmod(pairs, max(len(instance_ids), 1))
    return _Shared(target_ids, instance_ids, target_sizes, instance_sizes, first, second, common)


def _join(parts: Sequence[_Shared]) -> _Shared:
    """Add up what bands count."""
    target_ids, target_sizes = _add([(part.target_ids, part.target_sizes) for part in parts])
    instance_ids, instance_sizes = _add([(part.instance_ids, part.instance_sizes) for part in parts])
    coded = []
    for part in parts:
        rows, columns = np.searchsorted(target_ids, part.target_ids), np.searchsorted(instance_ids, part.instance_ids)
        coded.append((rows[part.first] * len(instance_ids) + columns[part.second], part.common))
    pairs, common = _add(coded)
    first, second = np.divmod(pairs, max(len(instance_ids), 1))
    return _Shared(target_ids, instance_ids, target_sizes, instance_sizes, first, second, common)


def _add(counted: Sequence[_Counted]) -> _Counted:
    distinct, places = np.unique(np.concatenate([ids for ids, _ in counted]), return_inverse=True)
    sums = np.zeros(len(distinct), np.int64)
    np.add.at(sums, places, np.concatenate([counts for _, counts in counted]))
    return distinct, sums


def _number(ids: NDArray[Any]) -> tuple[IntArray, IntArray, IntArray]:
    """Distinct ids, the place of each pixel's id among them, and their pixels."""
    ids = ids.astype(np.int64, copy=False)
    if ids.size and ids.max() >= _DENSE:
        distinct, places, sizes = np.unique(ids, return_inverse=True, return_counts=True)
        return distinct, places.astype(np.int64), sizes.astype(np.int64)
    tally = np.bincount(ids)
    distinct = np.flatnonzero(tally)
    place = np.cumsum(tally > 0) - 1
    return distinct, place[ids], tally[distinct]


def _tally(codes: IntArray, cells: int) -> tuple[IntArray, IntArray]:
    if cells > _DENSE:
        pairs, common = np.unique(codes, return_counts=True)
        return pairs, common.astype(np.int64)
    tally = np.bincount(codes)
    pairs = np.flatnonzero(tally)
    return pairs, tally[pairs]


def choose_pairs(overlaps: Overlaps, threshold: float) -> IntArray:
    """Indices of the pairs that match, by ascending target id."""
    iou = overlaps.iou()
    above = np.flatnonzero(iou > threshold)
    if threshold >= _UNIQUE or not above.size:
        return above
    first, second = overlaps.first[above], overlaps.second[above]
    rivals = (np.bincount(first)[first] > 1) | (np.bincount(second)[second] > 1)
    return np.sort(np.concatenate([above[~rivals], _assign(overlaps, above[rivals], iou)]))


def _assign(overlaps: Overlaps, rivals: IntArray, iou: FloatArray) -> IntArray:
    """Choose among pairs that share objects; only these are in the table, which grows with their square."""
    from scipy.optimize import linear_sum_assignment  # a third of a second to load, and seldom needed

    rows, first = np.unique(overlaps.first[rivals], return_inverse=True)
    columns, second = np.unique(overlaps.second[rivals], return_inverse=True)
    gain = np.zeros((len(rows), len(columns)))
    gain[first, second] = iou[rivals]
    place = np.full(gain.shape, -1)
    place[first, second] = rivals
    found = place[linear_sum_assignment(gain, maximize=True)]
    return found[found >= 0]


def renumber(instances: NDArray[Any], ids: IntArray) -> IntArray:
    """Renumber the objects `ids`, all distinct, 1 to M in this order; everything else becomes 0."""
    numbered = np.zeros(instances.shape, np.int64)
    held = instances != 0
    known, places, _ = _number(instances[held])
    number = np.zeros(len(known), np.int64)
    number[np.searchsorted(known, ids)] = np.arange(1, len(ids) + 1)
    numbered[held] = number[places]
    return numbered


def _find_mostly_void(instances: NDArray[Any], void: BoolArray, bands: Sequence[slice]) -> IntArray:
    """Ids of the objects that are more than half void."""
    excess = list[_Counted]()  # void pixels less the others, of each object
    for band in bands:
        held = instances[band] != 0
        ids, places, pixels = _number(instances[band][held])
        inside = np.bincount(places, weights=void[band][held], minlength=len(ids)).astype(np.int64)
        excess.append((ids, 2 * inside - pixels))
    ids, more = _add(excess)
    return ids[more > 0]
