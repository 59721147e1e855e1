"""What a builder gives, and class weights as numbers."""

from types import SimpleNamespace
from typing import get_args

import numpy as np
import pytest

from segmeter.classes import ClassSpec
from segmeter.errors import ConfigError
from segmeter.losses.config import (
    LOSSES,
    CrossEntropyConfig,
    DiceConfig,
    FocalConfig,
    Scheme,
    SumConfig,
    build_loss,
    class_weights,
    fix_weights,
)
from segmeter.losses.region import TverskyLoss

SPEC = ClassSpec(task="multiclass", names=("sky", "road", "car"), colours=((0, 0, 0),) * 3, ignore_index=255)


def test_the_loss_knows_the_classes():
    loss = build_loss(DiceConfig(smooth=2.0), SPEC)
    assert isinstance(loss, TverskyLoss)
    assert (loss.task, loss.ignore_index, loss.smooth) == ("multiclass", 255, 2.0)


def test_a_builder_that_gives_no_module_is_refused(monkeypatch):
    monkeypatch.setattr(LOSSES, "build", lambda config, **_: 0.5)
    with pytest.raises(ConfigError, match=r"loss: expected the builder of 'mine' to give a torch module, got .*float"):
        build_loss(SimpleNamespace(name="mine"), SPEC)


def test_schemes_become_numbers_in_the_parts_of_a_sum_too():
    counts = np.array([900, 90, 10])
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


SCHEMES = get_args(Scheme)
COUNTS = np.array([700, 200, 99, 1, 0])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_share_decides_not_the_number_of_pixels(scheme):
    weights = class_weights(COUNTS, scheme)
    np.testing.assert_allclose(class_weights(COUNTS * 2**40, scheme), weights, rtol=1e-12)
    np.testing.assert_allclose(class_weights(COUNTS.astype(np.uint16), scheme), weights, rtol=1e-12)
    order = [3, 1, 4, 0, 2]
    np.testing.assert_array_equal(class_weights(COUNTS[order], scheme), weights[order])
