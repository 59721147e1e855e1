"""Everything that changes while learning, put together from a job: weights, their average, optimizer, scaler."""

import copy
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from segmeter.distributed.averaging import Averaged
from segmeter.inference.memory import advised
from segmeter.inference.predictor import Predictor
from segmeter.losses.additive import additive
from segmeter.models.checkpoints.checkpoint import Checkpoint
from segmeter.models.checkpoints.manifest import WEIGHTS
from segmeter.models.checkpoints.weights import load_tensors
from segmeter.models.segmenter import AtNetworkSize
from segmeter.training.checkpointing import load_weights
from segmeter.training.config import OPTIMIZERS, SCHEDULES
from segmeter.training.data.batches import Batch
from segmeter.training.job import TrainJob
from segmeter.training.limits import Limits
from segmeter.training.optimisation.ema import Ema
from segmeter.training.optimisation.freezing import Freezing
from segmeter.training.optimisation.optimizer import set_lr
from segmeter.training.optimisation.step import Stepper, build_scaler, compiled
from segmeter.training.run.background import address
from segmeter.training.run.determinism import capture_rng, restore_rng

_LOG = logging.getLogger(__name__)
_LESS = "Set a smaller training.batch_size (with training.accumulate for the same update) or augment.crop, and resume."


class Learner:
    """The parts of a job on their device.

    `published` is the segmenter that is validated and saved: the average where there is one. `before_update` is called
    in each step before anything of `steady` changes.
    """

    def __init__(
        self, job: TrainJob, device: torch.device, limits: Limits, before_update: Callable[[], None] = lambda: None
    ) -> None:
        config = job.training
        self.device = device
        self.segmenter = job.segmenter.to(device).train()
        self.published = copy.deepcopy(self.segmenter).requires_grad_(False) if config.ema else self.segmenter
        # the predictor settles the layout of what it runs, so everything that points at weights comes after it
        self.predictor = Predictor(self.published, job.inference, device)
        layout = torch.channels_last if config.channels_last else torch.contiguous_format
        self.segmenter.to(memory_format=layout)
        self.ema = Ema(self.published, self.segmenter, config.ema) if config.ema else None
        self.lr = job.optimizer.lr
        self._case_ids = job.train_cases.case_ids
        self.schedule = SCHEDULES.build(job.schedule)
        self.optimizer: torch.optim.Optimizer = OPTIMIZERS.build(job.optimizer, model=self.segmenter)
        self.scaler = build_scaler(device, config.precision)
        self.loss = additive(job.loss, job.segmenter.card.spec.ignore_index).to(device)
        if config.accumulate > 1 and not self.loss.adds:
            _LOG.warning(
                "training: the region loss is computed over each forward pass (over=batch), so accumulate=%d averages "
                "that many losses; set over=sample for the loss of one large batch",
                config.accumulate,
            )
        self._freeze = Freezing(self.segmenter, config)
        trained = self.segmenter if self.segmenter.downsample == 1 else AtNetworkSize(self.segmenter)
        model = compiled(trained, config, device=device, steps=limits.last_step)
        self._world = job.world
        self._seed = config.seed
        self._step = Stepper(
            forward=model if job.world.size == 1 else Averaged(model, job.world),
            loss=self.loss,
            optimizer=self.optimizer,
            scaler=self.scaler,
            augment=job.augment,
            config=config,
            device=device,
            before_update=before_update,
        )

    def update(self, batches: Sequence[Batch], *, step: int, progress: float) -> tuple[Tensor, Tensor, float]:
        """Take step number `step` at a point of the schedule.

        Returns
        -------
        Loss and norm of the gradient, left on the device, and the learning rate.

        Raises
        ------
        RunError
            Memory ran out; the line names the batch.
        """
        self._freeze(step)
        lr = self.lr * self.schedule(progress)
        set_lr(self.optimizer, lr)
        first = self._case_ids[int(batches[0].indices[0]) % len(self._case_ids)]
        with advised(f"training: step {step + 1}, the batch with case {first!r}", _LESS):
            loss, grad_norm = self._step(batches)
        if self.ema:
            self.ema.update()
        return loss, grad_norm, lr

    def augmented(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Image and target of a batch as the network is given them, on the device."""
        return self._step.augmented(batch)

    def steady(self) -> set[int]:
        """Addresses of all that only an update changes: the weights, what the optimizer keeps, and the average."""
        kept = (value for state in self.optimizer.state.values() for value in state.values())
        averaged = self.published.state_dict().values() if self.ema else ()
        values = (*self.segmenter.parameters(), *kept, *averaged)
        return {address(value) for value in values if isinstance(value, Tensor)}

    def state(self) -> dict[str, Any]:
        """All that `load` needs beside the published weights."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict() if self.scaler else None,
            "weights": self.segmenter.state_dict() if self.ema else None,
            "ema_updates": self.ema.updates if self.ema else 0,
            "rng": capture_rng(self.device),
        }

    def load(self, checkpoint: Checkpoint, state: Mapping[str, Any]) -> None:
        """Put back what `state` and the checkpoint's weights hold."""
        self._load(load_tensors(checkpoint.folder / WEIGHTS), state)

    def share(self) -> None:
        """Let all processes have what rank 0 has; what is drawn at random, as for dropout, differs between them."""
        if self._world.size == 1:
            return
        told = self._world.share((self.published.state_dict(), self.state()) if self._world.leads else None)
        if not self._world.leads:
            self._load(*told)
            torch.manual_seed(self._seed + self._world.rank)

    def _load(self, weights: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        load_weights(self.published, weights)
        if self.ema:
            load_weights(self.segmenter, state["weights"])
            self.ema.updates = state["ema_updates"]
        self.optimizer.load_state_dict(state["optimizer"])
        self._load_scaler(state["scaler"])
        restore_rng(state["rng"])

    def _load_scaler(self, state: Mapping[str, Any] | None) -> None:
        """Precision may change on resuming where that was allowed; the search for the scale then starts again."""
        if self.scaler and state:
            self.scaler.load_state_dict(dict(state))
        elif self.scaler:
            _LOG.warning("resume: the run had no loss scale so far; float16 starts to search for one")
        elif state:
            _LOG.warning("resume: the loss scale of float16 is dropped, as this precision needs none")
