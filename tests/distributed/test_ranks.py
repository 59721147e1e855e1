"""Two processes are one training: the same gradient as one process, one who decides, and signals that all hear."""

import itertools
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from segmeter.distributed.averaging import Averaged, find_unused
from segmeter.distributed.ranks import ALONE, Place, World, find_place
from segmeter.errors import ConfigError
from segmeter.losses.additive import additive
from segmeter.losses.build import build_loss
from segmeter.losses.config import LOSSES
from segmeter.training.config import TrainingConfig
from segmeter.training.data.batches import Batch
from segmeter.training.optimisation.step import Stepper
from tests.distributed.spawned import run_world
from tests.training.tiny import SPEC

BINARY = SPEC.model_copy(update={"task": "binary", "names": SPEC.names[:2], "colours": SPEC.colours[:2]})
LOSS_CASES: dict[str, dict[str, Any]] = {
    "focal": {"name": "focal", "backend": "torch"},
    "focal, mean over positives": {"name": "focal", "backend": "torch", "normalizer": "positives"},
    "focal, elements": {"name": "focal", "backend": "torch", "normalizer": "elements"},
    "focal, a number": {"name": "focal", "backend": "torch", "normalizer": 7.0},
    "focal, class weights": {"name": "focal", "backend": "torch", "class_weights": (0.2, 1.0, 5.0)},
    "dice over samples": {"name": "dice", "over": "sample"},
    "dice over batches": {"name": "dice", "over": "batch"},
    "lovasz": {"name": "lovasz"},
}


def batches(count: int, *, seed: int) -> list[Batch]:
    """Batches of unequal size, in which very different parts are ignored."""
    made = []
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        size = 1 + number % 3
        target = torch.from_numpy(rng.integers(0, 3, (size, 6, 6)).astype(np.int64))
        target[:, : number % 6] = 255
        image = torch.from_numpy(rng.normal(size=(size, 3, 6, 6)))
        made.append(Batch(image=image, target=target, indices=np.arange(size), epoch=0))
    return made


def network(channels: int = 3) -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Conv2d(3, 5, 3, padding=1), nn.Tanh(), nn.Conv2d(5, channels, 1)).double()


class Kept(torch.optim.SGD):
    """Keeps the gradient that it was given."""

    gradient: Tensor

    def step(self, closure: Any = None) -> None:
        parameters = [p for group in self.param_groups for p in group["params"]]
        self.gradient = torch.cat([p.grad.reshape(-1) for p in parameters])


def gradient_of(options: dict[str, Any], mine: list[Batch], world: World) -> tuple[float, Tensor]:
    """Loss and gradient of one step in float64."""
    spec = BINARY if options.get("normalizer") == "positives" else SPEC
    if spec is BINARY:
        mine = [replace(each, target=torch.where(each.target == 2, 1, each.target)) for each in mine]
    model = network(1 if spec is BINARY else 3)
    optimizer = Kept(model.parameters(), lr=0.1)
    loss = build_loss(LOSSES.schema(options["name"])(**options), spec=spec)
    step = Stepper(
        forward=model if world.size == 1 else Averaged(model, world),
        loss=additive(loss, spec.ignore_index),
        optimizer=optimizer,
        scaler=None,
        augment=None,
        config=TrainingConfig(precision="float32", clip_norm=None, channels_last=False),
        device=torch.device("cpu"),
    )
    value, _ = step(mine)
    return float(value), optimizer.gradient


def work(world: World, folder: Path) -> dict[str, Any]:
    """All that a process of the world is asked, in one start of it."""
    found: dict[str, Any] = {}
    for (name, options), count in itertools.product(LOSS_CASES.items(), (2, 6)):
        found[f"{name}, {count}"] = gradient_of(options, batches(count, seed=1)[world.rank :: world.size], world)
    found["frozen first"] = frozen_first(world)
    found["unused"] = three_steps(world)
    found["heard"] = decide(world)
    found["shared"] = world.share({"x": torch.arange(3)} if world.leads else None)
    return found


