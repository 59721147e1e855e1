"""Presets of tools that are read rather than run: each rule is written out here, with the file and lines it comes from.

Tools that are run are below, and in `test_presets.py`. The rules take the confusion matrices of the cases, rows being
the reference, and are compared on cases in which classes are missing from either side.
"""

import numpy as np
import pytest

from segmeter.metrics.pixels.confusion import confusion_matrix
from segmeter.metrics.summary.conventions import score_maps_under
from tests.differential.cases import VOID, assert_agree, sweep
from tests.differential.peers import installed, load, quiet, tensors
from tests.metrics.build import BINARY, class_spec, maps_of


def cases_of(num_classes, ignored=0.1):
    """Pairs of images; class 1 is missing from every other reference, and the last class from all of them."""
    made = []
    for i, case in enumerate(sweep(num_classes=num_classes, volumes=False, ignored=ignored, count=6, seed=21)):
        target, labels = case.target.copy(), case.labels.copy()
        target[target == num_classes - 1] = 0
        if i % 2:
            target[target == 1] = 0
        if i % 3 == 2:
            labels[labels == 1] = 0
        made.append((target, labels))
    return made


def ours_under(name, pairs, spec=None):
    """Our headline figures of the pairs under a preset."""
    num_classes = 2 if name.endswith(("binary", "one-class")) else 4
    spec = spec or class_spec(num_classes, "binary" if num_classes == 2 else "multiclass")
    return score_maps_under(name, [maps_of(*pair, spec, case_id=f"{i}") for i, pair in enumerate(pairs)])


def parts(matrix):
    """True positives, reference and prediction of each class."""
    return np.diag(matrix), matrix.sum(axis=1), matrix.sum(axis=0)


def mmseg(matrices):
    """mmsegmentation's formula: the mean over the classes, background included, without undefined ones."""
    tp, target, predicted = parts(sum(matrices))
    with np.errstate(invalid="ignore"):
        return {
            "mean_iou": np.nanmean(tp / (target + predicted - tp)),
            "mean_dice": np.nanmean(2 * tp / (target + predicted)),
        }


def detectron2(matrices):
    """detectron2 02b5c4e, evaluation/sem_seg_evaluation.py 188-198: `acc_valid` marks the classes in the reference."""
    tp, target, predicted = parts(sum(matrices))
    valid = target > 0
    return {"mean_iou": (tp[valid] / (target + predicted - tp)[valid]).sum() / valid.sum()}


def hf_evaluate(matrices):
    """evaluate a7dd338, metrics/mean_iou/mean_iou.py 256-262: a mean over the classes that either side contains."""
    return {"mean_iou": mmseg(matrices)["mean_iou"]}


def fiftyone(matrices):
    """FiftyOne 1.22.1, utils/eval/segmentation.py 684-689: a wrong pixel is a false positive and a false negative."""
    tp, wrong = np.trace(sum(matrices)), sum(matrices).sum() - np.trace(sum(matrices))
    return {"mean_dice": 2 * tp / (2 * tp + wrong + wrong)}


def fiftyone_report(matrices):
    """FiftyOne 1.22.1, utils/eval/base.py 739-752: scikit-learn's micro F1 without background; undefined is 0."""
    tp, target, predicted = (part[1:].sum() for part in parts(sum(matrices)))
    precision, recall = tp / predicted if predicted else 0.0, tp / target if target else 0.0
    return {"mean_dice": 2 * precision * recall / (precision + recall) if precision + recall else 0.0}


def lightly_studio(matrices):
    """lightly-studio 8f4a390, evaluation/semantic_segmentation_metric.py 105-135, 184: over classes with a pixel."""
    scores = []
    for matrix in matrices:
        tp, target, predicted = (part[1:] for part in parts(matrix))
        union = target + predicted - tp
        scores.append(np.mean(tp[union > 0] / union[union > 0]))
    return {"mean_iou": np.mean(scores)}


@pytest.mark.parametrize("rule", [mmseg, detectron2, hf_evaluate, fiftyone, fiftyone_report, lightly_studio])
def test_a_preset_is_the_tool_as_read(rule):
    """Mutation seen to fail, for each: the choices of ours in its place."""
    pairs, name = cases_of(4), rule.__name__.replace("_", "-")
    wanted = rule([confusion_matrix(*pair, num_classes=4, ignore_index=VOID) for pair in pairs])
    found = ours_under(name, pairs)
    assert found.keys() == wanted.keys()
    for figure, value in wanted.items():
        assert_agree(found[figure], value, (name, figure))


