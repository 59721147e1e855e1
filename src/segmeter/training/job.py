"""What a training is given and what it gives back."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from segmeter.checks import Problems, collecting
from segmeter.distributed.ranks import ALONE, World
from segmeter.errors import ConfigError
from segmeter.inference.config import InferenceConfig
from segmeter.inference.device import pick_device
from segmeter.inference.precision import pick_dtype, training_precision
from segmeter.models.segmenter import Segmenter
from segmeter.provenance import flatten
from segmeter.training.config import LoggerConfig, NoLoggerConfig, OptimizerConfig, ScheduleConfig, TrainingConfig
from segmeter.training.data.batches import Batches, BatchSource
from segmeter.training.data.cache import Cases
from segmeter.training.optimisation.freezing import check_freezing
from segmeter.training.optimisation.step import Augmentation
from segmeter.training.pictures import Draw
from segmeter.training.run.contents import name_changes
from segmeter.training.run.first_batch import DrawBatch
from segmeter.training.validation import find_monitor

# Values that change how fast or how often, never what is learned; everything else must be the same on resuming
FREE = (
    *("training.workers", "training.cache_gb", "training.keep", "training.save_minutes", "training.log_every"),
    *("training.max_skipped", "training.pictures", "training.profile_steps", "training.stop_at"),
    "training.stall_minutes",
    *("data.root", "data.verify", "data.timeout_s", "logger"),  # of moved data the contents are compared
)


@dataclass(frozen=True, kw_only=True)
class TrainJob:
    """One training run.

    Parameters
    ----------
    folder
        The run's folder; `checkpoints/` and `history.jsonl` go there. The caller makes sure that no other run has it.
    segmenter
        On any device; it is trained in place.
    loss
        Logits (B, num_channels, H, W) and target -> 0-d float32. Anything but an `AdditiveLoss` is taken to be a mean
        over the pixels that are not ignored.
    source
        Gives the batches of the training cases.
    train_cases, val_cases
        For names, fingerprints and validation. `val_cases` may be None: then no checkpoint is best.
    augment
        Changes each batch on the device, or None.
    device
        "auto", "cpu", "cuda", "cuda:<number>" or "mps".
    identity
        More of the configuration that must be the same on resuming (loss, augment, data), as plain values.
    settings
        The run's configuration for its loggers, without secrets.
    resume
        Go on from the newest whole checkpoint in `folder`; an error where there is none.
    allow_changes
        Keys of the configuration that may differ on resuming, such as "training.epochs"; a group's name stands for
        all of its keys.
    world
        The processes that train together; `source` gives this one's part of each batch.
    draw
        Draws a validated case into a folder; None draws none.
    draw_batch
        Draws the first batch, as the network is given it, into a folder; None draws none.
    """

    folder: Path
    segmenter: Segmenter
    loss: torch.nn.Module
    source: BatchSource
    train_cases: Cases
    val_cases: Cases | None = None
    augment: Augmentation | None = None
    training: TrainingConfig = field(default_factory=TrainingConfig)
    optimizer: OptimizerConfig
    schedule: ScheduleConfig
    inference: InferenceConfig = field(default_factory=InferenceConfig)
    logger: LoggerConfig = field(default_factory=NoLoggerConfig)
    device: str = "auto"
    identity: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    resume: bool = False
    allow_changes: tuple[str, ...] = ()
    world: World = ALONE
    draw: Draw | None = None
    draw_batch: DrawBatch | None = None


@dataclass(frozen=True, kw_only=True)
class TrainResult:
    """How a run ended.

    Parameters
    ----------
    steps, epochs
        Done, those before a resume included.
    reason
        The limit that ended it, such as "epochs=60", "steps=500", "time_budget=12m" or "patience=5".
    monitor
        The score that decided which checkpoint is best.
    score, best
        That score of the best checkpoint, and its folder; None where nothing was validated.
    values
        All scores of the best checkpoint, None where undefined; empty where nothing was validated.
    unlearned
        Classes that the validation targets hold and that the best checkpoint hardly finds, see `validation.UNLEARNED`.
    last
        Folder of the last checkpoint.
    seconds
        Spent on the run, those before a resume included.
    images_per_second, data_wait
        Images per second of the training steps of this process, and the share of their time spent waiting for data.
    """

    steps: int
    epochs: float
    reason: str
    monitor: str
    score: float | None
    best: Path | None
    values: Mapping[str, float | None]
    unlearned: tuple[str, ...]
    last: Path
    seconds: float
    images_per_second: float
    data_wait: float


def check_job(job: TrainJob) -> torch.device:
    """Refuse a job whose parts do not go together, before any work; return its device.

    Raises
    ------
    ConfigError
        With every rule that is broken.
    """
    device = pick_device(job.device)
    find_monitor(job.training.monitor, job.segmenter.card.spec)
    with collecting("training") as problems:
        validated = job.val_cases is not None and job.training.validate_every is not None
        possible = job.training.patience is None or validated
        problems.expect(possible, "patience", "to be null where nothing is validated", job.training.patience)
        possible = job.training.stop_at is None or validated
        problems.expect(possible, "stop_at", "to be null where nothing is validated", job.training.stop_at)
        problems.expect(len(job.source) > 0, "batch_size", "to leave at least one batch per epoch", len(job.source))
        model, data = job.segmenter.card.spec, job.train_cases.spec
        fits = (model.task, model.names, model.ignore_index) == (data.task, data.names, data.ignore_index)
        problems.expect(fits, "model", f"to have the data's classes {list(data.names)}", list(model.names))
        same = job.val_cases is None or job.val_cases.spec == job.train_cases.spec
        problems.expect(same, "data", "to have the same classes for training and validation", "two kinds")
        synced = any(isinstance(module, torch.nn.SyncBatchNorm) for module in job.segmenter.modules())
        possible = not synced or job.world.size == 1 or device.type == "cuda"
        problems.expect(possible, "model", "to have a model.norm other than sync in processes on the CPU", "sync")
        _check_mps(problems, job, device)
        check_freezing(problems, job.segmenter, job.training, getattr(job.optimizer, "encoder_lr", 1.0))
    return device


def _check_mps(problems: Problems, job: TrainJob, device: torch.device) -> None:
    """Refuse what an Apple GPU can't do: float16, as its fused optimizers take no loss scale, and several processes."""
    if device.type == "mps":
        precision = job.training.precision
        problems.expect(precision in ("auto", "float32"), "precision", "to be float32 on mps", precision)
        problems.expect(job.world.size == 1, "device", "to be cpu or cuda for several processes", "mps")


