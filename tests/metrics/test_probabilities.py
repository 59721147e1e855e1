"""Calibration by hand, at the ends of the range and in parts, its sums as a file, and its part of metrics.json."""

import json
import math

import numpy as np
import pytest

from segmeter.errors import DataError, InputError
from segmeter.metrics.arrays import json_number, json_number_or_inf
from segmeter.metrics.calibration_file import (
    CURVE_POINTS,
    NAME,
    empty_sums,
    read_sums,
    summarise_calibration,
    write_sums,
)
from segmeter.metrics.probabilities import Calibration, calibration
from tests.metrics.build import BINARY, class_spec


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
    assert np.nansum(wrong.top_label.accuracy) == 0  # of a tie the first class wins


@pytest.mark.parametrize("bins", [*range(1, 31), 41, 100, 997])
def test_every_edge_belongs_to_the_bin_below_it(bins):
    """7 / 25 times 25 is 7.000000000000001, and was in the bin above."""
    edges = np.arange(1, bins + 1) / bins
    for probs in (edges, np.nextafter(edges, 0)):
        found = calibration(np.ones(bins, int), probs, num_classes=2, task="binary", bins=bins)
        assert found.classwise[0].counts.tolist() == [1] * bins
    above = calibration(np.ones(bins, int), np.nextafter(edges, 1), num_classes=2, task="binary", bins=bins)
    assert above.classwise[0].counts.tolist() == ([0] + [1] * (bins - 2) + [2] if bins > 1 else [1])


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


@pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel"])
def test_images_in_any_order_and_in_any_parts_have_the_same_sums_without_ignored_pixels(task):
    """Mutation seen to fail: float64 sums over all images."""
    images, settings = [], {"num_classes": 2, "task": task, "ignore_index": 255}
    for seed in range(12):
        target, probs = softmax_case(seed, num_classes=2, shape=(20, 20))
        target = np.stack([target == k for k in range(2)]).astype(np.uint8) if task == "multilabel" else target
        target[..., ::3, :] = 255
        images.append((target, probs[1:] if task == "binary" else probs))
    whole, turned, first, second = (Calibration(**settings) for _ in range(4))
    for number, image in enumerate(images):
        whole.update(*image)
        (first if number % 2 else second).update(*image)
    for image in images[::-1]:
        turned.update(*image)
    first.add(second)
    assert whole.sums == turned.sums == first.sums
    assert whole.compute().n == sum((target != 255).sum() for target, _ in images)
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


@pytest.fixture
def stored(tmp_path):
    sums = empty_sums(BINARY)
    sums.update(np.array([[0, 1, 255]], np.uint8), np.array([[[0.1, 0.0, 0.5]]], np.float32))
    write_sums(tmp_path, sums)
    return sums


def test_sums_are_read_as_they_were_written_and_the_file_is_the_same_each_time(stored, tmp_path):
    found, before = read_sums(tmp_path, BINARY), (tmp_path / NAME).read_bytes()
    assert found.sums == stored.sums
    for name, values in stored.counts.items():
        np.testing.assert_array_equal(found.counts[name], values)
        assert found.counts[name].dtype == np.int64
    assert found.counts["impossible"][0] == 1
    write_sums(tmp_path, found)
    assert (tmp_path / NAME).read_bytes() == before


@pytest.mark.parametrize("content", [None, b"", b"PK\3\4 no archive", b"damaged"])
def test_what_is_missing_or_damaged_is_refused(stored, tmp_path, content):
    (tmp_path / NAME).unlink()
    if content is not None:
        (tmp_path / NAME).write_bytes(content)
    with pytest.raises(DataError, match=rf"to hold {NAME}, got .*{NAME} \("):
        read_sums(tmp_path, BINARY)


def test_sums_of_other_classes_are_refused(stored, tmp_path):
    with pytest.raises(DataError, match=f"to hold {NAME}"):
        read_sums(tmp_path, class_spec(3))
    with pytest.raises(InputError, match="calibration: expected `other` to have the settings"):
        empty_sums(class_spec(3)).add(stored)


def test_a_binary_summary_names_the_object_only():
    target, probs = np.array([[0, 1, 1, 0]]), np.array([[0.2, 0.8, 0.6, 0.4]])
    scores = calibration(target, probs, num_classes=2, task="binary", bins=5)
    found = summarise_calibration(scores, BINARY)
    assert list(found["per_class"]) == ["road"]
    road = found["per_class"]["road"]
    assert (road["average_precision"], road["best_f1"], found["mean_average_precision"]) == (1.0, 1.0, 1.0)
    assert found["brier"] == pytest.approx((0.04 + 0.04 + 0.16 + 0.16) / 4, rel=1e-12)
    assert (found["n"], found["bins"], sum(road["reliability"]["counts"])) == (4, 5, 4)
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_what_is_undefined_or_infinite_is_said_in_json():
    target, probs = np.array([[1, 1]]), np.array([[[1.0, 0.5]], [[0.0, 0.5]]])  # class 1 given 0, class 0 absent
    found = summarise_calibration(calibration(target, probs, num_classes=2), class_spec(2))
    assert (found["nll"], found["n_impossible"]) == ("inf", 1)
    assert found["per_class"]["sky"]["average_precision"] is None
    assert found["mean_average_precision"] == found["per_class"]["road"]["average_precision"]
    assert None in found["reliability"]["accuracy"]  # an empty bin


def test_values_become_python_floats():
    for value in (np.float32(0.5), np.int64(2), np.array(0.25)):
        assert type(json_number(value)) is type(json_number_or_inf(value)) is float


def test_a_long_curve_is_thinned_and_keeps_its_scores():
    rng = np.random.default_rng(0)
    target, probs = rng.integers(0, 2, (1, 5000)), rng.random((1, 5000))
    scores = calibration(target, probs, num_classes=2, task="binary")
    (entry,) = summarise_calibration(scores, BINARY)["per_class"].values()
    assert len(scores.sweeps[0].recall) > 1000
    assert {len(values) for values in entry["curve"].values()} <= set(range(2, CURVE_POINTS + 1))
    assert entry["average_precision"] == scores.sweeps[0].average_precision


def test_multilabel_has_no_winning_class():
    target, probs = np.array([[[0, 1]], [[1, 1]]]), np.array([[[0.1, 0.9]], [[0.8, 0.7]]])
    scores = calibration(target, probs, num_classes=2, task="multilabel")
    found = summarise_calibration(scores, class_spec(2, "multilabel"))
    assert [found[name] for name in ("ece", "mce", "reliability")] == [None] * 3
    assert list(found["per_class"]) == ["sky", "road"]
