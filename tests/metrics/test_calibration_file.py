"""Sums of probabilities as a file, and their part of metrics.json: plain values, None where undefined, short curves."""

import json

import numpy as np
import pytest

from segmeter.classes import ClassSpec
from segmeter.errors import DataError, InputError
from segmeter.metrics.calibration_file import (
    CURVE_POINTS,
    NAME,
    empty_sums,
    read_sums,
    summarise_calibration,
    write_sums,
)
from segmeter.metrics.probabilities import calibration
from tests.metrics.build import class_spec

TWO = ClassSpec(task="binary", names=("background", "cell"), colours=((0, 0, 0), (9, 9, 9)), ignore_index=255)
THREE = ClassSpec(task="multiclass", names=("a", "b", "c"), colours=((0, 0, 0), (9, 9, 9), (1, 1, 1)))


@pytest.fixture
def stored(tmp_path):
    sums = empty_sums(TWO)
    sums.update(np.array([[0, 1, 255]], np.uint8), np.array([[[0.1, 0.0, 0.5]]], np.float32))
    write_sums(tmp_path, sums)
    return sums


def test_sums_are_read_as_they_were_written_and_the_file_is_the_same_each_time(stored, tmp_path):
    found, before = read_sums(tmp_path, TWO), (tmp_path / NAME).read_bytes()
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
        read_sums(tmp_path, TWO)


def test_sums_of_other_classes_are_refused(stored, tmp_path):
    with pytest.raises(DataError, match=f"to hold {NAME}"):
        read_sums(tmp_path, THREE)
    with pytest.raises(InputError, match="calibration: expected `other` to have the settings"):
        empty_sums(THREE).add(stored)


def test_a_binary_summary_names_the_object_only():
    target, probs = np.array([[0, 1, 1, 0]]), np.array([[0.2, 0.8, 0.6, 0.4]])
    scores = calibration(target, probs, num_classes=2, task="binary", bins=5)
    found = summarise_calibration(scores, class_spec(2, "binary"))
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


def test_a_long_curve_is_thinned_and_keeps_its_scores():
    rng = np.random.default_rng(0)
    target, probs = rng.integers(0, 2, (1, 5000)), rng.random((1, 5000))
    scores = calibration(target, probs, num_classes=2, task="binary")
    (entry,) = summarise_calibration(scores, class_spec(2, "binary"))["per_class"].values()
    assert len(scores.sweeps[0].recall) > 1000
    assert {len(values) for values in entry["curve"].values()} <= set(range(2, CURVE_POINTS + 1))
    assert entry["average_precision"] == scores.sweeps[0].average_precision


def test_multilabel_has_no_winning_class():
    target, probs = np.array([[[0, 1]], [[1, 1]]]), np.array([[[0.1, 0.9]], [[0.8, 0.7]]])
    scores = calibration(target, probs, num_classes=2, task="multilabel")
    found = summarise_calibration(scores, class_spec(2, "multilabel"))
    assert [found[name] for name in ("ece", "mce", "reliability")] == [None] * 3
    assert list(found["per_class"]) == ["sky", "road"]
