import numpy as np
import pytest
import torch

from segmeter.errors import RunError
from segmeter.training.watch import Taken, Watch


def taken(step, loss, norm=1.0, indices=(0, 1)):
    return Taken(
        step=step,
        lr=0.5,
        indices=[np.array(indices)],
        loss=torch.tensor(loss),
        grad_norm=torch.tensor(norm, dtype=torch.float32),
    )


def test_figures_are_read_together_and_handed_out_once():
    watch = Watch(case_id=str)
    for step, loss in ((1, 0.5), (2, 0.25)):
        watch.note(taken(step, loss, 2.0 * step))
    assert watch.losses == []
    watch.read()
    assert watch.take() == ([0.5, 0.25], [2.0, 4.0])
    watch.read()
    assert watch.take() == ([], [])


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_loss_that_is_not_finite_is_an_error_with_step_rate_and_cases(bad):
    watch = Watch(case_id=lambda index: f"case{index}")
    watch.note(taken(6, 1.0))
    watch.note(taken(7, bad, indices=(4, 2, 4)))
    watch.note(taken(8, bad))
    message = rf"finite loss, got {bad} at step 7 \(lr 0\.5, cases 'case4', 'case2'\)\. Earlier checkpoints stay"
    with pytest.raises(RunError, match=message):
        watch.read()


def test_a_gradient_that_is_not_finite_is_an_error_though_the_loss_is_fine():
    watch = Watch(case_id=str)
    watch.note(taken(3, 1.0, float("nan")))
    with pytest.raises(RunError, match="finite gradient, got nan at step 3"):
        watch.read()


def test_an_overflow_of_a_scaled_gradient_is_part_of_the_search_for_the_scale():
    watch = Watch(case_id=str, scaled=True)
    watch.note(taken(3, 1.0, float("inf")))
    watch.read()
    assert watch.losses == [1.0]
    watch.note(taken(4, float("inf")))
    with pytest.raises(RunError, match="finite loss"):
        watch.read()


def test_many_cases_are_counted():
    watch = Watch(case_id=str)
    watch.note(taken(1, float("nan"), indices=tuple(range(20))))
    with pytest.raises(RunError, match=r"'7' and 12 more\)"):
        watch.read()