def identify(job: TrainJob) -> dict[str, Any]:
    """All that decides what is learned, as "group.key" -> plain value; compared on resuming."""
    card = job.segmenter.card.to_dict()
    device = pick_device(job.device)
    precision = training_precision(device, job.training.precision)
    dtype = str(pick_dtype(device, precision)).removeprefix("torch.")
    groups = {
        "device": device.type,
        "training.precision.resolved": dtype,  # what "auto" means depends on the device
        "training": job.training.model_dump()
        | {"epochs": job.training.epoch_limit, "monitor": find_monitor(job.training.monitor, job.segmenter.card.spec)},
        "optimizer": job.optimizer.model_dump(),
        "schedule": job.schedule.model_dump(),
        "inference": job.inference.model_dump(),
        "model": {key: value for key, value in card.items() if key not in ("data", "class_pixels")},
        "data": {"train_cases": _describe(job.train_cases), "val_cases": _describe(job.val_cases)},
    }
    flat = {**flatten(job.identity), **flatten(groups)}
    if pick_device(job.device).type == "cpu":  # sums are split among the threads, so their last bits differ
        flat["threads"] = torch.get_num_threads()
    return {key: value for key, value in flat.items() if not _covered(key, FREE)}


def check_same(job: TrainJob, before: Mapping[str, Any]) -> None:
    """Refuse to resume a run that used another configuration or other data, and name every difference.

    Raises
    ------
    ConfigError
        One line per key that differs and is not among ``job.allow_changes``.
    """
    now = identify(job)
    changed = [
        key
        for key in sorted({*before, *now})
        if before.get(key) != now.get(key) and not _covered(key, (*FREE, *job.allow_changes))
    ]
    if changed:
        lines = [f"resume: `{key}` was {before.get(key)!r} and is {now.get(key)!r} now." for key in changed]
        if {"data.train_cases", "data.val_cases"} & set(changed):
            lines += name_changes(job.folder, job.train_cases, job.val_cases)
        remedy = "Start a new run (resume=null), put the values back, or let these keys change with"
        allowed = ",".join((*job.allow_changes, *changed))
        raise ConfigError([*lines, f"resume: this is another training. {remedy} 'allow_changes=[{allowed}]'."])


def _describe(cases: Cases | None) -> str | None:
    return None if cases is None else f"{len(cases)} cases, sha256 {cases.fingerprint()[:16]}"


def _covered(key: str, allowed: tuple[str, ...]) -> bool:
    return any(key == name or key.startswith(f"{name}.") for name in allowed)


def open_batches(job: TrainJob, device: torch.device, *, step: int, progress: Callable[[int], float]) -> Batches:
    """The batches of a training from a step on, prepared ahead; `progress` says how far the run is at a step."""
    return Batches(
        job.source,
        first=step * job.training.accumulate,
        progress=lambda number: progress(number // job.training.accumulate),
        workers=job.training.workers,
        device=device,
        draw=partial(job.augment.draw, seed=job.training.seed) if job.augment else None,
    )
