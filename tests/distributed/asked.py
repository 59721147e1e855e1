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
from torch.utils._python_dispatch import TorchDispatchMode

from segmeter.data.sample import Sample
from segmeter.distributed.ranks import Order, ParallelModel, World
from segmeter.errors import RunError, StopSignals
from segmeter.inference.config import InferenceConfig
from segmeter.inference.results import Prediction
from segmeter.losses.additive import additive
from segmeter.losses.config import LOSSES, build_loss
from segmeter.training.clock import Limits
from segmeter.training.config import TrainingConfig
from segmeter.training.data.batches import Batch
from segmeter.training.learner import Learner
from segmeter.training.validation import Validator, score_part
from tests.training.tiny import SPEC, TinyCases, stepper, tiny_job, tiny_segmenter

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


def step_of(forward: Any, loss: Any, optimizer: torch.optim.Optimizer) -> Any:
    config = TrainingConfig(precision="float32", clip_norm=None)
    given = {"forward": forward, "loss": loss, "optimizer": optimizer, "config": config, "device": torch.device("cpu")}
    return stepper(**given, scaler=None, augment=None)


def gradient_of(options: dict[str, Any], mine: list[Batch], world: World) -> tuple[float, Tensor]:
    """Loss and gradient of one step in float64."""
    spec = BINARY if options.get("normalizer") == "positives" else SPEC
    if spec is BINARY:
        mine = [replace(each, target=torch.where(each.target == 2, 1, each.target)) for each in mine]
    model = network(1 if spec is BINARY else 3)
    optimizer = Kept(model.parameters(), lr=0.1)
    loss = build_loss(LOSSES.schema(options["name"])(**options), spec=spec)
    value, _ = step_of(model if world.size == 1 else ParallelModel(model, world), additive(loss, spec), optimizer)(mine)
    return float(value), optimizer.gradient


def work(world: World, folder: Path) -> dict[str, Any]:
    """All that a process of the world is asked, in one start of it."""
    found: dict[str, Any] = {}
    for (name, options), count in itertools.product(LOSS_CASES.items(), (2, 6)):
        found[f"{name}, {count}"] = gradient_of(options, batches(count, seed=1)[world.rank :: world.size], world)
    found["frozen first"] = two_passes(world, frozen=True)
    found["gathered"] = two_passes(world, frozen=False)
    found["unused"] = three_steps(world)
    found["heard"] = decide(world)
    found["validations"] = validate_each_way(world, folder)
    with mock.patch("torch.serialization.location_tag", return_value="cuda:0"):  # where tensors say that they lie
        found["of a GPU"] = world.broadcast({"weights": [torch.arange(4.0)], "step": 3} if world.leads else None)
    found["waits"] = step_without_waiting(world)
    return found


def step_without_waiting(world: World) -> list[str]:
    """Whatever waits for the device in a step, once the first step has wrapped the model."""
    model, focal = ParallelModel(network(), world), build_loss(LOSSES.schema("focal")(backend="torch"), spec=SPEC)
    step = step_of(model, additive(focal, SPEC), torch.optim.SGD(model.model.parameters(), lr=0.1, fused=True))
    mine = batches(4, seed=2)[world.rank :: world.size]
    step(mine)
    with mock.patch("segmeter.losses.focal.refuse_bad_labels"), NoWaiting() as noted:
        step(mine)
    return noted.waits


class NoWaiting(TorchDispatchMode):
    """Notes the operations that give the host a value of the device."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__ in ("_local_scalar_dense", "item", "nonzero", "equal"):
            self.waits.append(str(func))
        return func(*args, **(kwargs or {}))


def two_passes(world: World, *, frozen: bool) -> list[Tensor]:
    """Gradients after the first and the last backward pass of a step; or of two steps, in the first of which the first
    layer does not learn.
    """
    model = network()
    averaged, gradients = ParallelModel(model, world), []
    image = torch.full((1, 3, 4, 4), 1.0 + world.rank, dtype=torch.float64)
    for last in (False, True):
        if frozen:
            model.zero_grad()
            model[0].requires_grad_(last)
        with averaged.gathering(image, last=last or frozen):
            averaged(image).square().sum().backward()
        gradients.append(torch.cat([p.grad.reshape(-1).clone() for p in model.parameters() if p.grad is not None]))
    return gradients


class Unfinished(nn.Module):
    """A network with layers that its output does not depend on, as EfficientNet encoders have, and batch norm."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.used = nn.Sequential(
            nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4).eval(), nn.Dropout(0.5).eval(), nn.Conv2d(4, 3, 1)
        )
        self.last = nn.Conv2d(4, 8, 1)

    def forward(self, image: Tensor) -> Tensor:
        return self.used(image)  # type: ignore[no-any-return]


def three_steps(world: World) -> Tensor:
    """The weights after three steps, each over both images."""
    model = Unfinished().double()
    run = model if world.size == 1 else ParallelModel(model, world)
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


class MixedCases(TinyCases):
    """Cases of two sizes, so that batches are not all full, and no number of processes divides them."""

    def __getitem__(self, index: int) -> Sample:
        sample = super().__getitem__(index)
        end = 12 if index in (3, 6, 7) else 16
        assert sample.target is not None
        return replace(sample, image=sample.image[:end], target=sample.target[:end])


def name_of(prediction: Prediction, folder: Path) -> Path:
    """Stands for a picture, and says what would be drawn."""
    return folder / f"{prediction.sample.case_id} {int(prediction.labels.sum())}.png"


def validate_each_way(world: World, folder: Path) -> list[Any]:
    """What rank 0 has of four validations: a whole one, one with a fault in rank 1, and with a signal to rank 1 or 0.

    The running statistics of batch norm differ between the processes.
    """
    found: list[Any] = []
    for poisoned, signalled in ((), None), ((2,), None), ((), 1), ((), 0):
        cases, stop = MixedCases(count=11, poisoned=poisoned), StopSignals()
        options = {"inference": InferenceConfig(precision="float32", batch_size=2), "draw": name_of, "pictures": 4}
        job = tiny_job(folder, val_cases=cases, world=world, segmenter=tiny_segmenter(), **options)
        learner = Learner(job, Limits(config=job.settings.training, batches_per_epoch=2))
        learner.published.network.layers[1].running_mean += world.rank
        stop.hear(int(signal.SIGUSR1) if world.rank == signalled else 0)
        if not world.leads:
            world.gather(score_part(job, learner, stop=stop))
            continue
        validator = Validator(job, learner, step=0, show=lambda words: None, stop=stop)
        try:
            found.append((validator(7, 0.1), stop.number))
        except RunError as error:
            found.append(str(error))
        validator.settle()
    return found