# Two classes with 3 of 4 pixels right in their union, a third that only the prediction contains, a fourth nowhere:
# a has 3 / (4 + 3 - 3), b the same, c 0 / 2.
TARGET = np.array([[0, 0, 0, 0, 1, 1, 1, 1]], np.uint8)
LABELS = np.array([[0, 0, 0, 2, 1, 1, 1, 2]], np.uint8)
BY_HAND = {
    "segmeter": {"mean_iou": 0.5},  # (.75 + .75 + 0) / 3
    "ultralytics": {"mean_iou": 0.75},  # c is not in the reference
    "detectron2": {"mean_iou": 0.75},
    "torchmetrics-jaccard-multilabel": {"mean_iou": 0.25},  # (.75 + 0 + 0) / 3: without a, and d counts as 0
    "hf-evaluate": {"mean_iou": 0.5},
    "lightly-studio": {"mean_iou": 0.375},  # (.75 + 0) / 2: without a
    "fiftyone": {"mean_dice": 12 / 16},  # of 8 pixels 6 are right
    "fiftyone-report": {"mean_dice": 6 / 9},  # without a, 3 are, of 4 in the reference and 5 in the prediction
}


@pytest.mark.parametrize("name", BY_HAND)
def test_a_class_that_only_the_prediction_holds(name):
    found = ours_under(name, [(TARGET, LABELS)])
    assert {figure: found[figure] for figure in BY_HAND[name]} == pytest.approx(BY_HAND[name], rel=1e-12)


@pytest.mark.parametrize("name", ["ultralytics-one-class", "torchmetrics-jaccard-binary", "fiftyone-report"])
def test_nothing_on_either_side_scores_0(name):
    nothing = np.zeros((2, 3), np.uint8)
    assert list(ours_under(name, [(nothing, nothing)], BINARY).values()) == [0.0]


def test_evaluate_gives_recall_where_background_is_ignored():
    """evaluate#421, open: its mask drops the pixels whose reference is ignored, and with them the false positives.

    mean_iou.py 144-155 as read, for ``ignore_index=0``; ours counts the same pixels under its own name, recall.
    """
    target, labels = np.array([[0, 0, 0, 1, 1, 1]]), np.array([[1, 1, 0, 1, 1, 0]])
    kept = target != 0
    common = (labels[kept] == 1) & (target[kept] == 1)
    theirs = common.sum() / ((labels[kept] == 1).sum() + (target[kept] == 1).sum() - common.sum())
    counts = confusion_matrix(target, labels, num_classes=2)
    assert theirs == counts[1, 1] / counts[1].sum() == 2 / 3
    found = ours_under("hf-evaluate", [(target, labels)], BINARY)
    assert found["mean_iou"] == pytest.approx((1 / 4 + 2 / 5) / 2, rel=1e-12)


@pytest.mark.parametrize("form", ["index", "one-hot", "mixed"])
def test_torchmetrics_mean_iou(form):
    torch, peer = load("torch"), load("torchmetrics.segmentation", "torchmetrics")
    pairs = cases_of(4, ignored=0.0)
    metric = peer.MeanIoU(num_classes=4, input_format=form)
    for pair in pairs:
        target, labels = tensors(*pair)
        planes = [torch.nn.functional.one_hot(one, 4).movedim(-1, 1) for one in (target, labels)]
        given = {"index": (labels, target), "one-hot": planes[::-1], "mixed": (planes[1].float(), target)}[form]
        metric.update(*given)
    found = ours_under("torchmetrics", pairs, class_spec(4, ignore_index=None))
    assert_agree(found["mean_iou"], float(metric.compute()), installed("torchmetrics"))


@pytest.mark.parametrize(("task", "name", "options"), [
    ("multiclass", "torchmetrics-jaccard", {"num_classes": 4}),
    ("binary", "torchmetrics-jaccard-binary", {}),
    ("multilabel", "torchmetrics-jaccard-multilabel", {"num_labels": 4}),
])  # fmt: skip
def test_torchmetrics_jaccard_index(task, name, options):
    metric = load("torchmetrics", "torchmetrics").JaccardIndex(task=task, ignore_index=VOID, **options)
    pairs = cases_of(2 if task == "binary" else 4)
    if task == "multilabel":
        pairs = [[np.stack([one == k for k in range(4)]).astype(np.uint8) for one in pair] for pair in pairs]
    for target, labels in pairs:
        with quiet():
            metric.update(*tensors(labels, target))
    found = ours_under(name, pairs, class_spec(4, task) if task == "multilabel" else None)
    assert_agree(found["mean_iou"], float(metric.compute()), installed("torchmetrics"))


@pytest.mark.parametrize(("name", "num_classes"), [("ultralytics", 4), ("ultralytics-one-class", 2)])
def test_ultralytics(name, num_classes):
    peer = load("ultralytics.utils.metrics", "ultralytics")
    pairs = cases_of(num_classes)
    metric = peer.SemanticMetrics(names=dict(enumerate("abcd"[: num_classes if num_classes > 2 else 1])))
    for target, labels in pairs:
        metric.update_stats(*tensors(labels, target))
    metric.process()
    found = ours_under(name, pairs)
    assert_agree(found["mean_iou"], metric.miou, installed("ultralytics"))
