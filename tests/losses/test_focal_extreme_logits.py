"""Value and gradient at extreme logits, of every backend (Triton's: see triton_grid), against 60 digits of mpmath."""

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
    loss = focal_loss(leaf, case.target, task=task, gamma=gamma, backend=backend, reduction="none")
    loss.sum().backward()
    if backend == "torch" and task == "multiclass":  # p is rounded, so digits are lost where it is near 1
        torch.testing.assert_close(loss.detach().double().reshape(-1), case.loss, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(leaf.grad.double(), case.gradient, rtol=1e-4, atol=1e-6)
    else:
        case.check(loss, leaf.grad)
