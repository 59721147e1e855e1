"""What a builder gives, and class weights as numbers."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from segmeter.classes import ClassSpec
from segmeter.errors import ConfigError
from segmeter.losses.additive import additive
from segmeter.losses.build import build_loss, fix_weights, resolve_weights
from segmeter.losses.config import LOSSES, CrossEntropyConfig, DiceConfig, FocalConfig, SumConfig
from segmeter.losses.region import TverskyLoss
from tests.losses.cases import make_case

SPEC = ClassSpec(task="multiclass", names=("sky", "road", "car"), colours=((0, 0, 0),) * 3, ignore_index=255)


def test_the_loss_knows_the_classes():
    loss = build_loss(DiceConfig(smooth=2.0), SPEC)
    assert isinstance(loss, TverskyLoss)
    assert (loss.task, loss.ignore_index, loss.smooth) == ("multiclass", 255, 2.0)


def test_a_builder_that_gives_no_module_is_refused(monkeypatch):
    monkeypatch.setattr(LOSSES, "build", lambda config, **_: 0.5)
    with pytest.raises(ConfigError, match=r"loss: expected the builder of 'mine' to give a torch module, got .*float"):
        build_loss(SimpleNamespace(name="mine"), SPEC)


def test_class_weights_are_none_numbers_or_a_scheme_of_the_counts():
    counts = np.array([900, 90, 10])
    assert resolve_weights(SimpleNamespace(class_weights=None), SPEC, counts) is None
    assert resolve_weights(SimpleNamespace(class_weights=[1.0, 2.0, 3.0]), SPEC, None) == (1.0, 2.0, 3.0)
    inverse = resolve_weights(SimpleNamespace(class_weights="inverse"), SPEC, counts)
    assert inverse == pytest.approx((1000 / 2700, 1000 / 270, 1000 / 30))


def test_numbers_that_do_not_fit_the_classes_name_them():
    with pytest.raises(ConfigError, match=r"to have 3 values, one for each of sky, road, car, got \(1.0, 2.0\)"):
        resolve_weights(SimpleNamespace(class_weights=(1.0, 2.0)), SPEC, None)


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


@pytest.mark.parametrize("name", sorted(LOSSES.names()))
def test_a_binary_target_may_have_the_channel_axis_of_the_logits(name):
    """(B, 1, H, W) or (B, H, W): one value, sum and denominator, with ignored pixels."""
    spec = ClassSpec(task="binary", names=("a", "b"), colours=((0, 0, 0), (1, 1, 1)), ignore_index=255)
    loss = additive(build_loss(LOSSES.schema(name)(), spec), spec.ignore_index)
    case = make_case("binary")
    for values in (loss, loss.sums):
        torch.testing.assert_close(
            values(case.logits, case.target[:, None]), values(case.logits, case.target), rtol=0, atol=0
        )
    torch.testing.assert_close(loss.denominators(case.target[:, None]), loss.denominators(case.target), rtol=0, atol=0)
