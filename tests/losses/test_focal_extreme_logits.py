"""Value and gradient at extreme logits, of every backend (Triton's: see triton_grid), against 60 digits of mpmath."""

from functools import partial

import pytest
import torch

from segmeter.losses.focal import focal_loss
from tests.losses.extreme import GAMMAS, extreme


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("task", ["multiclass", "binary"])
@pytest.mark.parametrize("backend", ["torch", "numba"])
def test_float32_is_exact_at_extreme_logits(backend: str, task: str, gamma: float) -> None:
    case = extreme(task, gamma)
    leaf = case.logits.clone().requires_grad_()
    loss = partial(focal_loss, task=task, gamma=gamma, backend=backend, reduction="sum")
    places = range(leaf.shape[-1])
    each = torch.stack([loss(leaf[..., [place]], case.target[..., [place]]) for place in places])
    each.sum().backward()
    if backend == "torch" and task == "multiclass":  # p is rounded, so digits are lost where it is near 1
        torch.testing.assert_close(each.detach().double(), case.loss, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(leaf.grad.double(), case.gradient, rtol=1e-4, atol=1e-6)
    else:
        case.check(each, leaf.grad)
