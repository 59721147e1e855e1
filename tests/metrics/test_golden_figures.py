"""The figures that MetricsReloaded's own tests expect (Maier-Hein, Reinke et al.), on the masks that they describe.

Scores of counts are compared with scikit-learn to 1e-6, in `tests/differential/test_overlap.py`.
"""

import math

import numpy as np
import pytest

from segmeter.metrics.pixels.confusion import confusion_matrix
from segmeter.metrics.pixels.overlap import overlap_scores
from segmeter.metrics.surfaces import surface_metrics


def boxes(shape, *corners):
    """A mask of boxes, each given by its first and last row and column, the last not included."""
    mask = np.zeros(shape, bool)
    for top, bottom, left, right in corners:
        mask[top:bottom, left:right] = True
    return mask


def counts_of(target, mask):
    return confusion_matrix(target.astype(np.uint8), mask.astype(np.uint8), num_classes=2)


def counted(tp, fn, fp, tn):
    """Scores of class 1 in a table of two."""
    return overlap_scores(np.array([[tn, fp], [fn, tp]]))


SQUARE = boxes((14, 14), (5, 9, 5, 9))
INNER, OUTER = boxes((14, 14), (6, 8, 6, 8)), boxes((14, 14), (4, 10, 4, 10))
BOX = boxes((11, 11), (3, 8, 3, 8))
CROSS = BOX | boxes((11, 11), (5, 6, 1, 10), (1, 10, 5, 6))


@pytest.mark.parametrize(
    ("mask", "hd", "assd", "masd", "nsd"),
    [(INNER, 1.41, 1.10, 1.07, 0.75), (OUTER, 1.41, 1.05, 1.04, 0.875)],
    ids=["eroded", "dilated"],
)
def test_a_square_outlined_too_small_and_too_large(mask, hd, assd, masd, nsd):
    found = surface_metrics(SQUARE, mask, spacing=(1, 1), tolerances=(1,))
    for value, expected in ((found.hd, hd), (found.assd, assd), (found.masd, masd), (found.nsd[0], nsd)):
        assert value == pytest.approx(expected, abs=0.006)


@pytest.mark.parametrize(("mask", "dice", "iou"), [(INNER, 0.4, 0.25), (OUTER, 32 / 52, 16 / 36)])
def test_counts_of_the_same_squares(mask, dice, iou):
    counts = counts_of(SQUARE, mask)
    expected = [[180, 0], [12, 4]] if mask is INNER else [[160, 20], [0, 16]]
    np.testing.assert_array_equal(counts, expected)
    scores = overlap_scores(counts)
    assert (scores.dice[1], scores.iou[1]) == pytest.approx((dice, iou))


def test_one_stray_pixel_of_the_reference_moves_hd_more_than_hd95():
    target, mask = boxes((14, 14), (1, 2, 1, 2), (9, 12, 9, 12)), boxes((14, 14), (9, 12, 9, 12))
    found = surface_metrics(target, mask, spacing=(1, 1))
    assert (found.hd, found.hd95) == pytest.approx((11.31, 6.79), abs=0.006)


def test_a_box_with_a_cross_over_it():
    found = surface_metrics(BOX, CROSS, spacing=(1, 1), tolerances=(1, 2))
    assert (found.assd, found.masd) == pytest.approx((0.44, 0.425), abs=0.005)
    assert found.nsd == pytest.approx([0.89, 1.0], abs=0.005)
    scores = overlap_scores(counts_of(BOX, CROSS))
    assert (scores.dice[1], scores.iou[1]) == pytest.approx((0.862, 0.76), abs=0.003)


def test_a_large_class_hides_a_missing_small_one():
    scores = counted(1499, 500, 0, 1)
    assert (scores.mcc, scores.kappa) == pytest.approx((0.0386, 0.003), abs=0.001)
    rare, nothing = counted(3, 0, 3, 94), counted(0, 3, 0, 97)
    assert (rare.specificity[1], nothing.specificity[1]) == pytest.approx((0.97, 1.0), abs=0.002)
    assert (rare.recall[1], nothing.recall[1]) == (1, 0)
    assert math.isnan(nothing.precision[1])
