"""Counts and overlap scores equal those of scikit-learn, torchmetrics, MONAI, SMP, medpy and panoptica, run live."""

from functools import cache

import numpy as np
import pytest

from segmeter.metrics.pixels.confusion import confusion_matrix, multilabel_counts
from segmeter.metrics.pixels.overlap import overlap_scores
from tests.differential.cases import BOTH_HOLD_ONE, IGNORED, MANY_CLASSES, Case, assert_agree, sweep
from tests.differential.peers import load, quiet

CLASSES = 5


@cache
def pairs(ignored: float = 0.0) -> tuple[Case, ...]:
    table = (*BOTH_HOLD_ONE, MANY_CLASSES) if not ignored else (IGNORED,)
    return (*table, *sweep(num_classes=CLASSES, ignored=ignored))


def count(case):
    options = {"num_classes": case.num_classes, "ignore_index": case.ignore_index}
    return confusion_matrix(case.target, case.labels, **options)


def score(case):
    return overlap_scores(count(case))


def kept(case):
    """Flat target and labels without the ignored pixels: what a tool without ignore_index has to be given."""
    held = np.ones(case.target.shape, bool) if case.ignore_index is None else case.target != case.ignore_index
    return case.target[held], case.labels[held]


def one_hot(case):
    """Prediction and target (1, K, ...) as MONAI wants them."""
    torch = load("torch")
    classes = np.arange(case.num_classes).reshape(-1, *[1] * case.target.ndim)
    return [torch.from_numpy((one == classes)[None].astype(np.float32)) for one in (case.labels, case.target)]


def tensors(case):
    """Prediction and target with a batch axis, as torchmetrics and SMP want them."""
    torch = load("torch")
    return [torch.from_numpy(one[None].astype(np.int64)) for one in (case.labels, case.target)]


@pytest.mark.parametrize("ignored", [0.0, 0.1], ids=["all pixels", "with ignore_index"])
class TestConfusionMatrix:
    def test_of_scikit_learn(self, ignored):
        sklearn = load("sklearn.metrics", "scikit-learn")
        for case in pairs(ignored):
            theirs = sklearn.confusion_matrix(*kept(case), labels=np.arange(case.num_classes))
            np.testing.assert_array_equal(count(case), theirs, err_msg=str(case))

    def test_of_torchmetrics(self, ignored):
        classification = load("torchmetrics.functional.classification")
        for case in pairs(ignored):
            options = {"num_classes": case.num_classes, "ignore_index": case.ignore_index}
            theirs = classification.multiclass_confusion_matrix(*tensors(case), **options)
            np.testing.assert_array_equal(count(case), theirs, err_msg=str(case))

    def test_of_smp(self, ignored):
        smp = load("segmentation_models_pytorch.metrics", "segmentation_models_pytorch")
        for case in pairs(ignored):
            output, target = tensors(case)
            stats = smp.get_stats(
                output, target, mode="multiclass", num_classes=case.num_classes, ignore_index=case.ignore_index
            )
            tp, fp, fn, _ = (part[0].numpy() for part in stats)
            ours = count(case)
            np.testing.assert_array_equal(ours.diagonal(), tp, err_msg=str(case))
            np.testing.assert_array_equal(ours.sum(axis=0) - ours.diagonal(), fp, err_msg=str(case))
            np.testing.assert_array_equal(ours.sum(axis=1) - ours.diagonal(), fn, err_msg=str(case))


