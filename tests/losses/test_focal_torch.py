"""The reference is the definition, written anew in NumPy and SciPy, and can be differentiated twice."""

import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from scipy.special import softmax as scipy_softmax

from segmeter.losses.focal import FocalLoss
from segmeter.losses.focal_torch import FocalOptions, compute
from tests.losses.cases import make_case

WEIGHTS = np.array([0.5, 2.0, 0.1, 1.0, 3.0])


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
def test_softmax_is_its_definition(gamma):
    case = make_case("multiclass")
    logits, target = case.logits.numpy(), case.target.numpy()
    valid = target != 255
    log_p = np.moveaxis(log_softmax(logits, axis=1), 1, -1)[valid][np.arange(valid.sum()), target[valid]]
    losses = -WEIGHTS[target[valid]] * (1 - np.exp(log_p)) ** gamma * log_p
    weights = torch.from_numpy(WEIGHTS)
    options = FocalOptions("multiclass", gamma, class_weights=weights, ignore_index=255, reduction="none")
    total, weight, bad = compute(case.logits, case.target, options)
    np.testing.assert_allclose(total.numpy()[valid], losses, rtol=1e-9)
    assert not total.numpy()[~valid].any()
    assert weight.item() == pytest.approx(WEIGHTS[target[valid]].sum(), rel=1e-12)
    assert bad == 0


@pytest.mark.parametrize("gamma", [0.0, 1.5])
def test_sigmoid_of_a_soft_target_is_the_mixture(gamma):
    rng = np.random.default_rng(0)
    logits, target = rng.normal(0, 2, (2, 3, 4, 5)), rng.uniform(0, 1, (2, 3, 4, 5))
    p = 1 / (1 + np.exp(-logits))
    up, down = -0.25 * (1 - p) ** gamma * np.log(p), -0.75 * p**gamma * np.log(1 - p)
    options = FocalOptions("multilabel", gamma, alpha=0.25)
    total, weight, _ = compute(torch.from_numpy(logits), torch.from_numpy(target), options)
    assert total.item() == pytest.approx((target * up + (1 - target) * down).sum(), rel=1e-12)
    assert weight == 120


def test_smoothing_spreads_its_share_over_all_classes():
    logits = np.array([2.0, 0.0, -1.0])
    p = scipy_softmax(logits)
    share = np.array([0.9 + 0.1 / 3, 0.1 / 3, 0.1 / 3])
    options = FocalOptions("multiclass", label_smoothing=0.1)
    total, _, _ = compute(torch.from_numpy(logits).view(1, 3, 1), torch.tensor([[0]]), options)
    assert total.item() == pytest.approx(-(share * (1 - p) ** 2 * np.log(p)).sum(), rel=1e-12)


def test_the_reference_has_a_second_derivative():
    case = make_case("multiclass", num_classes=3, size=(2, 4))
    loss = FocalLoss("multiclass", gamma=2.0, ignore_index=255, backend="torch")
    assert torch.autograd.gradgradcheck(lambda x: loss(x, case.target), (case.logits.clone().requires_grad_(),))
