"""Counts and overlap scores equal those of scikit-learn, torchmetrics, MONAI, SMP, medpy and panoptica, run live."""

from functools import cache

import numpy as np
import pytest

from segmeter.metrics.pixels.confusion import confusion_matrix, multilabel_counts
from segmeter.metrics.pixels.overlap import overlap_scores
from tests.differential.cases import BOTH_HOLD_ONE, IGNORED, MANY_CLASSES, Case, assert_agree, sweep
from tests.differential.peers import load, one_hot, quiet, tensors

CLASSES = 5


@cache
def pairs(ignored: float = 0.0) -> tuple[Case, ...]:
    table = (*BOTH_HOLD_ONE, MANY_CLASSES) if not ignored else (IGNORED,)
    return (*table, *sweep(num_classes=CLASSES, ignored=ignored))


def count(case):
    return confusion_matrix(case.target, case.labels, **case.counting)


def kept(case):
    """Flat target and labels without the ignored pixels: what a tool without ignore_index has to be given."""
    held = np.ones(case.target.shape, bool) if case.ignore_index is None else case.target != case.ignore_index
    return case.target[held], case.labels[held]


def equal_in_every_case(theirs, ignored=0.0):
    """`theirs` gives a tool's figures of a case by our names, or those of class 1 alone."""
    for case in pairs(ignored):
        ours = overlap_scores(count(case))
        with quiet():
            figures = theirs(case)
        for name, value in figures.items():
            mine = getattr(ours, name)
            assert_agree(mine if np.ndim(value) == mine.ndim else mine[1], value, (case, name))


with_and_without_ignored_pixels = pytest.mark.parametrize(
    "ignored", [0.0, 0.1], ids=["all pixels", "with ignore_index"]
)


@with_and_without_ignored_pixels
def test_counts(ignored):
    sklearn = load("sklearn.metrics", "scikit-learn")
    torchmetrics = load("torchmetrics.functional.classification")
    smp = load("segmentation_models_pytorch.metrics", "segmentation_models_pytorch")
    for case in pairs(ignored):
        ours, given = count(case), tensors(case.labels, case.target)
        theirs = sklearn.confusion_matrix(*kept(case), labels=np.arange(case.num_classes))
        np.testing.assert_array_equal(ours, theirs, err_msg=str(case))
        theirs = torchmetrics.multiclass_confusion_matrix(*given, **case.counting)
        np.testing.assert_array_equal(ours, theirs, err_msg=str(case))
        tp, fp, fn, _ = (part[0].numpy() for part in smp.get_stats(*given, mode="multiclass", **case.counting))
        of_ours = ours.diagonal(), ours.sum(axis=0), ours.sum(axis=1)
        np.testing.assert_array_equal(of_ours, (tp, tp + fp, tp + fn), err_msg=str(case))


@with_and_without_ignored_pixels
def test_scores_of_scikit_learn(ignored):
    sklearn = load("sklearn.metrics", "scikit-learn")

    def theirs(case):
        classes, flat = np.arange(case.num_classes), kept(case)
        options = {"labels": classes, "average": None}
        undefined = options | {"zero_division": np.nan}
        return {
            "iou": sklearn.jaccard_score(*flat, **options),
            "dice": sklearn.f1_score(*flat, **undefined),
            "precision": sklearn.precision_score(*flat, **undefined),
            "recall": sklearn.recall_score(*flat, **undefined),
            "specificity": [sklearn.recall_score(*(one != k for one in flat)) for k in classes],  # recall of the rest
            "pixel_accuracy": sklearn.accuracy_score(*flat),
            "balanced_accuracy": sklearn.balanced_accuracy_score(*flat),
            "frequency_weighted_iou": sklearn.jaccard_score(*flat, average="weighted"),
            "kappa": sklearn.cohen_kappa_score(*flat),
            "mcc": sklearn.matthews_corrcoef(*flat),
        }

    equal_in_every_case(theirs, ignored)


@with_and_without_ignored_pixels
def test_scores_of_torchmetrics(ignored):
    peer = load("torchmetrics.functional.classification")
    names = {"iou": "jaccard_index", "dice": "f1_score", "precision": "precision", "specificity": "specificity"}
    # float32 differences of nearly equal numbers: their last digits are rounding
    rounded = {"kappa": "cohen_kappa", "mcc": "matthews_corrcoef"}
    for case in pairs(ignored):
        ours, given, options = overlap_scores(count(case)), tensors(case.labels, case.target), case.counting
        for name, call in names.items():
            theirs = getattr(peer, f"multiclass_{call}")(*given, **options, average="none")
            assert_agree(getattr(ours, name), theirs, (case, name))
        recall = np.nan_to_num(ours.recall)  # a class that is not there: we say undefined, torchmetrics says 0
        assert_agree(recall, peer.multiclass_recall(*given, **options, average="none"), case)
        assert_agree(ours.mean_iou, peer.multiclass_jaccard_index(*given, **options), case)
        assert_agree(ours.pixel_accuracy, peer.multiclass_accuracy(*given, **options, average="micro"), case)
        for name, call in rounded.items():
            assert_agree(getattr(ours, name), getattr(peer, f"multiclass_{call}")(*given, **options), case, atol=1e-6)


