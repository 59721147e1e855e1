"""Finds pairs of objects that share pixels, matches them, and classifies the objects that have no match.

It also computes the scores that need no matching: the aggregated Jaccard index and the scores of a partition. Axis
letters: P pairs that overlap, M pairs that match, T objects of the target, I predicted objects.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from scipy.special import xlogy

from segmeter.metrics.arrays import BoolArray, FloatArray, IntArray

Missed = Literal["pixels", "segment"]

TARGET_EVENTS = ("matched", "split", "merged", "missed")
INSTANCE_EVENTS = ("matched", "part", "merging", "spurious", "void")

_UNIQUE = 0.5  # Above this IoU, an object has at most one partner (Kirillov et al. 2019).
_DENSE = 1 << 24  # Filling a table of up to this many cells is quicker than sorting pixels.
_BAND = 1 << 20  # Count this many pixels at a time: counting takes some 30 bytes for each.


@dataclass(frozen=True, kw_only=True)
class Overlaps:
    """The objects of both maps, and the pairs (P,) that share pixels.

    A pair is an index into the target's objects (`first`), one into the predicted objects (`second`), and their
    `common` pixels. Sizes and common pixels exclude void pixels. `mostly_void` marks the predicted objects of which
    more than half was void before that.
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
        """Return indices of the predicted objects that are in none of the chosen pairs and don't lie mostly in void."""
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

    Void follows panopticapi's rule wherever objects are matched: a void pixel belongs to no object of either map, so it
    is in no union. A predicted object without a partner is not spurious if more than half of its original pixels are
    void.
    """
    lines = max(1, _BAND * len(target) // max(target.size, 1))
    bands = [slice(top, top + lines) for top in range(0, max(len(target), 1), lines)]
    target_ids, target_sizes = _tally(target[band][_is_object(target[band], void, band)] for band in bands)
    instance_ids, instance_sizes = _tally(instances[band][_is_object(instances[band], void, band)] for band in bands)
    width = max(len(instance_ids), 1)

    def pair_codes() -> Iterator[IntArray]:
        for band in bands:
            in_both = _is_object(target[band], void, band) & (instances[band] != 0)
            yield _index(target[band][in_both], target_ids) * width + _index(instances[band][in_both], instance_ids)

    codes, common = _tally(pair_codes())
    first, second = np.divmod(codes, width)
    mostly_void = np.zeros(len(instance_ids), bool)
    if void is not None:
        ids, pixels = _tally(instances[band][instances[band] != 0] for band in bands)
        mostly_void = 2 * instance_sizes < pixels[_index(instance_ids, ids)]
    return Overlaps(
        target_ids=target_ids,
        instance_ids=instance_ids,
        target_sizes=target_sizes,
        instance_sizes=instance_sizes,
        first=first,
        second=second,
        common=common,
        mostly_void=mostly_void,
    )


def _is_object(numbers: NDArray[Any], void: BoolArray | None, band: slice) -> BoolArray:
    """Mark the pixels of a band that belong to an object; void pixels belong to none."""
    numbered: BoolArray = numbers != 0
    return numbered if void is None else numbered & ~void[band]


def _tally(bands: Iterable[NDArray[Any]]) -> tuple[IntArray, IntArray]:
    """Return the distinct whole numbers of all bands, ascending, and how often each occurs."""
    tallies = []
    for values in bands:
        if values.size and values.max() >= _DENSE:
            distinct, counts = np.unique(values, return_counts=True)
            tallies.append((distinct.astype(np.int64), counts.astype(np.int64)))
        else:
            counts = np.bincount(values.astype(np.int64, copy=False))
            distinct = np.flatnonzero(counts)
            tallies.append((distinct, counts[distinct]))
    if len(tallies) == 1:
        return tallies[0]
    distinct, indices = np.unique(np.concatenate([values for values, _ in tallies]), return_inverse=True)
    sums = np.zeros(len(distinct), np.int64)
    np.add.at(sums, indices, np.concatenate([counts for _, counts in tallies]))
    return distinct, sums


def _index(values: NDArray[Any], distinct: IntArray) -> IntArray:
    """Return the index of each value in the distinct numbers, which ascend and contain all values."""
    if distinct.size and distinct[-1] < _DENSE:
        index_of = np.zeros(int(distinct[-1]) + 1, np.int64)
        index_of[distinct] = np.arange(len(distinct))
        return np.asarray(index_of[values])
    return np.searchsorted(distinct, values.astype(np.int64, copy=False)).astype(np.int64)


def label_parts(mask: BoolArray, connectivity: int = 8) -> tuple[NDArray[Any], int]:
    """Number the connected parts of a mask from 1, and count them. Pixels connect through sides, and with 8 through
    corners too.
    """
    structure = ndimage.generate_binary_structure(mask.ndim, mask.ndim if connectivity == 8 else 1)
    numbered, count = ndimage.label(mask, structure)
    return numbered, int(count)


def choose_pairs(overlaps: Overlaps, threshold: float) -> IntArray:
    """Return the indices of the pairs that match, by ascending target id."""
    iou = overlaps.iou()
    above = np.flatnonzero(iou > threshold)
    if threshold >= _UNIQUE or not above.size:
        return above
    first, second = overlaps.first[above], overlaps.second[above]
    rivals = (np.bincount(first)[first] > 1) | (np.bincount(second)[second] > 1)
    from scipy.optimize import linear_sum_assignment  # a third of a second to load, and seldom needed

    # Only pairs that share objects enter the table, which grows with their number squared.
    targets, row = np.unique(first[rivals], return_inverse=True)
    instances, column = np.unique(second[rivals], return_inverse=True)
    gains = np.zeros((len(targets), len(instances)))
    gains[row, column] = iou[above[rivals]]
    pairs = np.full(gains.shape, -1)
    pairs[row, column] = above[rivals]
    assigned = pairs[linear_sum_assignment(gains, maximize=True)]
    return np.sort(np.concatenate([above[~rivals], assigned[assigned >= 0]]))


def renumber(instances: NDArray[Any], ids: IntArray) -> IntArray:
    """Renumber the objects with these distinct ids as 1 to M, in this order; everything else becomes 0."""
    renumbered = np.zeros(instances.shape, np.int64)
    is_object = instances != 0
    old_ids = _tally([instances[is_object]])[0]
    new_ids = np.zeros(len(old_ids), np.int64)
    new_ids[np.searchsorted(old_ids, ids)] = np.arange(1, len(ids) + 1)
    renumbered[is_object] = new_ids[_index(instances[is_object], old_ids)]
    return renumbered


class Events(NamedTuple):
    """The event of each object: matched, missed, spurious, split or merged.

    Parameters
    ----------
    targets : (T,), int64
        Index into `TARGET_EVENTS`.
    instances : (I,), int64
        Index into `INSTANCE_EVENTS`. "void" objects lie mostly in void and are not counted.
    """

    targets: IntArray
    instances: IntArray

    def numbers(self) -> dict[str, int]:
        """Count the objects of each event: the target's, then the predicted ones that are not matched."""
        targets = np.bincount(self.targets, minlength=len(TARGET_EVENTS)).tolist()
        instances = np.bincount(self.instances, minlength=len(INSTANCE_EVENTS)).tolist()
        unmatched = zip(INSTANCE_EVENTS[1:4], instances[1:4], strict=True)
        return dict(zip(TARGET_EVENTS, targets, strict=True)) | dict(unmatched)


