"""Calibration, precision-recall curves and average precision equal those of scikit-learn, torchmetrics and MONAI."""

from functools import cache

import numpy as np
import pytest

from segmeter.metrics.probabilities import calibration
from tests.differential.cases import SWEEP, VOID, assert_agree
from tests.differential.peers import load, quiet

BINS = 15
CLASSES = 4


@cache
def binary():
    """Targets (N,) and probabilities (N,) of class 1, some confident and some not."""
    rng = np.random.default_rng(8)
    made = []
    for _ in range(SWEEP):
        target = (rng.random(rng.integers(60, 400)) < rng.uniform(0.05, 0.6)).astype(np.uint8)
        target[:2] = 0, 1
        logits = rng.uniform(0.5, 4) * (2.0 * target - 1 + rng.standard_normal(target.size))
        made.append((target, 1 / (1 + np.exp(-logits))))
    return tuple(made)


@cache
def multiclass():
    """Targets (N,) and probabilities (K, N)."""
    rng = np.random.default_rng(9)
    made = []
    for _ in range(SWEEP):
        target = rng.integers(0, CLASSES, rng.integers(60, 400)).astype(np.uint8)
        target[:CLASSES] = range(CLASSES)
        noise, sure = rng.standard_normal((CLASSES, target.size)), rng.uniform(0, 3)
        probs = np.exp(noise + sure * (target == np.arange(CLASSES)[:, None]))
        made.append((target, probs / probs.sum(axis=0)))
    return tuple(made)


@cache
def ours_of_binary():
    return [calibration(*pair, num_classes=2, task="binary", bins=BINS) for pair in binary()]


@cache
def ours_of_multiclass():
    return [calibration(*pair, num_classes=CLASSES, bins=BINS) for pair in multiclass()]


@pytest.mark.parametrize(
    ("ours", "given", "options"),
    [(ours_of_binary, binary, {}), (ours_of_multiclass, multiclass, {"scale_by_half": False})],
    ids=["binary", "multiclass"],
)
def test_brier_and_logarithmic_loss_of_scikit_learn(ours, given, options):
    sklearn, pairs = load("sklearn.metrics", "scikit-learn"), [(target, probs.T) for target, probs in given()]
    assert_agree([one.nll for one in ours()], [sklearn.log_loss(*pair) for pair in pairs])
    assert_agree([one.brier for one in ours()], [sklearn.brier_score_loss(*pair, **options) for pair in pairs])


def test_reliability_of_scikit_learn():
    curve = load("sklearn.calibration", "scikit-learn").calibration_curve
    for one, (target, probs) in zip(ours_of_binary(), binary(), strict=True):
        accuracy, confidence = curve(target, probs, n_bins=BINS)
        held = one.classwise[0].counts > 0
        assert_agree(one.classwise[0].accuracy[held], accuracy)
        assert_agree(one.classwise[0].confidence[held], confidence)


@pytest.mark.parametrize(("norm", "name"), [("l1", "ece"), ("max", "mce")])
def test_calibration_error_of_torchmetrics(norm, name):
    """It works in float32: the difference of two shares is off by 1e-7."""
    peer, torch = load("torchmetrics.functional.classification"), load("torch")
    for parts, pairs, compute, classes in (
        ([one.classwise[0] for one in ours_of_binary()], binary(), peer.binary_calibration_error, ()),
        ([one.top_label for one in ours_of_multiclass()], multiclass(), peer.multiclass_calibration_error, (CLASSES,)),
    ):
        given = [(torch.from_numpy(probs.T), torch.from_numpy(target).long()) for target, probs in pairs]
        theirs = [float(compute(*pair, *classes, n_bins=BINS, norm=norm)) for pair in given]
        assert_agree([getattr(one, name) for one in parts], theirs, atol=1e-6)


def test_class_wise_calibration_error_of_monai():
    """It works in float32."""
    metrics, torch = load("monai.metrics"), load("torch")
    options = {"num_bins": BINS, "calibration_reduction": "expected", "metric_reduction": "none"}
    for one, (target, probs) in zip(ours_of_multiclass(), multiclass(), strict=True):
        truth, metric = target == np.arange(CLASSES)[:, None], metrics.CalibrationErrorMetric(**options)
        with quiet():
            metric(
                torch.from_numpy(probs[None, :, :, None]), torch.from_numpy(truth[None, :, :, None].astype(np.float32))
            )
            theirs = metric.aggregate()
        assert_agree([each.ece for each in one.classwise], theirs[0], atol=1e-6)


def test_average_precision_and_its_curve_of_scikit_learn_torchmetrics_and_monai():
    sklearn, torch, monai = load("sklearn.metrics", "scikit-learn"), load("torch"), load("monai.metrics")
    classification = load("torchmetrics.functional.classification")
    for target, exact in binary():
        probs = np.clip(np.round(exact * 256), 1, 255) / 256  # which our histogram of thresholds tells apart exactly
        sweep = calibration(target, probs, num_classes=2, task="binary").sweeps[0]
        assert_agree(sweep.average_precision, sklearn.average_precision_score(target, probs))
        given = torch.from_numpy(probs), torch.from_numpy(target).long()
        assert_agree(sweep.average_precision, classification.binary_average_precision(*given))
        assert_agree(sweep.average_precision, float(monai.compute_average_precision(*given)))
        precision, recall, thresholds = sklearn.precision_recall_curve(target, probs)
        assert_agree(sweep.precision[::-1], precision[:-1])
        assert_agree(sweep.recall[::-1], recall[:-1])
        assert len(thresholds) == len(sweep.thresholds)
        both = precision + recall
        assert_agree(sweep.best_f1, np.max(2 * precision * recall / np.where(both > 0, both, 1)))
        assert_agree(sweep.best_f1, sklearn.f1_score(target, probs > sweep.best_threshold))


def test_average_precision_of_any_probabilities_is_near():
    """Those that share one of 55 555 steps count as equal: at most 1 in 1024 of a probability apart."""
    sklearn = load("sklearn.metrics", "scikit-learn")
    found = [one.sweeps[0].average_precision for one in ours_of_binary()]
    assert_agree(found, [sklearn.average_precision_score(*pair) for pair in binary()], rtol=2e-3)


def test_ignored_pixels_count_for_nothing():
    sklearn = load("sklearn.metrics", "scikit-learn")
    rng = np.random.default_rng(10)
    for target, probs in binary()[:20]:
        marked, held = target.copy(), rng.random(target.size) > 0.2
        marked[~held] = VOID
        found = calibration(marked, probs, num_classes=2, task="binary", ignore_index=VOID)
        assert_agree(found.brier, sklearn.brier_score_loss(target[held], probs[held]))