def frozen_first(world: World) -> list[Tensor]:
    """Gradients of a model whose first layer learns in the second step only."""
    model = network()
    averaged, gradients = Averaged(model, world), []
    for learns in (False, True):
        model[0].requires_grad_(learns)
        image = torch.full((1, 3, 4, 4), 1.0 + world.rank, dtype=torch.float64)
        averaged(image).square().sum().backward()
        gradients.append(torch.cat([p.grad.reshape(-1) for p in model.parameters() if p.grad is not None]))
        model.zero_grad()
    return gradients


class Unfinished(nn.Module):
    """A network with layers that its output does not depend on, as EfficientNet encoders have, and batch norm."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.used = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4).eval(), nn.Dropout(0.5), nn.Conv2d(4, 3, 1))
        self.last = nn.Conv2d(4, 8, 1)

    def forward(self, image: Tensor) -> Tensor:
        logits: Tensor = self.used[:2](image)
        return self.used[3](logits)  # type: ignore[no-any-return]


def three_steps(world: World) -> Tensor:
    """The weights after three steps, each over both images."""
    model = Unfinished().double()
    run = model if world.size == 1 else Averaged(model, world)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images = torch.arange(96, dtype=torch.float64).reshape(2, 3, 4, 4).sin()
    for _ in range(3):
        run(images[world.rank :: world.size]).square().mean().backward()
        assert model.last.weight.grad is None
        optimizer.step()
        optimizer.zero_grad()
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])


def decide(world: World) -> list[Any]:
    """Rank 0 announces steps; a signal of rank 1 is heard by it in the second one."""
    if world.leads:
        heard: list[Any] = [world.tell_step(0, 0.25, 0), world.tell_step(1, 0.5, 0)]
        world.tell_end()
        return heard
    return [world.next_step(0), world.next_step(int(signal.SIGUSR1)), world.next_step(0)]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run_world(work, 2, tmp_path_factory.mktemp("world"))


@pytest.mark.parametrize("count", [2, 6])
@pytest.mark.parametrize("name", LOSS_CASES)
def test_the_gradient_of_two_processes_is_that_of_accumulation(
    name: str, count: int, answers: list[dict[str, Any]]
) -> None:
    """Mutations seen to fail: denominators not added up over processes; no factor for the mean over processes."""
    value, gradient = gradient_of(LOSS_CASES[name], batches(count, seed=1), ALONE)
    for answer in answers:
        theirs, found = answer[f"{name}, {count}"]
        assert theirs == pytest.approx(value, rel=1e-10)
        torch.testing.assert_close(found, gradient, rtol=1e-10, atol=1e-12)


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


def test_the_look_for_unused_parameters_changes_nothing() -> None:
    model = Unfinished().train()
    model.used[1].eval()
    model.used[0].requires_grad_(False)
    before, random = {name: value.clone() for name, value in model.state_dict().items()}, torch.get_rng_state()
    modes = [module.training for module in model.modules()]
    assert find_unused(model, torch.ones(1, 3, 4, 4)) == ["last.weight", "last.bias"]
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(torch.get_rng_state(), random)


def test_rank_0_decides_and_hears_the_signals_of_all(answers: list[dict[str, Any]]) -> None:
    assert answers[0]["heard"] == [0, int(signal.SIGUSR1)]
    assert answers[1]["heard"] == [(0, 0.25), (1, 0.5), None]
    assert all(torch.equal(answer["shared"]["x"], torch.arange(3)) for answer in answers)


def test_variables_of_torchrun_and_srun_are_found() -> None:
    srun = {"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "8", "SLURM_LOCALID": "1"}
    found = find_place(srun)
    assert found is not None
    assert (found.rank, found.size, found.local) == (5, 8, 1)
    here = {"SUBMITIT_LOCAL_GLOBALID": "1", "SUBMITIT_LOCAL_NTASKS": "2", "SUBMITIT_LOCAL_LOCALID": "1"}
    assert find_place({**srun, **here}) == Place(1, 2, 1)
    assert find_place({}) is None
    assert find_place({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}) is None
    with pytest.raises(ConfigError, match="RANK=9, WORLD_SIZE=4"):
        find_place({"RANK": "9", "WORLD_SIZE": "4", "LOCAL_RANK": "1"})
