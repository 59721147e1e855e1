"""Value and gradient at extreme logits, of every backend (Triton's: see triton_grid), against 60 digits of mpmath."""

import pytest

from segmeter.losses.focal.focal import focal_loss
from tests.losses.extreme import GAMMAS, extreme


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("task", ["multiclass", "binary"])
@pytest.mark.parametrize("backend", ["reference", "torch", "numba"])
def test_float32_is_exact_at_extreme_logits(backend: str, task: str, gamma: float) -> None:
    case = extreme(task, gamma)
    leaf = case.logits.clone().requires_grad_()
    loss = focal_loss(leaf, case.target, task=task, gamma=gamma, backend=backend, reduction="none")
    loss.sum().backward()
    case.check(loss, leaf.grad)
