"""What torchmetrics and segmentation-models-pytorch get wrong, beside the right figures of ours."""

import math

import numpy as np
import pytest

from segmeter.metrics.pixels.confusion import confusion_matrix
from segmeter.metrics.pixels.overlap import overlap_scores
from segmeter.metrics.surfaces import surface_metrics
from tests.differential.cases import EMPTY, ONE, boxes
from tests.differential.peers import load, quiet
from tests.differential.test_faults import NAN, assert_still, tensor


def corners(shape):
    return boxes(shape, np.s_[2:6, 2:6]), boxes(shape, np.s_[-6:-2, -6:-2])


@pytest.mark.parametrize(
    ("shape", "theirs", "ours"), [((20, 26), 23.706539, 21.633308), ((14, 51), 44.0, 43.416587), ((20, 20), 0, 0)]
)
def test_torchmetrics_hausdorff_of_wide_maps_is_wrong(shape, theirs, ours):
    segmentation = load("torchmetrics.functional.segmentation")
    target, labels = corners(shape)
    found = float(segmentation.hausdorff_distance(tensor(labels), tensor(target), num_classes=2, input_format="index"))
    exact = surface_metrics(target > 0, labels > 0, spacing=(1, 1)).hd
    if shape[0] == shape[1]:
        assert found == pytest.approx(exact, rel=1e-6)  # square maps are right
        return
    assert_still(found, theirs, "torchmetrics")
    assert exact == pytest.approx(ours, rel=1e-6)


def test_torchmetrics_hausdorff_of_tall_maps_crashes():
    segmentation = load("torchmetrics.functional.segmentation")
    target, labels = corners((26, 20))
    with pytest.raises(IndexError, match="out of bounds"):
        segmentation.hausdorff_distance(tensor(labels), tensor(target), num_classes=2, input_format="index")
    assert surface_metrics(target > 0, labels > 0, spacing=(1, 1)).hd == pytest.approx(21.633308, rel=1e-6)


def test_torchmetrics_hausdorff_of_nothing_crashes():
    segmentation = load("torchmetrics.functional.segmentation")
    square = np.zeros((9, 9), np.uint8)
    with pytest.raises(RuntimeError):
        segmentation.hausdorff_distance(tensor(square), tensor(square), num_classes=2, input_format="index")


def test_torchmetrics_segmentation_has_no_ignore_index():
    segmentation = load("torchmetrics.functional.segmentation")
    target = ONE.copy()
    target[0] = 255
    for call in ("mean_iou", "dice_score"):
        with pytest.raises(RuntimeError, match="must be smaller than num_classes"):
            getattr(segmentation, call)(tensor(ONE), tensor(target), num_classes=2, input_format="index")
    assert overlap_scores(confusion_matrix(target, ONE, num_classes=2, ignore_index=255)).mean_iou == 1


def test_torchmetrics_marks_an_absent_class_as_minus_one():
    segmentation = load("torchmetrics.functional.segmentation")
    found = segmentation.mean_iou(tensor(EMPTY), tensor(EMPTY), num_classes=2, input_format="index", per_class=True)
    assert_still(found[0], [1.0, -1.0], "torchmetrics")


def smp_scores(target, labels, num_classes, reduction, **options):
    smp = load("segmentation_models_pytorch.metrics", "segmentation_models_pytorch")
    stats = smp.get_stats(tensor(labels), tensor(target), mode="multiclass", num_classes=num_classes)
    with quiet():
        return float(smp.iou_score(*stats, reduction=reduction, **options))


@pytest.mark.parametrize("reduction", ["weighted-imagewise", "macro", "macro-imagewise"])
def test_smp_with_weights_gives_a_perfect_prediction_a_quarter(reduction):
    """It divides equal weights by the number of classes twice."""
    target = np.tile(np.arange(4, dtype=np.uint8), (4, 1))
    found = smp_scores(target, target, 4, reduction, class_weights=[1.0] * 4)
    assert_still(found, 0.25, "segmentation_models_pytorch")
    assert overlap_scores(confusion_matrix(target, target, num_classes=4)).frequency_weighted_iou == 1


@pytest.mark.parametrize(("reduction", "theirs"), [("micro", NAN), ("macro", 1.0), ("micro-imagewise", 1.0)])
def test_smp_of_nothing_depends_on_the_reduction(reduction, theirs):
    smp = load("segmentation_models_pytorch.metrics", "segmentation_models_pytorch")
    stats = smp.get_stats(tensor(EMPTY)[None], tensor(EMPTY)[None], mode="binary")
    with quiet():
        assert_still(float(smp.iou_score(*stats, reduction=reduction)), theirs, "segmentation_models_pytorch")


def test_smp_counts_an_absent_class_as_perfect():
    assert_still(smp_scores(EMPTY, EMPTY, 2, "macro"), 1.0, "segmentation_models_pytorch")
    scores = overlap_scores(confusion_matrix(EMPTY, EMPTY, num_classes=2))
    assert math.isnan(scores.iou[1])
    assert scores.n_undefined == 1
