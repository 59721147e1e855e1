"""A sum of losses: its value, its gradient, and one denominator for each part."""

import pytest
import torch

from segmeter.losses.additive import SumLoss, divide
from segmeter.losses.focal import FocalLoss
from segmeter.losses.region import TverskyLoss
from tests.losses.cases import make_case, run

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


def test_it_adds_over_pixels_where_all_parts_do():
    parts = {name: FocalLoss("multiclass", gamma=gamma) for name, gamma in (("focal", 2.0), ("cross_entropy", 0.0))}
    assert SumLoss(parts, dict.fromkeys(parts, 1.0)).adds_over_pixels
    assert not make_sum("sample").adds_over_pixels


def test_it_adds_over_batches_where_all_parts_do():
    assert make_sum("sample").adds
    assert not make_sum("batch").adds
    case, loss = make_case("multiclass"), make_sum("sample")
    halves = [(case.logits[:1], case.target[:1]), (case.logits[1:], case.target[1:])]
    denominators = sum(loss.denominators(target) for _, target in halves)
    assert denominators.tolist() == [(case.target != 255).sum(), 3]
    torch.testing.assert_close(divide(sum(loss.sums(*half) for half in halves), denominators), loss(*case))