def find_events(overlaps: Overlaps, chosen: IntArray) -> Events:
    """Classify the objects that are in none of the chosen pairs.

    An object lies in the object of the other map that covers more than half of it; there is at most one. If several
    target objects lie in one predicted object, they are "merged", and the predicted object is "merging". If several
    predicted objects lie in one target object, it is "split", and each of them is a "part". Matched objects stay
    "matched".

    References
    ----------
    Matula et al. 2015, doi:10.1371/journal.pone.0144959 (more than half: the vertices of the Cell Tracking Challenge).
    Caicedo et al. 2019, doi:10.1002/cyto.a.23863 (merges and splits of nuclei).
    """
    n_targets, n_instances = len(overlaps.target_ids), len(overlaps.instance_ids)
    target_lies_in, instance_lies_in = np.full(n_targets, -1), np.full(n_instances, -1)
    covers_target = 2 * overlaps.common > overlaps.target_sizes[overlaps.first]
    covers_instance = 2 * overlaps.common > overlaps.instance_sizes[overlaps.second]
    target_lies_in[overlaps.first[covers_target]] = overlaps.second[covers_target]
    instance_lies_in[overlaps.second[covers_instance]] = overlaps.first[covers_instance]
    # The last entry, False, is for objects that lie in none: their index is -1.
    merges = np.append(np.bincount(target_lies_in[target_lies_in >= 0], minlength=n_instances) > 1, False)
    splits = np.bincount(instance_lies_in[instance_lies_in >= 0], minlength=n_targets) > 1
    targets = np.full(n_targets, TARGET_EVENTS.index("missed"))
    targets[splits] = TARGET_EVENTS.index("split")
    targets[merges[target_lies_in]] = TARGET_EVENTS.index("merged")
    targets[overlaps.first[chosen]] = TARGET_EVENTS.index("matched")
    instances = np.full(n_instances, INSTANCE_EVENTS.index("spurious"))
    instances[overlaps.mostly_void] = INSTANCE_EVENTS.index("void")
    is_split = np.append(targets == TARGET_EVENTS.index("split"), False)
    instances[is_split[instance_lies_in]] = INSTANCE_EVENTS.index("part")
    instances[merges[:-1]] = INSTANCE_EVENTS.index("merging")
    instances[overlaps.second[chosen]] = INSTANCE_EVENTS.index("matched")
    return Events(targets=targets, instances=instances)


