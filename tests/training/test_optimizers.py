"""Steps of the optimizers, against torch's own, and schedules by hand."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from segmeter.training.config import OPTIMIZERS, SCHEDULES, AdamWConfig, SgdConfig
from segmeter.training.optimizers import parameter_groups, update_weights
from tests.training.tiny import TinyNetwork, assert_same, weights


def with_gradients():
    torch.manual_seed(0)
    model = TinyNetwork()
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    return model


def test_norms_and_biases_do_not_decay_and_frozen_weights_are_left_out():
    model = TinyNetwork()
    model.layers[4].weight.requires_grad_(False)
    decayed, plain = parameter_groups(model, 0.5)
    assert [tuple(p.shape) for p in decayed["params"]] == [(8, 3, 3, 3)]
    assert decayed["weight_decay"] == 0.5
    assert [tuple(p.shape) for p in plain["params"]] == [(8,), (8,), (8,), (3,)]
    assert plain["weight_decay"] == 0.0


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "not fused"])
@pytest.mark.parametrize("config", [AdamWConfig(weight_decay=0.3), SgdConfig(weight_decay=0.3)], ids=lambda c: c.name)
@pytest.mark.parametrize("clip_norm", [None, 0.5, 1e6])
def test_a_step_is_the_one_that_torch_takes_after_clipping(config, clip_norm, fused):
    ours, theirs = with_gradients(), with_gradients()
    plain = partial(torch.optim.SGD, momentum=0.99, nesterov=True) if config.name == "sgd" else torch.optim.AdamW
    optimizer, reference = (
        plain(parameter_groups(model, 0.3), lr=config.lr, fused=False, foreach=False) for model in (ours, theirs)
    )
    optimizer = OPTIMIZERS.build(config, model=ours) if fused else optimizer
    for _ in range(3):
        expected_norm = torch.cat([p.grad.flatten().double() for p in ours.parameters()]).square().sum().sqrt()
        norm = update_weights(optimizer, clip_norm=clip_norm)
        torch.testing.assert_close(norm.double(), expected_norm, rtol=1e-5, atol=0)
        if clip_norm is not None:
            nn.utils.clip_grad_norm_(theirs.parameters(), clip_norm)
        reference.step()
        for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6)
            assert mine.grad is None
            mine.grad = torch.randn_like(mine)
            other.grad = mine.grad.clone()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("clip_norm", [None, 1.0])
@pytest.mark.parametrize("fused", [True, False])
def test_a_gradient_that_is_not_finite_leaves_every_weight_as_it_is(bad, clip_norm, fused):
    model = with_gradients()
    optimizer = OPTIMIZERS.build(AdamWConfig(), model=model) if fused else torch.optim.SGD(model.parameters(), lr=1.0)
    before = weights(model)
    model.layers[0].bias.grad[0] = bad
    assert not update_weights(optimizer, clip_norm=clip_norm).isfinite()
    assert_same(weights(model), before)


QUARTER = 0.1 + 0.9 * (1 + np.sqrt(0.5)) / 2  # of the way from 1 to 0.1, where the cosine is that of 45 degrees


@pytest.mark.parametrize(
    ("name", "options", "factors"),
    [
        ("cosine", {"warmup": 0.2, "final": 0.1}, {0.0: 0.01, 0.1: 0.505, 0.2: 1.0, 0.4: QUARTER, 0.6: 0.55, 1.0: 0.1}),
        ("one_cycle", {"rise": 0.25, "start": 0.2, "final": 0.1}, {0: 0.2, 0.125: 0.6, 0.25: 1, 0.625: 0.55, 1: 0.1}),
        ("poly", {"warmup": 0.5, "power": 2.0}, {0.5: 1.0, 0.75: 0.25, 1.0: 0.0}),
        ("constant", {"warmup": 0.0}, {0.5: 1.0}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_schedules_by_hand(name, options, factors):
    factor = SCHEDULES.build(SCHEDULES.schema(name)(**options))
    assert {progress: factor(progress) for progress in factors} == pytest.approx(factors)


@pytest.mark.parametrize("name", SCHEDULES.names())
def test_every_schedule_rises_then_falls_and_stays_within_0_and_1_beyond_the_end(name):
    factor = SCHEDULES.build(SCHEDULES.schema(name)())
    values = np.array([factor(p) for p in np.linspace(0.0, 1.2, 241)])
    peak = int(values.argmax())
    assert values.min() >= 0.0
    assert values.max() == pytest.approx(1.0)
    assert np.all(np.diff(values[: peak + 1]) >= 0)
    assert np.all(np.diff(values[peak:]) <= 1e-12)
