"""What a builder gives, and class weights as numbers."""

from types import SimpleNamespace
from typing import get_args

import numpy as np
import pytest

from segmeter.errors import ConfigError, InputError
from segmeter.losses.build import build_loss, class_weights, fix_weights
from segmeter.losses.config import LOSSES, CrossEntropyConfig, DiceConfig, FocalConfig, Scheme, SumConfig
from segmeter.losses.region import TverskyLoss
from tests.losses.cases import make_spec

SPEC = make_spec("multiclass")


def test_the_loss_knows_the_classes():
    loss = build_loss(DiceConfig(smooth=2.0), SPEC)
    assert isinstance(loss, TverskyLoss)
    assert (loss.task, loss.ignore_index, loss.smooth) == ("multiclass", 255, 2.0)


def test_a_builder_that_gives_no_module_is_refused(monkeypatch):
    monkeypatch.setattr(LOSSES, "build", lambda config, **_: 0.5)
    with pytest.raises(ConfigError, match=r"loss: expected the builder of 'mine' to give a torch module, got .*float"):
        build_loss(SimpleNamespace(name="mine"), SPEC)


def test_schemes_become_numbers_in_a_loss_and_in_the_parts_of_a_sum():
    counts = np.array([900, 90, 10])
    loss = build_loss(FocalConfig(class_weights="median"), SPEC, counts)
    assert loss.class_weights.tolist() == pytest.approx([0.1, 1.0, 9.0])  # shares 0.9, 0.09 and 0.01
    assert fix_weights(DiceConfig(over="sample"), SPEC, None) == DiceConfig(over="sample")
    given = SumConfig(
        focal=FocalConfig(class_weights="inverse"), cross_entropy=CrossEntropyConfig(class_weights=(1, 2, 3))
    )
    found = fix_weights(given, SPEC, counts)
    assert found.focal.class_weights == pytest.approx((1000 / 2700, 1000 / 270, 1000 / 30))
    assert found.replace(focal=given.focal) == given
    message = r"expected `class_weights` to be numbers where the pixels per class of the training set are not known"
    with pytest.raises(ConfigError, match=message):
        fix_weights(given, SPEC, None)


def test_class_weight_schemes_are_their_formulas():
    counts, share = np.array([70, 20, 10, 0]), np.array([0.7, 0.2, 0.1, 0.0])
    wanted = {
        "log": 1 / np.log(1.02 + share),
        "mild": 1 / np.log(1.1 + share),
        "median": [0.2 / 0.7, 1.0, 2.0, 0.0],
        "inverse": [25 / 70, 25 / 20, 25 / 10, 0.0],  # 100 pixels over 4 classes
    }
    for scheme, weights in wanted.items():
        found = class_weights(counts, scheme)
        np.testing.assert_allclose(found, weights, rtol=1e-12)
        assert found.dtype == np.float64
    for auto in (class_weights(counts), class_weights(counts, "auto")):
        np.testing.assert_array_equal(auto, class_weights(counts, "log"))


@pytest.mark.parametrize("scheme", get_args(Scheme))
def test_the_share_decides_not_the_number_of_pixels(scheme):
    counts, order = np.array([700, 200, 99, 1, 0]), [3, 1, 4, 0, 2]
    weights = class_weights(counts, scheme)
    np.testing.assert_allclose(class_weights(counts * 2**40, scheme), weights, rtol=1e-12)
    np.testing.assert_allclose(class_weights(counts.astype(np.uint16), scheme), weights, rtol=1e-12)
    np.testing.assert_array_equal(class_weights(counts[order], scheme), weights[order])


@pytest.mark.parametrize(
    ("counts", "scheme", "words"),
    [
        ([1, -1], "log", r"`counts` to be >= 0"),
        ([0, 0], "log", r"one above 0, got \[0, 0\]"),
        ([0.5, 0.5], "log", r"`counts` to be integers"),
        ([[1, 2]], "log", r"got int64 \(1, 2\)"),
        ([1, 2], "medain", r"Did you mean 'median'"),
    ],
)
def test_counts_that_are_none_are_refused(counts, scheme, words):
    with pytest.raises(InputError, match=words):
        class_weights(np.array(counts), scheme)