def aggregated_jaccard(overlaps: Overlaps) -> tuple[int, int]:
    """Return the numerator and the denominator of the aggregated Jaccard index, in pixels.

    Every target object takes the predicted object with the largest IoU, and on a tie the one that shares most pixels.
    Several targets may take the same one. The intersections and the unions of these pairs are added up. A predicted
    object that no target took adds its pixels to the union, unless it lies mostly in void.

    References
    ----------
    Kumar et al. 2017, IEEE Trans. Med. Imaging 36, Algorithm 1; the measure of the MoNuSeg challenge.
    """
    order = np.lexsort((overlaps.second, -overlaps.common, -overlaps.iou(), overlaps.first))
    targets, start = np.unique(overlaps.first[order], return_index=True)
    best = order[start]
    common = int(overlaps.common[best].sum())
    union = int((overlaps.target_sizes[targets] + overlaps.instance_sizes[overlaps.second[best]]).sum()) - common
    union += int(np.delete(overlaps.target_sizes, targets).sum())
    return common, union + int(overlaps.instance_sizes[overlaps.spurious(best)].sum())


def partition_scores(overlaps: Overlaps, missed: Missed = "pixels") -> tuple[dict[str, float], dict[str, float]]:
    """Score the partition of the pixels of all target objects by the prediction.

    If exactly one side has no objects, that is a failure, the worst partition of all. A predicted object counts if it
    shares pixels with a target object or does not lie mostly in void.

    Parameters
    ----------
    overlaps
        From `find_overlaps`.
    missed
        How to treat pixels of target objects that are predicted as background. With "pixels", each is a segment of its
        own, so that a missed object does not count as found whole. With "segment", all are one more segment, which is
        scikit-image's rule with ``ignore_labels=[0]``.

    Returns
    -------
    tuple
        The scores of the case, and the sums over cases. The scores are the variation of information in bits, ``voi``,
        with its two parts, and the adapted Rand error, ``are``. ``voi_split`` is the entropy of the prediction given
        the target (objects that are cut in parts). ``voi_merge`` is the entropy of the target given the prediction
        (objects that are joined). ``are`` is 1 - F1 over pairs of pixels that lie in one target object and in one
        predicted segment. 0 is best, NaN is undefined. The sums are numbers of pairs, from which ``are`` of several
        cases is computed.

    References
    ----------
    Meila 2007, doi:10.1016/j.jmva.2006.11.013 (variation of information). Arganda-Carreras et al. 2015,
    doi:10.3389/fnana.2015.00142 (adapted Rand error).
    """
    # Pixels of each pair (P,), of each target object and of each predicted segment, all within the target's objects.
    # Segments of one pixel are left out: they add nothing to entropies and pairs.
    joint, targets = overlaps.common.astype(np.float64), overlaps.target_sizes.astype(np.float64)
    segments = np.asarray(np.bincount(overlaps.second, joint, len(overlaps.instance_ids)), np.float64)
    if missed == "segment":
        uncovered = targets - np.bincount(overlaps.first, joint, len(targets))
        joint = np.concatenate([joint, uncovered])
        segments = np.append(segments, uncovered.sum())
    spurious = overlaps.spurious(np.arange(len(overlaps.common)))
    sides_have_objects = len(overlaps.target_ids) > 0, bool(overlaps.common.size or spurious.size)
    if not sides_have_objects[0]:
        segments = overlaps.instance_sizes[spurious].astype(np.float64)
    common_pairs = _count_pairs(joint) if all(sides_have_objects) else 0.0
    all_pairs = _count_pairs(targets) + _count_pairs(segments)
    sums = {"partition_common": common_pairs, "partition_pairs": all_pairs}
    if not all(sides_have_objects):
        voi, error = (math.inf, 1.0) if any(sides_have_objects) else (math.nan, math.nan)
        return dict.fromkeys(("voi", "voi_split", "voi_merge"), voi) | {"are": error}, sums
    of_pairs, of_targets, of_segments = (float(xlogy(sizes, sizes).sum()) for sizes in (joint, targets, segments))
    split, merge = (max(each - of_pairs, 0.0) / targets.sum() / math.log(2) for each in (of_targets, of_segments))
    error = 1 - 2 * common_pairs / all_pairs if all_pairs else math.nan
    return {"voi": split + merge, "voi_split": split, "voi_merge": merge, "are": error}, sums


def _count_pairs(sizes: FloatArray) -> float:
    """Count the ordered pairs of pixels within parts of these sizes."""
    return float((sizes * (sizes - 1)).sum())
