"""two instance maps -> how the prediction cuts the pixels of the target's objects: entropies, and pairs of pixels.

Axis letters: P pairs of objects that share pixels.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import xlogy

from segmeter.metrics.arrays import FloatArray
from segmeter.metrics.objects.matching import Overlaps

Missed = Literal["pixels", "segment"]


@dataclass(frozen=True, kw_only=True)
class PartitionScores:
    """How far the prediction cuts the target's objects apart, and how far it joins them; NaN without such an object.

    Parameters
    ----------
    split, merge
        Variation of information in bits: the entropy of the prediction given the target (objects that are cut in
        parts), and that of the target given the prediction (objects that are joined). 0 is best.
    adapted_rand_error
        1 - the harmonic mean of `precision` and `recall`, 0 to 1; 0 is best.
    precision, recall
        Of the pairs of pixels of one target object, the share that one segment of the prediction holds; and of the
        pairs of pixels of one segment, the share that lies in one target object.
    """

    split: float
    merge: float
    adapted_rand_error: float
    precision: float
    recall: float


def partition_scores(overlaps: Overlaps, missed: Missed = "pixels") -> PartitionScores:
    """Score the partition of the pixels of all target objects by the prediction.

    Parameters
    ----------
    overlaps
        From `find_overlaps`.
    missed
        What the pixels of target objects are that the prediction leaves to the background: "pixels", segments of one
        pixel each, so that an object that is missed is not one that is found whole; or one "segment" more, which is
        scikit-image's rule with ``ignore_labels=[0]``.

    References
    ----------
    Meila 2007, doi:10.1016/j.jmva.2006.11.013 (variation of information). Arganda-Carreras et al. 2015,
    doi:10.3389/fnana.2015.00142 (adapted Rand error).
    """
    joint, rows, columns = count_pixels(overlaps, missed)
    total = rows.sum()
    if not total:
        return PartitionScores(
            split=math.nan, merge=math.nan, adapted_rand_error=math.nan, precision=math.nan, recall=math.nan
        )
    inner, own, other = (float(xlogy(part, part).sum()) for part in (joint, rows, columns))
    pairs, in_target, in_segments = map(count_pairs, (joint, rows, columns))
    return PartitionScores(
        split=max(own - inner, 0.0) / total / math.log(2),
        merge=max(other - inner, 0.0) / total / math.log(2),
        adapted_rand_error=1 - 2 * pairs / (in_target + in_segments) if in_target + in_segments else math.nan,
        precision=pairs / in_target if in_target else math.nan,
        recall=pairs / in_segments if in_segments else math.nan,
    )


def count_pixels(overlaps: Overlaps, missed: Missed) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Pixels in common (P,), of each target object, and of each segment, all within the target's objects.

    Segments of one pixel are left out: they add nothing to entropies and pairs.
    """
    joint, columns = overlaps.common, np.bincount(overlaps.second, overlaps.common, len(overlaps.instance_ids))
    if missed == "segment":
        outside = overlaps.target_sizes - np.bincount(overlaps.first, joint, len(overlaps.target_ids))
        joint, columns = np.concatenate([joint, outside]), np.append(columns, outside.sum())
    return joint.astype(np.float64), overlaps.target_sizes.astype(np.float64), columns.astype(np.float64)


def count_pairs(sizes: FloatArray) -> float:
    """Ordered pairs of pixels within parts of these sizes."""
    return float((sizes * (sizes - 1)).sum())
