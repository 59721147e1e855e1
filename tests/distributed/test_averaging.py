"""Two processes are one training: the same gradient as one process, whatever learns."""

from typing import Any

import pytest
import torch
from torch import Tensor

from segmeter.distributed.ranks import ALONE, find_unused
from segmeter.losses.config import LOSSES
from tests.distributed.asked import LOSS_CASES, Unfinished, batches, gradient_of, three_steps


def test_no_loss_is_left_out() -> None:
    assert {options["name"] for options in LOSS_CASES.values()} == set(LOSSES.names())


@pytest.mark.parametrize("count", [2, 6])
@pytest.mark.parametrize("name", LOSS_CASES)
def test_the_gradient_of_two_processes_is_that_of_accumulation(name, count, answers):
    """Mutations seen to fail: denominators not added up over processes; no factor for the mean over processes."""
    value, gradient = gradient_of(LOSS_CASES[name], batches(count, seed=1), ALONE)
    for answer in answers:
        theirs, found = answer[f"{name}, {count}"]
        assert theirs == pytest.approx(value, rel=1e-10)
        torch.testing.assert_close(found, gradient, rtol=1e-10, atol=1e-12)


def test_only_the_last_pass_of_a_step_is_averaged(answers: list[dict[str, Any]]) -> None:
    """Until then nothing is sent. Mutation seen to fail: no `no_sync`."""
    (here, mean), (elsewhere, other_mean) = (answer["gathered"] for answer in answers)
    assert not torch.allclose(here, elsewhere)
    assert torch.equal(mean, other_mean)
    torch.testing.assert_close(mean, here + elsewhere, rtol=1e-10, atol=1e-12)  # half of two passes of each


def test_what_begins_to_learn_is_averaged_too(answers: list[dict[str, Any]]) -> None:
    """Mutation seen to fail: the wrapper kept when what learns changes."""
    (first, second), (other_first, other_second) = (answer["frozen first"] for answer in answers)
    assert torch.equal(first, other_first)
    assert torch.equal(second, other_second)
    assert len(second) > len(first)


def test_parameters_that_get_no_gradient_are_left_out(answers: list[dict[str, Any]]) -> None:
    """Mutation seen to fail: no look for them (torch stops the second step)."""
    expected = three_steps(ALONE)
    for answer in answers:
        torch.testing.assert_close(answer["unused"], expected, rtol=1e-10, atol=1e-12)


class Noisy(Unfinished):
    """With its dropout, which draws."""

    def forward(self, image: Tensor) -> Tensor:
        return self.used(image)  # type: ignore[no-any-return]


def test_the_look_for_unused_parameters_changes_nothing() -> None:
    """Mutation seen to fail: no evaluation mode, in which running statistics move and dropout draws."""
    model = Noisy().train()
    model.last.eval()
    model.used[0].requires_grad_(False)
    before, random = {name: value.clone() for name, value in model.state_dict().items()}, torch.get_rng_state()
    modes = [module.training for module in model.modules()]
    assert find_unused(model, torch.ones(1, 3, 4, 4)) == ["last.weight", "last.bias"]
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(torch.get_rng_state(), random)
