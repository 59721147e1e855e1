"""Calibration: by hand, at the ends of the range, and in parts.

`tests/differential/test_probabilities.py` compares it with other tools.
"""

import math

import numpy as np
import pytest

from segmeter.errors import InputError
from segmeter.metrics.probabilities import Calibration, calibration


def softmax_case(seed, num_classes=4, shape=(30, 40)):
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 2, (num_classes, *shape))
    probs = np.exp(logits) / np.exp(logits).sum(axis=0)
    target = (rng.random(shape) > probs.cumsum(axis=0)).sum(axis=0).clip(0, num_classes - 1).astype(np.uint8)
    target[rng.random(shape) < 0.3] = 1
    return target, probs.astype(np.float32)


def test_four_pixels_by_hand():
    # bins of a quarter: 0.2 (came true) in the first; 0.7 and 0.6 (one of two) in the third; 0.9 in the last
    target, probs = np.array([1, 1, 0, 1]), np.array([0.2, 0.7, 0.6, 0.9])
    scores = calibration(target, probs, num_classes=2, task="binary", bins=4)
    one = scores.classwise[0]
    assert one.counts.tolist() == [1, 0, 2, 1]
    np.testing.assert_allclose(one.confidence, [0.2, np.nan, 0.65, 0.9], rtol=1e-12)
    np.testing.assert_array_equal(one.accuracy, [1, np.nan, 0.5, 1])
    assert one.ece == pytest.approx((0.8 + 2 * 0.15 + 0.1) / 4, rel=1e-12)
    assert one.mce == pytest.approx(0.8, rel=1e-12)
    assert scores.brier == pytest.approx((0.8**2 + 0.3**2 + 0.6**2 + 0.1**2) / 4, rel=1e-12)
    assert scores.nll == pytest.approx(-math.log(0.2 * 0.7 * 0.4 * 0.9) / 4, rel=1e-12)
    # the winner's probability: 0.8 wrong, 0.7 right, 0.6 wrong, 0.9 right
    assert scores.top_label.counts.tolist() == [0, 0, 2, 2]
    assert scores.top_label.ece == pytest.approx((abs(1.3 - 1) + abs(1.7 - 1)) / 4, rel=1e-12)
    assert (scores.n, scores.n_impossible, scores.classwise_ece) == (4, 0, one.ece)


def test_multilabel_planes_are_decisions_of_their_own():
    target, probs = softmax_case(2, num_classes=3)
    planes = np.stack([target == k for k in range(3)]).astype(np.uint8)
    scores = calibration(planes, probs, num_classes=3, task="multilabel")
    alone = [calibration(planes[k], probs[k], num_classes=2, task="binary") for k in range(3)]
    assert scores.top_label is None
    assert scores.n == planes.size
    assert scores.brier == pytest.approx(np.mean([one.brier for one in alone]), rel=1e-12)
    assert scores.nll == pytest.approx(np.mean([one.nll for one in alone]), rel=1e-12)
    for k in range(3):
        assert scores.classwise[k].ece == alone[k].classwise[0].ece
        assert scores.sweeps[k].average_precision == alone[k].sweeps[0].average_precision


def test_0_and_1_fall_in_bins_and_0_for_what_is_there_is_infinitely_bad():
    scores = calibration(np.array([0, 1, 1]), np.array([0.0, 1.0, 1.0], np.float32), num_classes=2, task="binary")
    assert scores.classwise[0].counts.tolist() == [1] + [0] * 13 + [2]
    assert (scores.classwise[0].ece, scores.brier, scores.nll) == (0.0, 0.0, 0.0)
    wrong = calibration(np.array([1, 1]), np.array([0.0, 0.5]), num_classes=2, task="binary")
    assert wrong.nll == math.inf
    assert wrong.n_impossible == 1
    assert wrong.classwise[0].mce == 1.0


@pytest.mark.parametrize("bins", [*range(1, 31), 41, 100, 997])
def test_every_edge_belongs_to_the_bin_below_it(bins):
    """7 / 25 times 25 is 7.000000000000001, and was in the bin above."""
    edges = np.arange(1, bins + 1) / bins
    for probs in (edges, np.nextafter(edges, 0)):
        found = calibration(np.ones(bins, int), probs, num_classes=2, task="binary", bins=bins)
        assert found.classwise[0].counts.tolist() == [1] * bins
    above = calibration(np.ones(bins, int), np.nextafter(edges, 1), num_classes=2, task="binary", bins=bins)
    assert above.classwise[0].counts.tolist() == ([0] + [1] * (bins - 2) + [2] if bins > 1 else [1])


@pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel"])
def test_parts_merge_to_the_whole_and_ignored_pixels_count_nowhere(task):
    target, probs = softmax_case(3, num_classes=2)
    if task == "multilabel":
        target = np.stack([target == k for k in range(2)]).astype(np.uint8)
    if task == "binary":
        probs = probs[1:]
    target[..., ::3, :] = 255
    settings = {"num_classes": 2, "task": task, "ignore_index": 255}
    whole = Calibration(**settings)
    whole.update(target, probs)
    parts = Calibration(**settings)
    parts.update(target[..., :17], probs[..., :17])
    parts.update(target[..., 17:], probs[..., 17:])
    one, other = whole.compute(), parts.compute()
    kept = target != 255
    assert one.n == other.n == kept.sum()
    for first, second in zip(one.classwise, other.classwise, strict=True):
        np.testing.assert_array_equal(first.counts, second.counts)
        np.testing.assert_allclose(first.confidence, second.confidence, rtol=1e-12)
    assert other.brier == pytest.approx(one.brier, rel=1e-12)
    assert other.nll == pytest.approx(one.nll, rel=1e-12)
    assert [s.average_precision for s in one.sweeps] == [s.average_precision for s in other.sweeps]


def test_nothing_is_nan_and_not_0():
    scores = Calibration(num_classes=3).compute()
    values = scores.brier, scores.nll, scores.classwise_ece, scores.top_label.ece, scores.top_label.mce
    assert scores.n == 0
    assert np.isnan([*values, scores.sweeps[0].average_precision]).all()


def test_chunks_do_not_change_the_sums(monkeypatch):
    target, probs = softmax_case(4)
    whole = calibration(target, probs, num_classes=4)
    monkeypatch.setattr("segmeter.metrics.probabilities._CHUNK", 101)
    cut = calibration(target, probs, num_classes=4)
    assert cut.nll == pytest.approx(whole.nll, rel=1e-12)
    np.testing.assert_array_equal(cut.top_label.counts, whole.top_label.counts)


PIXELS, HALF = np.zeros((2, 2), np.uint8), np.full((2, 2, 2), 0.5, np.float32)


@pytest.mark.parametrize(
    ("target", "probs", "options", "message"),
    [
        (PIXELS, HALF[:1], {}, r"`probs` to be \(2, 2, 2\) for a multiclass target"),
        (
            PIXELS,
            HALF.astype(int),
            {},
            "`probs` to be a plain NumPy array of floats, got ndarray int64. Labels carry no",
        ),
        (PIXELS, HALF * 3, {}, r"`probs` to lie between 0 and 1, got 1\.5 to 1\.5"),
        (PIXELS, HALF * np.nan, {}, "`probs` to lie between 0 and 1, got nan"),
        (PIXELS, HALF * 0.9, {}, "`probs` to sum to 1 in every pixel, got a sum that is off by 0.1"),
        (PIXELS + 2, HALF, {}, "`target` to hold only classes 0 to 1"),
        (PIXELS * 1.0, HALF, {}, "`target` to have dtype integer"),
        (PIXELS, HALF, {"bins": 0}, "`bins` between 1 and"),
        (PIXELS, HALF, {"task": "panoptic"}, "`task` to be one of"),
        (PIXELS, HALF[0], {"task": "binary", "num_classes": 3}, "`num_classes` 2 for binary"),
        (PIXELS, HALF, {"task": "multilabel"}, "for a multilabel target"),
    ],
)
def test_refusals(target, probs, options, message):
    with pytest.raises(InputError, match=message):
        calibration(target, probs, **({"num_classes": 2} | options))


def test_images_in_any_order_and_in_any_parts_have_the_same_sums():
    """Mutation seen to fail: float64 sums over all images."""
    rng = np.random.default_rng(1)
    images = []
    for _ in range(12):
        logits = rng.normal(size=(3, 20, 20))
        probs = np.exp(logits) / np.exp(logits).sum(axis=0)
        images.append((rng.integers(0, 3, (20, 20)).astype(np.uint8), probs.astype(np.float32)))
    whole, turned, first, second = (Calibration(num_classes=3) for _ in range(4))
    for number, image in enumerate(images):
        whole.update(*image)
        (first if number % 2 else second).update(*image)
    for image in images[::-1]:
        turned.update(*image)
    first.add(second)
    assert whole.sums == turned.sums == first.sums
    assert whole.compute().brier == turned.compute().brier == first.compute().brier
    np.testing.assert_array_equal(first.counts["sweeps"], whole.counts["sweeps"])


@pytest.mark.parametrize("channel", ["target", "probs", "both"])
def test_batches_of_binary_probabilities_may_have_a_channel_axis(channel):
    rng = np.random.default_rng(3)
    target, probs = rng.integers(0, 2, (3, 6, 7)), rng.random((3, 6, 7))
    wanted = calibration(target, probs, num_classes=2, task="binary")
    pair = target if channel == "probs" else target[:, None], probs if channel == "target" else probs[:, None]
    found = calibration(*pair, num_classes=2, task="binary")
    assert (found.n, found.brier, found.nll) == (wanted.n, wanted.brier, wanted.nll)