def test_segmentation_scores_of_torchmetrics():
    segmentation = load("torchmetrics.functional.segmentation")

    def theirs(case):
        given, options = tensors(case.labels, case.target), {"num_classes": case.num_classes, "input_format": "index"}
        return {
            "iou": segmentation.mean_iou(*given, **options, per_class=True)[0],
            "mean_iou": segmentation.mean_iou(*given, **options)[0],
            "dice": segmentation.dice_score(*given, **options, average="none")[0],
        }

    equal_in_every_case(theirs)


def test_scores_of_monai():
    monai = load("monai.metrics")
    names = {"precision": "precision", "recall": "sensitivity", "specificity": "specificity", "dice": "f1 score"}

    def theirs(case):
        given = one_hot(case)
        dice = monai.compute_dice(*given, ignore_empty=False)[0]
        counts = monai.get_confusion_matrix(*given)
        found = {name: monai.compute_confusion_matrix_metric(its, counts)[0] for name, its in names.items()}
        assert_agree(found["dice"], dice, case)
        return found | {"iou": monai.compute_iou(*given, ignore_empty=False)[0]}

    equal_in_every_case(theirs)


def test_reductions_of_smp():
    """They are ours under other names, over the counts of a batch of images."""
    smp = load("segmentation_models_pytorch.metrics", "segmentation_models_pytorch")
    cases = [case for case in pairs() if case.num_classes == CLASSES]
    parts = [
        smp.get_stats(*tensors(case.labels, case.target), mode="multiclass", num_classes=CLASSES) for case in cases
    ]
    stats = [load("torch").cat(part) for part in zip(*parts, strict=True)]
    counts = np.stack([count(case) for case in cases])
    each, whole, total = overlap_scores(counts), overlap_scores(counts.sum(axis=0)), counts.sum()
    hits = np.trace(counts.sum(axis=0))
    for reduction, iou, dice in (
        ("macro", whole.mean_iou, whole.mean_dice),
        ("macro-imagewise", each.mean_iou.mean(), each.mean_dice.mean()),
        ("micro", hits / (2 * total - hits), whole.pixel_accuracy),  # of all decisions
    ):
        assert_agree(iou, smp.iou_score(*stats, reduction=reduction), reduction)
        assert_agree(dice, smp.f1_score(*stats, reduction=reduction), reduction)
    weighted = smp.iou_score(*stats, reduction="weighted", class_weights=whole.support.tolist())
    assert_agree(whole.frequency_weighted_iou, weighted)


def test_multilabel_counts_of_scikit_learn():
    sklearn = load("sklearn.metrics", "scikit-learn")
    cases = list(sweep(volumes=False, seed=3))
    for first, second in zip(cases[::2], cases[1::2], strict=True):  # two classes of one image
        height, width = np.minimum(first.target.shape, second.target.shape)
        target = np.stack([one.target[:height, :width] for one in (first, second)])
        labels = np.stack([one.labels[:height, :width] for one in (first, second)])
        theirs = sklearn.multilabel_confusion_matrix(target.reshape(2, -1).T, labels.reshape(2, -1).T)
        np.testing.assert_array_equal(multilabel_counts(target, labels), theirs)


def test_scores_of_class_1_of_medpy_panoptica_and_surface_distance():
    binary, panoptica = load("medpy.metric.binary"), load("panoptica.metrics")
    volume = load("panoptica.metrics.relative_volume_difference")._compute_instance_relative_volume_difference
    deepmind = load("surface_distance", "surface-distance")

    def of_medpy(case):
        target, mask = case.masks()
        names = {"dice": "dc", "iou": "jc", "relative_volume_difference": "ravd"}
        names |= {name: name for name in ("precision", "recall", "specificity")}
        return {name: getattr(binary, call)(mask, target) for name, call in names.items()}

    def of_panoptica(case):
        given = case.target, case.labels, 1, 1
        dice, iou = panoptica.dice._compute_instance_volumetric_dice, panoptica.iou._compute_instance_iou
        return {"dice": dice(*given), "iou": iou(*given), "relative_volume_difference": volume(*given)}

    equal_in_every_case(of_medpy)
    equal_in_every_case(of_panoptica)
    equal_in_every_case(lambda case: {"dice": deepmind.compute_dice_coefficient(*case.masks())})
