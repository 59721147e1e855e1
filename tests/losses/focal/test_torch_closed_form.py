"""The closed form in plain torch agrees with the log-space reference, and its gradient with finite differences."""

import pytest
import torch

from segmeter.losses.focal.focal import FocalLoss, focal_loss
from tests.losses.cases import TASKS, make_case, option_grid, run


@pytest.mark.parametrize("task", TASKS)
def test_the_closed_form_is_the_reference_over_the_option_grid(task):
    case = make_case(task)
    for options in option_grid(task):
        reference = run(
            lambda x, o=options: focal_loss(x, case.target, task=task, backend="reference", **o), case.logits
        )
        ours = run(lambda x, o=options: focal_loss(x, case.target, task=task, backend="torch", **o), case.logits)
        torch.testing.assert_close(ours, reference, rtol=1e-12, atol=1e-14)


def test_blocks_of_rows_are_cut_without_a_seam(monkeypatch):
    case = make_case("multiclass")
    options = {"task": "multiclass", "backend": "torch", "ignore_index": 255}
    for reduction in ("mean", "none"):
        loss = FocalLoss(reduction=reduction, **options)
        whole = run(lambda x, f=loss: f(x, case.target), case.logits)
        with monkeypatch.context() as patch:
            patch.setattr("segmeter.losses.focal.torch_closed_form.BLOCK_ELEMENTS", 100)  # 2 rows of 5 x 9
            torch.testing.assert_close(run(lambda x, f=loss: f(x, case.target), case.logits), whole)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_gradcheck_of_the_closed_form(task, gamma, smoothing):
    case = make_case(task, num_classes=3, size=(2, 4))
    options = {"task": task, "gamma": gamma, "label_smoothing": smoothing, "ignore_index": 255, "backend": "torch"}
    leaf = case.logits.clone().requires_grad_()
    for reduction in ("mean", "none"):
        loss = FocalLoss(reduction=reduction, **options)
        assert torch.autograd.gradcheck(lambda x, f=loss: f(x, case.target), (leaf,))