@pytest.mark.parametrize("ignored", [0.0, 0.1], ids=["all pixels", "with ignore_index"])
def test_scores_of_scikit_learn(ignored):
    sklearn = load("sklearn.metrics", "scikit-learn")
    for case in pairs(ignored):
        ours, flat = score(case), kept(case)
        options = {"labels": np.arange(case.num_classes), "average": None, "zero_division": np.nan}
        with quiet():
            assert_agree(ours.iou, sklearn.jaccard_score(*flat, **options | {"zero_division": 0}), case)
            assert_agree(ours.dice, sklearn.f1_score(*flat, **options), case)
            assert_agree(ours.precision, sklearn.precision_score(*flat, **options), case)
            assert_agree(ours.recall, sklearn.recall_score(*flat, **options), case)
            assert_agree(ours.pixel_accuracy, sklearn.accuracy_score(*flat), case)
            assert_agree(ours.balanced_accuracy, sklearn.balanced_accuracy_score(*flat), case)
            assert_agree(ours.frequency_weighted_iou, sklearn.jaccard_score(*flat, average="weighted"), case)
            assert_agree(ours.kappa, sklearn.cohen_kappa_score(*flat), case)
            assert_agree(ours.mcc, sklearn.matthews_corrcoef(*flat), case)


def test_specificity_is_scikit_learns_recall_of_the_rest():
    sklearn = load("sklearn.metrics", "scikit-learn")
    for case in pairs():
        target, labels = kept(case)
        theirs = [sklearn.recall_score(target != k, labels != k) for k in range(case.num_classes)]
        assert_agree(score(case).specificity, theirs, case)


@pytest.mark.parametrize("ignored", [0.0, 0.1], ids=["all pixels", "with ignore_index"])
def test_scores_of_torchmetrics(ignored):
    classification = load("torchmetrics.functional.classification")
    for case in pairs(ignored):
        ours, given = score(case), tensors(case)
        options = {"num_classes": case.num_classes, "ignore_index": case.ignore_index}
        each = options | {"average": "none"}
        assert_agree(ours.iou, classification.multiclass_jaccard_index(*given, **each), case)
        assert_agree(ours.dice, classification.multiclass_f1_score(*given, **each), case)
        assert_agree(ours.precision, classification.multiclass_precision(*given, **each), case)
        recall = np.nan_to_num(ours.recall)  # a class that is not there: we say undefined, torchmetrics says 0
        assert_agree(recall, classification.multiclass_recall(*given, **each), case)
        assert_agree(ours.specificity, classification.multiclass_specificity(*given, **each), case)
        assert_agree(ours.mean_iou, classification.multiclass_jaccard_index(*given, **options), case)
        assert_agree(ours.pixel_accuracy, classification.multiclass_accuracy(*given, **options, average="micro"), case)
        # float32 differences of nearly equal numbers: their last digits are rounding
        assert_agree(ours.kappa, classification.multiclass_cohen_kappa(*given, **options), case, atol=1e-6)
        assert_agree(ours.mcc, classification.multiclass_matthews_corrcoef(*given, **options), case, atol=1e-6)


def test_segmentation_scores_of_torchmetrics():
    segmentation = load("torchmetrics.functional.segmentation")
    for case in pairs():
        ours, given = score(case), tensors(case)
        options = {"num_classes": case.num_classes, "input_format": "index"}
        assert_agree(ours.iou, segmentation.mean_iou(*given, **options, per_class=True)[0], case)
        assert_agree(ours.mean_iou, segmentation.mean_iou(*given, **options)[0], case)
        assert_agree(ours.dice, segmentation.dice_score(*given, **options, average="none")[0], case)


def test_scores_of_monai():
    monai = load("monai.metrics")
    names = {"precision": "precision", "recall": "sensitivity", "specificity": "specificity", "dice": "f1 score"}
    for case in pairs():
        ours, given = score(case), one_hot(case)
        assert_agree(ours.dice, monai.compute_dice(*given, ignore_empty=False)[0], case)
        assert_agree(ours.iou, monai.compute_iou(*given, ignore_empty=False)[0], case)
        counts = monai.get_confusion_matrix(*given)
        for name, theirs in names.items():
            assert_agree(getattr(ours, name), monai.compute_confusion_matrix_metric(theirs, counts)[0], (case, name))


@pytest.fixture(scope="module")
def batch():
    """SMP, its statistics of many images, and our counts of the same."""
    smp = load("segmentation_models_pytorch.metrics", "segmentation_models_pytorch")
    cases = [case for case in pairs() if case.num_classes == CLASSES]
    parts = [smp.get_stats(*tensors(case), mode="multiclass", num_classes=CLASSES) for case in cases]
    stats = [load("torch").cat(part) for part in zip(*parts, strict=True)]
    return smp, stats, np.stack([count(case) for case in cases])


