import numpy as np
import pytest
import torch

from segmeter.errors import InputError, RunError
from segmeter.training.step import DivergenceGuard, Taken


def taken(step, loss, norm=1.0, indices=(0, 1)):
    return Taken(
        step=step,
        lr=0.5,
        indices=[np.array(indices)],
        loss=torch.tensor(loss),
        grad_norm=torch.tensor(norm, dtype=torch.float32),
    )


def test_figures_are_read_together_and_handed_out_once():
    watch = DivergenceGuard(case_id=str)
    for step, loss in ((1, 0.5), (2, 0.25)):
        watch.note(taken(step, loss, 2.0 * step))
    assert watch.take() == {}
    watch.read()
    assert watch.take() == {"loss": 0.375, "grad_norm": 3.0}
    watch.read()
    assert watch.take() == {}


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_loss_that_is_not_finite_is_an_error_with_step_rate_and_cases(bad):
    watch = DivergenceGuard(case_id=lambda index: f"case{index}")
    watch.note(taken(6, 1.0))
    watch.note(taken(7, bad, indices=(4, 2, 4)))
    watch.note(taken(8, bad))
    message = rf"finite loss, got {bad} at step 7 \(lr 0\.5, cases 'case4', 'case2'\)\. Earlier checkpoints stay"
    with pytest.raises(RunError, match=message):
        watch.read()


def test_a_gradient_that_is_not_finite_is_an_error_though_the_loss_is_fine():
    watch = DivergenceGuard(case_id=str)
    watch.note(taken(3, 1.0, float("nan")))
    with pytest.raises(RunError, match="finite gradient, got nan at step 3"):
        watch.read()


def test_an_overflow_of_a_scaled_gradient_is_part_of_the_search_for_the_scale(caplog):
    watch = DivergenceGuard(case_id=str, scaled=True)
    watch.note(taken(3, 1.0, float("inf")))
    watch.note(taken(4, 2.0, 7.0))
    watch.read()
    assert watch.take() == {"loss": 1.5, "grad_norm": 7.0, "skipped_updates": 1}
    assert "1 of the last 2 updates were skipped" in caplog.text
    watch.note(taken(5, float("inf")))
    with pytest.raises(RunError, match="finite loss"):
        watch.read()


def test_updates_skipped_in_a_row_end_a_scaled_run_with_the_cases():
    watch = DivergenceGuard(case_id=lambda index: f"case{index}", scaled=True, max_skipped=3)
    for step, norm in enumerate([np.inf, np.inf, 1.0, np.nan, np.inf, np.inf], start=1):
        watch.note(taken(step, 1.0, norm, indices=(step, step + 1)))
        if step == 4:  # the count outlives a reading, a line of the log and a resume
            watch.read()
            assert watch.take()["skipped_updates"] == 3
            options = {"scaled": True, "max_skipped": 3}
            watch = DivergenceGuard(case_id=watch.case_id, kept=watch.kept, **options)
    message = r"3 updates in a row were skipped .*, the last at step 6 \(lr 0.5, cases 'case6', 'case7'\)"
    with pytest.raises(RunError, match=message) as caught:
        watch.read()
    assert "training.precision=bfloat16" in str(caught.value)


def test_bad_labels_are_named_as_the_cause_of_a_loss_that_is_not_finite():
    def check():
        raise InputError("4 other labels")

    watch = DivergenceGuard(case_id=str, check_labels=check)
    watch.note(taken(1, 1.0))
    watch.read()
    watch.note(taken(2, float("nan")))
    with pytest.raises(InputError, match="4 other labels"):
        watch.read()


def test_many_cases_are_counted():
    watch = DivergenceGuard(case_id=str)
    watch.note(taken(1, float("nan"), indices=tuple(range(20))))
    with pytest.raises(RunError, match=r"'7' and 12 more\)"):
        watch.read()
