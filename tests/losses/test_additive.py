"""Sums and denominators of batches add up to the loss of all of them, and bad labels are named when asked for."""

import numpy as np
import pytest
import torch
from torch import nn

from segmeter.losses.additive import AdditiveLoss, CoreLoss, SumLoss, additive, divide
from segmeter.losses.focal import FocalLoss
from segmeter.losses.region import TverskyLoss
from tests.losses.cases import make_case, run
from tests.models.parts import make_spec


def test_a_foreign_loss_in_float16_is_summed_in_float32():
    """300 x 300 pixels times a loss of 1 is more than float16 holds."""
    loss = additive(nn.L1Loss(), make_spec(4).replace(ignore_index=None))
    assert loss.sums(torch.ones(1, 300, 300).half(), torch.zeros(1, 300, 300).half()) == 90_000


WEIGHTS = {"focal": 0.5, "dice": 2.0}


def make_sum(over):
    focal = FocalLoss("multiclass", gamma=1.0, ignore_index=255)
    return SumLoss({"focal": focal, "dice": TverskyLoss("multiclass", over=over, ignore_index=255)}, WEIGHTS)


@pytest.mark.parametrize("over", ["batch", "sample"])
def test_value_and_gradient_are_the_weighted_ones_of_the_parts(over):
    case, loss = make_case("multiclass"), make_sum(over)
    value, gradient = run(lambda x: loss(x, case.target), case.logits)
    parts = {name: run(lambda x, f=part: f(x, case.target), case.logits) for name, part in loss.parts.items()}
    torch.testing.assert_close(value, sum(WEIGHTS[name] * each for name, (each, _) in parts.items()))
    torch.testing.assert_close(gradient, sum(WEIGHTS[name] * each for name, (_, each) in parts.items()))


def test_it_adds_over_batches_or_pixels_where_all_parts_do():
    parts = {name: FocalLoss("multiclass", gamma=gamma) for name, gamma in (("focal", 2.0), ("cross_entropy", 0.0))}
    sums = (SumLoss(parts, dict.fromkeys(parts, 1.0)), make_sum("sample"), make_sum("batch"))
    flags = [(each.is_additive, each.is_additive_over_pixels) for each in sums]
    assert flags == [(True, True), (True, False), (False, False)]
    own = AdditiveLoss("own")  # one that doesn't say so is never added over bands of an image
    assert (own.is_additive, own.is_additive_over_pixels) == (True, False)


def test_the_loss_of_cores_asks_the_same_logit_twice():
    """Binary cross-entropies of torch. Mutation seen to fail: the shift added."""
    rng = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 1, 6, 5, generator=rng, dtype=torch.float64)
    target = torch.randint(0, 3, (2, 6, 5), generator=rng)
    target[0, 0] = 255
    loss = CoreLoss(FocalLoss("binary", gamma=0.0, ignore_index=255))
    valid, known = logits[:, 0][target != 255], target[target != 255]
    entropy = nn.functional.binary_cross_entropy_with_logits
    wanted = entropy(valid, (known >= 1).double()) + entropy(valid - np.log(19), (known == 2).double()) / 2
    torch.testing.assert_close(loss(logits, target).double(), wanted, rtol=1e-6, atol=0)
    halves = [(logits[:1], target[:1]), (logits[1:], target[1:])]
    denominators = sum(loss.denominators(labels) for _, labels in halves)
    torch.testing.assert_close(divide(sum(loss.sums(*half) for half in halves), denominators), loss(logits, target))