class TestReductionsOfSmp:
    """SMP's reductions are ours under other names, over the counts of a batch of images."""

    def test_macro_is_the_dataset_mean(self, batch):
        smp, stats, counts = batch
        ours = overlap_scores(counts.sum(axis=0))
        assert_agree(ours.mean_iou, smp.iou_score(*stats, reduction="macro"))
        assert_agree(ours.mean_dice, smp.f1_score(*stats, reduction="macro"))

    def test_macro_imagewise_is_the_mean_over_cases(self, batch):
        smp, stats, counts = batch
        ours = overlap_scores(counts)
        assert_agree(ours.mean_iou.mean(), smp.iou_score(*stats, reduction="macro-imagewise"))
        assert_agree(ours.mean_dice.mean(), smp.f1_score(*stats, reduction="macro-imagewise"))

    def test_micro_is_the_score_of_all_decisions(self, batch):
        smp, stats, counts = batch
        total = counts.sum(axis=0)
        hits = total.diagonal().sum()
        assert_agree(hits / (2 * total.sum() - hits), smp.iou_score(*stats, reduction="micro"))
        assert_agree(overlap_scores(total).pixel_accuracy, smp.f1_score(*stats, reduction="micro"))

    def test_weighted_by_the_support_is_frequency_weighted(self, batch):
        smp, stats, counts = batch
        ours = overlap_scores(counts.sum(axis=0))
        weights = ours.support.tolist()
        theirs = smp.iou_score(*stats, reduction="weighted", class_weights=weights)
        assert_agree(ours.frequency_weighted_iou, theirs)


def test_multilabel_counts_of_scikit_learn():
    sklearn = load("sklearn.metrics", "scikit-learn")
    cases = list(sweep(volumes=False, seed=3))
    for first, second in zip(cases[::2], cases[1::2], strict=True):  # two classes of one image
        height, width = np.minimum(first.target.shape, second.target.shape)
        target = np.stack([one.target[:height, :width] for one in (first, second)])
        labels = np.stack([one.labels[:height, :width] for one in (first, second)])
        theirs = sklearn.multilabel_confusion_matrix(target.reshape(2, -1).T, labels.reshape(2, -1).T)
        np.testing.assert_array_equal(multilabel_counts(target, labels), theirs)


def test_scores_of_medpy():
    binary = load("medpy.metric.binary")
    for case in pairs():
        ours = score(case)
        target, mask = case.masks()
        assert_agree(ours.dice[1], binary.dc(mask, target), case)
        assert_agree(ours.iou[1], binary.jc(mask, target), case)
        assert_agree(ours.precision[1], binary.precision(mask, target), case)
        assert_agree(ours.recall[1], binary.recall(mask, target), case)
        assert_agree(ours.specificity[1], binary.specificity(mask, target), case)
        assert_agree(ours.relative_volume_difference[1], binary.ravd(mask, target), case)


def test_scores_of_panoptica():
    dice = load("panoptica.metrics.dice")
    iou = load("panoptica.metrics.iou")
    volume = load("panoptica.metrics.relative_volume_difference")
    for case in pairs():
        ours = score(case)
        assert_agree(ours.dice[1], dice._compute_instance_volumetric_dice(case.target, case.labels, 1, 1), case)
        assert_agree(ours.iou[1], iou._compute_instance_iou(case.target, case.labels, 1, 1), case)
        theirs = volume._compute_instance_relative_volume_difference(case.target, case.labels, 1, 1)
        assert_agree(ours.relative_volume_difference[1], theirs, case)


def test_dice_of_surface_distance():
    surface_distance = load("surface_distance", "surface-distance")
    for case in pairs():
        assert_agree(score(case).dice[1], surface_distance.compute_dice_coefficient(*case.masks()), case)
