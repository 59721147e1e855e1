"""What the processes of one world are asked: gradients, decisions, signals, validations."""

import itertools
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn

from segmeter.distributed.ranks import Averaged, Order, World
from segmeter.losses.additive import additive
from segmeter.losses.config import LOSSES, build_loss
from segmeter.training.config import TrainingConfig
from segmeter.training.data.batches import Batch
from tests.distributed.validated import validate_each_way
from tests.training.tiny import SPEC, stepper

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
    "lovasz over samples": {"name": "lovasz", "over": "sample"},
    "cross-entropy": {"name": "cross_entropy"},
    "tversky": {"name": "tversky", "over": "sample"},
    "focal tversky": {"name": "focal_tversky", "over": "sample"},
    "sum": {"name": "sum", "dice": {"over": "sample"}},
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
        made.append(Batch(image=image, target=target, indices=np.arange(size)))
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
    step = stepper(
        forward=model if world.size == 1 else Averaged(model, world),
        loss=additive(loss, spec),
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
    found["gathered"] = gathered(world)
    found["unused"] = three_steps(world)
    found["heard"] = decide(world)
    found["validations"] = validate_each_way(world, folder)
    found["shared"] = world.share({"x": torch.arange(3)} if world.leads else None)
    found["of a GPU"] = share_from_gpu(world)
    return found


def share_from_gpu(world: World) -> Any:
    """What comes of tensors that say, where they are pickled, that they lie on the first process's GPU."""
    with mock.patch("torch.serialization.location_tag", return_value="cuda:0"):
        return world.share({"weights": [torch.arange(4.0)], "step": 3} if world.leads else None)


def gathered(world: World) -> list[Tensor]:
    """Gradients after the first and after the last backward pass of a step."""
    model = network()
    averaged, gradients = Averaged(model, world), []
    image = torch.full((1, 3, 4, 4), 1.0 + world.rank, dtype=torch.float64)
    for last in (False, True):
        with averaged.gathering(image, last=last):
            averaged(image).square().sum().backward()
        gradients.append(torch.cat([p.grad.reshape(-1).clone() for p in model.parameters() if p.grad is not None]))
    return gradients


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
    """Rank 0 announces a step and a validation; a signal of rank 1 is heard by it at the validation."""
    if world.leads:
        orders = (Order(0, 0.25, validates=False), Order(1, 0.5, validates=True))
        heard: list[Any] = [world.tell(order, 0) for order in orders]
        world.end(None, None, None)
        return heard
    return [world.next_order(0), world.next_order(int(signal.SIGUSR1)), world.next_order(0)]
