"""Holds everything that changes while learning: weights, their average, optimizer, loss scale and random generators.

`step.run_step` takes the steps. This module builds the parts that it uses, saves them and restores them.
"""

import copy
import logging
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import Optimizer

from segmeter.distributed.ranks import ParallelModel
from segmeter.errors import CheckpointError
from segmeter.inference.predictor import Predictor
from segmeter.losses.additive import CoreLoss, additive
from segmeter.models.segmenter import AtNetworkSize
from segmeter.training.clock import Limits
from segmeter.training.config import OPTIMIZERS, SCHEDULES, TrainingConfig
from segmeter.training.job import TrainJob

# Shorter runs don't win back the minute that it takes to compile both passes of a U-Net.
AUTO_COMPILE_STEPS = 2000
AUTO_COMPILE_SECONDS = 600.0

_LOG = logging.getLogger(__name__)


class WeightAverage:
    """An exponential moving average of a model's weights and running statistics, in a second model.

    The decay starts at 0.1 and rises, min(decay, (1 + n) / (10 + n)) at update n, so that the random initial weights
    are soon forgotten. torch's `AveragedModel` would give slightly different numbers, as it copies the weights at its
    first update. It also can't average integer buffers, and in every step the host waits while it moves its counter to
    the GPU.

    Parameters
    ----------
    average
        A copy of `model` whose weights are changed in place. From now on neither may be moved.
    decay
        Share of the average that stays in each step, in (0, 1).
    """

    def __init__(self, average: nn.Module, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.updates = 0
        targets, sources = average.state_dict(), model.state_dict()
        floats = [name for name in targets if targets[name].is_floating_point()]
        counters = [name for name in targets if not targets[name].is_floating_point()]
        self._averaged = [targets[name] for name in floats], [sources[name] for name in floats]
        self._copied = [targets[name] for name in counters], [sources[name] for name in counters]

    def update(self) -> None:
        """Move the average towards the model's current weights."""
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        self.updates += 1
        with torch.no_grad():
            torch._foreach_lerp_(*self._averaged, 1.0 - decay)
            if self._copied[0]:
                torch._foreach_copy_(*self._copied)


class Learner:
    """The parts of a job on their device.

    `published` is the segmenter that is validated and saved: the average if there is one. The sums and denominators of
    `loss` add up over the batches of a step. `scaler` scales the loss in float16, and is None in other precisions.
    """

    def __init__(self, job: TrainJob, limits: Limits) -> None:
        settings, config = job.settings, job.settings.training
        self.device = device = job.device
        self.dtype = job.dtype
        self.world = job.world
        self.config = config
        self.augment = job.data.augment
        # moved first, so that what refers to its weights refers to those on the device
        self.segmenter = job.segmenter.to(device).to(memory_format=torch.channels_last).train()
        self.published = copy.deepcopy(self.segmenter).requires_grad_(False) if config.ema else self.segmenter
        self.predictor = Predictor(self.published, settings.inference, device)
        self.average = WeightAverage(self.published, self.segmenter, config.ema) if config.ema else None
        self.lr = settings.optimizer.lr
        self.schedule = SCHEDULES.build(settings.schedule)
        self.optimizer_name = settings.optimizer.name
        self.optimizer: Optimizer = OPTIMIZERS.build(settings.optimizer, model=self.segmenter)
        self.scaler = build_scaler(device, self.dtype)
        self.validation_loss = additive(job.loss, self.segmenter.card.spec).to(device)
        self.loss = CoreLoss(self.validation_loss) if settings.steps else self.validation_loss
        passes = config.accumulate * job.world.size
        if passes > 1 and not self.loss.is_additive and job.world.leads:
            _LOG.warning(
                "training: the region loss is computed over each forward pass (over=batch), so accumulate=%d in %d "
                "process(es) averages %d losses; set over=sample for the loss of one large batch",
                *(config.accumulate, job.world.size, passes),
            )
        model = self.segmenter if self.segmenter.downsample == 1 else AtNetworkSize(self.segmenter)
        self.forward = ParallelModel(compiled(model, config, device=device, steps=limits.last_step), job.world)

    def state(self) -> dict[str, Any]:
        """Return everything that `load` needs in addition to the published weights."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict() if self.scaler else None,
            "weights": self.segmenter.state_dict() if self.average else None,
            "ema_updates": self.average.updates if self.average else 0,
            "rng": capture_rng(self.device),
        }

    def broadcast(self) -> None:
        """Give all processes the state of rank 0. Random draws, as for dropout, still differ between them."""
        if self.world.size == 1:
            return
        own = (self.published.state_dict(), self.state()) if self.world.leads else None
        weights_and_state = self.world.broadcast(own)
        if not self.world.leads:
            self.load(*weights_and_state)
            torch.manual_seed(self.config.seed + self.world.rank)

    def load(self, weights: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Restore the published weights and what `state` returned.

        What the run had no state of starts here, with a warning: an average, an optimizer of another kind, or the
        search for the scale of the loss.
        """
        try:
            self.segmenter.load_state_dict(state["weights"] or weights)
            if self.average:
                self.published.load_state_dict(weights)
                self.average.updates = state["ema_updates"]
        except RuntimeError as error:
            raise CheckpointError(f"resume: the checkpoint does not fit the model: {error}") from error
        if self.average and not state["weights"]:
            _LOG.warning("resume: the run had no average of the weights so far; it starts from the weights as they are")
        elif state["weights"] and not self.average:
            _LOG.warning("resume: the average of the weights is dropped; the weights behind it go on")
        self._load_optimizer(state["optimizer"], state.get("identity", {}).get("optimizer.name"))
        restore_rng(state["rng"])
        if self.scaler and state["scaler"]:
            self.scaler.load_state_dict(dict(state["scaler"]))
        elif self.scaler:
            _LOG.warning("resume: the run had no loss scale so far; the search for that of float16 starts")
        elif state["scaler"]:
            _LOG.warning("resume: the loss scale of float16 is dropped, as this precision needs none")

    def _load_optimizer(self, state: Mapping[str, Any], name: str | None) -> None:
        """Restore what the optimizer has learned. Its options stay those of this job, as they may have changed."""
        groups, before = self.optimizer.state_dict()["param_groups"], state["param_groups"]
        is_same = [group["params"] for group in groups] == [group["params"] for group in before]
        if not is_same or name not in (None, self.optimizer_name):
            _LOG.warning("resume: the optimizer starts anew, as its kind or the groups of its weights have changed")
            return
        groups = [group | {"lr": old["lr"]} for group, old in zip(groups, before, strict=True)]
        self.optimizer.load_state_dict({**state, "param_groups": groups})


def build_scaler(device: torch.device, dtype: torch.dtype) -> GradScaler | None:
    """Make a scaler of the loss for float16, as the smallest gradients would be lost without it."""
    return GradScaler(device.type) if dtype is torch.float16 else None


def compiled(model: nn.Module, config: TrainingConfig, *, device: torch.device, steps: float) -> nn.Module:
    """Compile the model if configured; "auto" does so on a GPU for runs that are long enough to win it back."""
    long_run = steps >= AUTO_COMPILE_STEPS and (config.budget_seconds or AUTO_COMPILE_SECONDS) >= AUTO_COMPILE_SECONDS
    wanted = config.compile if config.compile != "auto" else device.type == "cuda" and long_run
    return torch.compile(model) if wanted else model  # type: ignore[return-value]


def capture_rng(device: torch.device) -> dict[str, Any]:
    """Return the state of every generator as tensors, numbers and lists, which a checkpoint may contain."""
    version, words, gauss = random.getstate()
    legacy: Any = np.random.get_state()  # noqa: NPY002
    name, key, *rest = legacy
    return {
        "python": [version, list(words), gauss],
        "numpy": [name, key.tolist(), *rest],
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if device.type == "cuda" else [],
        "mps": torch.mps.get_rng_state() if device.type == "mps" else None,
    }


def restore_rng(state: dict[str, Any]) -> None:
    """Restore what `capture_rng` returned. States of GPUs that this machine lacks are left out."""
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    np.random.set_state(tuple(state["numpy"]))  # noqa: NPY002
    torch.set_rng_state(state["torch"])
    for number, generator in enumerate(state["cuda"][: torch.cuda.device_count()] if state["cuda"] else []):
        torch.cuda.set_rng_state(generator, number)
    if state.get("mps") is not None and torch.backends.mps.is_available():
        torch.mps.set_rng_state(state["mps"])
