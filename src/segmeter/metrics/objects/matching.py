"""Finds pairs of objects that share pixels, matches them, and computes the scores that need no match.

These are the event of each object, the aggregated Jaccard index, and the partition of pixels. Axis letters: P pairs
that overlap, M pairs that match, T objects of the target, I predicted objects.
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

_UNIQUE = 0.5  # objects that do not overlap have at most one partner with a larger IoU (Kirillov et al. 2019)
_DENSE = 1 << 24  # cells: up to here filling a table is quicker than sorting pixels
_BAND = 1 << 20  # pixels that are counted at a time: counting takes some 30 bytes for each


@dataclass(frozen=True, kw_only=True)
class Overlaps:
    """Objects of both maps with their pixels, and the pairs (P,) that share some: indices into the objects.

    Sizes and common pixels exclude void pixels. `mostly_void` marks predicted objects, and is computed before that.
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
    rows = max(1, _BAND * len(target) // max(target.size, 1))
    bands = [slice(top, top + rows) for top in range(0, max(len(target), 1), rows)]
    target_ids, target_sizes = _tally(target[band][_objects(target[band], void, band)] for band in bands)
    instance_ids, instance_sizes = _tally(instances[band][_objects(instances[band], void, band)] for band in bands)
    width = max(len(instance_ids), 1)

    def pair_codes() -> Iterator[IntArray]:
        for band in bands:
            both = _objects(target[band], void, band) & (instances[band] != 0)
            yield _index(target[band][both], target_ids) * width + _index(instances[band][both], instance_ids)

    pairs, common = _tally(pair_codes())
    first, second = np.divmod(pairs, width)
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


def _objects(numbers: NDArray[Any], void: BoolArray | None, band: slice) -> BoolArray:
    """Select the pixels of a band that belong to an object; void ones belong to none."""
    held: BoolArray = numbers != 0
    return held if void is None else held & ~void[band]


def _tally(bands: Iterable[NDArray[Any]]) -> tuple[IntArray, IntArray]:
    """Return the distinct whole numbers of all bands, ascending, and how often each occurs."""
    counted = []
    for values in bands:
        if values.size and values.max() >= _DENSE:
            distinct, counts = np.unique(values, return_counts=True)
            counted.append((distinct.astype(np.int64), counts.astype(np.int64)))
        else:
            counts = np.bincount(values.astype(np.int64, copy=False))
            distinct = np.flatnonzero(counts)
            counted.append((distinct, counts[distinct]))
    if len(counted) == 1:
        return counted[0]
    distinct, places = np.unique(np.concatenate([values for values, _ in counted]), return_inverse=True)
    sums = np.zeros(len(distinct), np.int64)
    np.add.at(sums, places, np.concatenate([counts for _, counts in counted]))
    return distinct, sums


def _index(values: NDArray[Any], known: IntArray) -> IntArray:
    """Return the index of each value in ascending numbers that contain all of them."""
    if known.size and known[-1] < _DENSE:
        place = np.zeros(int(known[-1]) + 1, np.int64)
        place[known] = np.arange(len(known))
        return np.asarray(place[values])
    return np.searchsorted(known, values.astype(np.int64, copy=False)).astype(np.int64)


def label_parts(mask: BoolArray, connectivity: int = 8) -> tuple[NDArray[Any], int]:
    """Number the connected parts of a mask from 1, through corners too (8) or through sides only (4); count them."""
    structure = ndimage.generate_binary_structure(mask.ndim, mask.ndim if connectivity == 8 else 1)
    numbered, count = ndimage.label(mask, structure)
    return numbered, int(count)


def choose_pairs(overlaps: Overlaps, threshold: float) -> IntArray:
    """Return indices of the pairs that match, by ascending target id."""
    iou = overlaps.iou()
    above = np.flatnonzero(iou > threshold)
    if threshold >= _UNIQUE or not above.size:
        return above
    first, second = overlaps.first[above], overlaps.second[above]
    rivals = (np.bincount(first)[first] > 1) | (np.bincount(second)[second] > 1)
    from scipy.optimize import linear_sum_assignment  # a third of a second to load, and seldom needed

    # Only pairs that share objects enter the table, which grows with their number squared.
    rows, first = np.unique(first[rivals], return_inverse=True)
    columns, second = np.unique(second[rivals], return_inverse=True)
    gain, place = np.zeros((len(rows), len(columns))), np.full((len(rows), len(columns)), -1)
    gain[first, second], place[first, second] = iou[above[rivals]], above[rivals]
    found = place[linear_sum_assignment(gain, maximize=True)]
    return np.sort(np.concatenate([above[~rivals], found[found >= 0]]))


def renumber(instances: NDArray[Any], ids: IntArray) -> IntArray:
    """Renumber the objects `ids`, all distinct, 1 to M in this order; everything else becomes 0."""
    numbered = np.zeros(instances.shape, np.int64)
    held = instances != 0
    known = _tally([instances[held]])[0]
    number = np.zeros(len(known), np.int64)
    number[np.searchsorted(known, ids)] = np.arange(1, len(ids) + 1)
    numbered[held] = number[_index(instances[held], known)]
    return numbered


class Events(NamedTuple):
    """The event of each object: matched, missed, spurious, split or merged.

    Parameters
    ----------
    targets : (T,), int64
        Index into `TARGET_EVENTS`.
    instances : (I,), int64
        Index into `INSTANCE_EVENTS`; "void" ones lie mostly in void and are not counted.
    """

    targets: IntArray
    instances: IntArray

    def numbers(self) -> dict[str, int]:
        """Count the objects of each event: the target's, then the predicted ones that are not matched."""
        ours = np.bincount(self.targets, minlength=len(TARGET_EVENTS)).tolist()
        theirs = np.bincount(self.instances, minlength=len(INSTANCE_EVENTS)).tolist()
        return dict(zip(TARGET_EVENTS, ours, strict=True)) | dict(zip(INSTANCE_EVENTS[1:4], theirs[1:4], strict=True))


def find_events(overlaps: Overlaps, chosen: IntArray) -> Events:
    """Classify the objects that are in none of the chosen pairs.

    An object lies in an object of the other map that covers more than half of it; there is at most one. Target objects
    that lie together in one predicted object ("merging") are "merged". A target object in which two or more predicted
    objects ("part"s) lie is "split". Matched objects stay "matched".

    References
    ----------
    Matula et al. 2015, doi:10.1371/journal.pone.0144959 (more than half: the vertices of the Cell Tracking Challenge).
    Caicedo et al. 2019, doi:10.1002/cyto.a.23863 (merges and splits of nuclei).
    """
    n_targets, n_instances = len(overlaps.target_ids), len(overlaps.instance_ids)
    holder, host = np.full(n_targets, -1), np.full(n_instances, -1)
    held = 2 * overlaps.common > overlaps.target_sizes[overlaps.first]
    lies = 2 * overlaps.common > overlaps.instance_sizes[overlaps.second]
    holder[overlaps.first[held]] = overlaps.second[held]
    host[overlaps.second[lies]] = overlaps.first[lies]
    # One more entry, False, is what objects without a holder or host find at -1.
    holds = np.append(np.bincount(holder[holder >= 0], minlength=n_instances) > 1, False)
    parts = np.bincount(host[host >= 0], minlength=n_targets) > 1
    targets = np.full(n_targets, TARGET_EVENTS.index("missed"))
    targets[parts] = TARGET_EVENTS.index("split")
    targets[holds[holder]] = TARGET_EVENTS.index("merged")
    targets[overlaps.first[chosen]] = TARGET_EVENTS.index("matched")
    instances = np.full(n_instances, INSTANCE_EVENTS.index("spurious"))
    instances[overlaps.mostly_void] = INSTANCE_EVENTS.index("void")
    is_split = np.append(targets == TARGET_EVENTS.index("split"), False)
    instances[is_split[host]] = INSTANCE_EVENTS.index("part")
    instances[holds[:-1]] = INSTANCE_EVENTS.index("merging")
    instances[overlaps.second[chosen]] = INSTANCE_EVENTS.index("matched")
    return Events(targets=targets, instances=instances)


def aggregated_jaccard(overlaps: Overlaps) -> tuple[int, int]:
    """Return numerator and denominator of the aggregated Jaccard index, in pixels.

    Every target object takes the prediction with the largest IoU; on a tie, the one that shares most pixels with it.
    Several targets may take the same one. The intersections and the unions of these pairs are added up. Predictions
    that no target took add their pixels to the union, except those that lie mostly in void.

    References
    ----------
    Kumar et al. 2017, IEEE Trans. Med. Imaging 36, Algorithm 1; the measure of the MoNuSeg challenge.
    """
    order = np.lexsort((overlaps.second, -overlaps.common, -overlaps.iou(), overlaps.first))
    taken, place = np.unique(overlaps.first[order], return_index=True)
    best = order[place]
    second, common = overlaps.second[best], int(overlaps.common[best].sum())
    union = int((overlaps.target_sizes[taken] + overlaps.instance_sizes[second]).sum()) - common
    union += int(np.delete(overlaps.target_sizes, taken).sum())
    return common, union + int(overlaps.instance_sizes[overlaps.spurious(best)].sum())


def partition_scores(overlaps: Overlaps, missed: Missed = "pixels") -> tuple[dict[str, float], dict[str, float]]:
    """Score the partition of the pixels of all target objects by the prediction.

    A side without objects is a failure, the worst partition of all. A predicted object counts if it shares pixels with
    the target's, or does not lie mostly in void.

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
        The variation of information in bits, ``voi``, with its parts: ``voi_split``, the entropy of the prediction
        given the target (objects that are cut in parts), and ``voi_merge``, that of the target given the prediction
        (objects that are joined). The adapted Rand error ``are`` is 1 - F1 over pairs of pixels that lie in one target
        object and in one predicted segment. 0 is best, NaN is undefined. Last come the numbers of pairs, from which
        ``are`` of several cases is computed.

    References
    ----------
    Meila 2007, doi:10.1016/j.jmva.2006.11.013 (variation of information). Arganda-Carreras et al. 2015,
    doi:10.3389/fnana.2015.00142 (adapted Rand error).
    """
    # Common pixels (P,), those of each target object and of each segment, all within the target's objects. Segments of
    # one pixel are left out: they add nothing to entropies and pairs.
    joint, rows = overlaps.common.astype(np.float64), overlaps.target_sizes.astype(np.float64)
    columns = np.asarray(np.bincount(overlaps.second, joint, len(overlaps.instance_ids)), np.float64)
    if missed == "segment":
        outside = rows - np.bincount(overlaps.first, joint, len(rows))
        joint, columns = np.concatenate([joint, outside]), np.append(columns, outside.sum())
    spurious = overlaps.spurious(np.arange(len(overlaps.common)))
    held = len(overlaps.target_ids) > 0, bool(overlaps.common.size or spurious.size)
    if not held[0]:
        columns = overlaps.instance_sizes[spurious].astype(np.float64)
    common = _count_pairs(joint) if all(held) else 0.0
    either = _count_pairs(rows) + _count_pairs(columns)
    sums = {"partition_common": common, "partition_pairs": either}
    if not all(held):
        worst = (math.inf, 1.0) if any(held) else (math.nan, math.nan)
        return dict.fromkeys(("voi", "voi_split", "voi_merge"), worst[0]) | {"are": worst[1]}, sums
    inner, own, other = (float(xlogy(part, part).sum()) for part in (joint, rows, columns))
    split, merge = (max(each - inner, 0.0) / rows.sum() / math.log(2) for each in (own, other))
    error = 1 - 2 * common / either if either else math.nan
    return {"voi": split + merge, "voi_split": split, "voi_merge": merge, "are": error}, sums


def _count_pairs(sizes: FloatArray) -> float:
    """Count the ordered pairs of pixels within parts of these sizes."""
    return float((sizes * (sizes - 1)).sum())
