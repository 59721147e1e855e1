"""overlaps of the objects of two maps -> the aggregated Jaccard index."""

import numpy as np

from segmeter.metrics.objects.matching import Overlaps


def aggregated_jaccard(overlaps: Overlaps) -> tuple[int, int]:
    """Numerator and denominator of the aggregated Jaccard index, in pixels.

    Every target object takes the prediction with the largest IoU, of several the one that shares most pixels with it;
    several may take the same one. The intersections and the unions of these pairs are added up. Predictions that no
    target took add their pixels to the union, except those that lie mostly in void.

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
