"""A training job: its settings, data and model, and the rules for starting it and for resuming it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from segmeter.checks import collecting, some
from segmeter.distributed.ranks import ALONE, World
from segmeter.errors import ConfigError, InputError
from segmeter.inference.config import InferenceConfig
from segmeter.inference.device import pick_device, pick_training_dtype
from segmeter.inference.results import Prediction
from segmeter.models.segmenter import Segmenter
from segmeter.postprocess.config import StepConfig
from segmeter.records import MOST_OF_CASES, flatten, read_json
from segmeter.schema import ADDED, RETIRED
from segmeter.training.config import LoggerConfig, OptimizerConfig, ScheduleConfig, TrainingConfig, find_monitor
from segmeter.training.data.batches import Augmentation, BatchSource
from segmeter.training.data.cases import Cases
from segmeter.training.optimizers import find_encoder

CONTENTS = "data.json"  # this file of the run's folder holds the hash of every file of the data
# These keys change how fast or how often something happens, never how a step learns. All others must be the same on
# resuming. Moved or unverified data are compared by their contents.
FREE = (
    *("training.workers", "training.cache_gb", "training.keep", "training.save_minutes", "training.log_every"),
    *("training.max_skipped", "training.pictures", "training.profile_steps", "training.stop_at"),
    *("training.stall_minutes", "data.root", "data.verify", "data.timeout_s", "logger"),
)

DrawCase = Callable[[Prediction, Path], Path]  # draws a validated case into a folder, and returns the picture
# draws a batch: images (B, H, W, C), targets (B, H, W) or (B, K, H, W), case ids, and the folder of the picture
DrawBatch = Callable[[NDArray[Any], NDArray[Any], Sequence[str], Path], Path]


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """The configuration of a training run.

    Parameters
    ----------
    loggers
        Written to beside history.jsonl.
    device
        "auto", "cpu", "cuda", "cuda:<number>" or "mps".
    identity
        More configuration that must be the same on resuming (loss, augment, data), as plain values.
    masked
        The whole configuration for the loggers, without secrets.
    steps
        Post-processing that splits objects in validation, so that PQ is among its scores. The samples' targets then
        mark the cores of objects, whose loss is added to that of the objects. Empty for data without objects.
    allow_changes
        Keys that may differ on resuming, such as "training.epochs". A group's name stands for all of its keys.
    """

    training: TrainingConfig = field(default_factory=TrainingConfig)
    optimizer: OptimizerConfig
    schedule: ScheduleConfig
    inference: InferenceConfig = field(default_factory=InferenceConfig)
    loggers: tuple[LoggerConfig, ...] = ()
    device: str = "auto"
    identity: Mapping[str, Any] = field(default_factory=dict)
    masked: Mapping[str, Any] = field(default_factory=dict)
    steps: tuple[StepConfig, ...] = ()
    allow_changes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TrainData:
    """The data that a run trains and validates on.

    Parameters
    ----------
    source
        The batches of the training cases. With several processes, it yields this one's part of each batch.
    train_cases, val_cases
        For names, fingerprints and validation. Without `val_cases` no checkpoint is best.
    augment
        Changes each batch on the device, or None.
    """

    source: BatchSource
    train_cases: Cases
    val_cases: Cases | None = None
    augment: Augmentation | None = None

    def case_id_of(self, number: int) -> str:
        """Return the case that a sample number stands for.

        Repeats of a case within an epoch have numbers beyond the number of cases.
        """
        return self.train_cases.case_ids[number % len(self.train_cases)]


@dataclass(frozen=True, kw_only=True)
class TrainJob:
    """One training run.

    Parameters
    ----------
    folder
        The run's folder; `checkpoints/` and `history.jsonl` go there. No other run may use it.
    segmenter
        Trained in place; on any device.
    loss
        Called with logits (B, num_channels, H, W) and the target; returns a 0-d float32. Anything but an `AdditiveLoss`
        is assumed to be a mean over the pixels that are not ignored.
    resume
        Continue from the newest whole checkpoint in `folder`; it is an error if there is none.
    world
        The processes that train together.
    draw, draw_batch
        Draw a validated case, and the first batch; None draws none.
    """

    folder: Path
    settings: TrainSettings
    data: TrainData
    segmenter: Segmenter
    loss: torch.nn.Module
    resume: bool = False
    world: World = ALONE
    draw: DrawCase | None = None
    draw_batch: DrawBatch | None = None

    @cached_property
    def device(self) -> torch.device:
        """Where the model is trained; ConfigError if there is no such device here."""
        return pick_device(self.settings.device)

    @cached_property
    def dtype(self) -> torch.dtype:
        """The number format of the forward passes of training; ConfigError if the device can't compute in it."""
        return pick_training_dtype(self.device, self.settings.training.precision)

    @cached_property
    def monitor(self) -> str:
        """The score that decides which checkpoint is best; ConfigError if no validation computes it."""
        settings = self.settings
        return find_monitor(settings.training.monitor, self.segmenter.card.spec, objects=bool(settings.steps))


@dataclass(frozen=True, kw_only=True)
class TrainResult:
    """The end of a run.

    Parameters
    ----------
    steps, epochs, seconds
        Totals of the run, including everything before a resume.
    reason
        The limit that ended it, such as "epochs=60", "steps=500", "time_budget=12m" or "patience=5".
    monitor
        The score that decided which checkpoint is best.
    score, best
        The best checkpoint's score, and its folder; None if nothing was validated.
    values
        All scores of the best checkpoint, None where undefined; empty if nothing was validated.
    unlearned
        Classes in the validation targets that the best checkpoint hardly finds, see `validation.UNLEARNED`.
    last
        Folder of the last checkpoint.
    images_per_second
        Speed of the training steps since this process began, all processes together.
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


def check_job(job: TrainJob) -> None:
    """Refuse a job whose parts do not go together, before any work.

    Raises
    ------
    ConfigError
        One line for every rule that is broken.
    """
    settings, data, card = job.settings, job.data, job.segmenter.card
    training = settings.training
    device, _ = job.device, job.monitor  # each raises if there is no such one
    with collecting("training") as problems:
        validated = data.val_cases is not None and training.validate_every is not None
        for key in ("patience", "stop_at"):
            value = getattr(training, key)
            problems.expect(value is None or validated, key, "to be null where nothing is validated", value)
        problems.expect(len(data.source) > 0, "batch_size", "to leave at least one batch per epoch", len(data.source))
        synced = any(isinstance(module, torch.nn.SyncBatchNorm) for module in job.segmenter.modules())
        possible = not synced or job.world.size == 1 or device.type == "cuda"
        problems.expect(possible, "model", "to have a model.norm other than sync in processes on the CPU", "sync")
        if device.type == "mps":  # its fused optimizers take no loss scale
            wide = training.precision in ("auto", "float32")
            problems.expect(wide, "precision", "to be float32 on mps", training.precision)
        encoder_lr = getattr(settings.optimizer, "encoder_lr", 1.0)
        for key, value, needs_encoder in (
            ("freeze_encoder", training.freeze_encoder, training.freeze_encoder > 0),
            ("freeze_norm", training.freeze_norm, training.freeze_norm == "encoder"),
            ("encoder_lr", encoder_lr, encoder_lr != 1),
        ):
            rule = f"to be left alone, as {card.model.get('name')!r} has no encoder"
            problems.expect(not needs_encoder or find_encoder(job.segmenter) is not None, key, rule, value)


def identify(job: TrainJob) -> dict[str, Any]:
    """Collect everything that decides what is learned, as plain values by "group.key", to compare on resuming."""
    settings, card = job.settings, job.segmenter.card
    training = settings.training
    identity: dict[str, Any] = {
        "device": job.device.type,
        "training.precision.resolved": str(job.dtype).removeprefix("torch."),  # "auto" depends on the device
        "training": training.model_dump() | {"epochs": training.epoch_limit, "monitor": job.monitor},
        "optimizer": settings.optimizer.model_dump(),
        "schedule": settings.schedule.model_dump(),
        "inference": settings.inference.model_dump(),
        "model": {key: value for key, value in card.to_dict().items() if key not in ("data", "class_pixels")},
        "data": {
            split: None if cases is None else f"{len(cases)} cases, sha256 {cases.fingerprint()[:16]}"
            for split, cases in (("train_cases", job.data.train_cases), ("val_cases", job.data.val_cases))
        },
    }
    if job.device.type == "cpu":  # sums are split among the threads, so their last bits differ
        identity["threads"] = torch.get_num_threads()
    flat = {**flatten(settings.identity), **flatten(identity)}
    return {key: value for key, value in flat.items() if not _covered(key, FREE)}


def check_same(job: TrainJob, before: Mapping[str, Any]) -> None:
    """Refuse to resume a run that used another configuration or other data, and name every difference.

    Raises
    ------
    ConfigError
        One line per key that differs and is not among ``job.settings.allow_changes``.
    """
    before, now = RETIRED | ADDED | dict(before), RETIRED | ADDED | identify(job)
    allowed = job.settings.allow_changes
    changed = [
        key
        for key in sorted({*before, *now})
        if before.get(key) != now.get(key) and not _covered(key, (*FREE, *allowed))
    ]
    if changed:
        lines = [f"resume: `{key}` was {before.get(key)!r} and is {now.get(key)!r} now." for key in changed]
        if {"data.train_cases", "data.val_cases"} & set(changed):
            lines.append(name_changes(job.folder, job.data))
        remedy = "Start a new run (resume=null), put the values back, or let these keys change with"
        keys = ",".join((*allowed, *changed))
        raise ConfigError([*lines, f"resume: this is another training. {remedy} 'allow_changes=[{keys}]'."])


def _covered(key: str, allowed: tuple[str, ...]) -> bool:
    return any(key == name or key.startswith(f"{name}.") for name in allowed)


def contents(data: TrainData) -> dict[str, dict[str, str]]:
    """Return the sha256 of every file, by split and name."""
    splits = {"train": data.train_cases, "val": data.val_cases}
    return {name: dict(cases.contents()) for name, cases in splits.items() if cases is not None}


def name_changes(folder: Path, data: TrainData) -> str:
    """Name the files that are new, gone or changed since the run began.

    This only finds names. The fingerprint in the checkpoint decides whether anything changed.
    """
    try:
        before = read_json(folder / CONTENTS, dict[str, dict[str, str]], most=MOST_OF_CASES)
    except (OSError, InputError):
        return f"resume: {folder / CONTENTS}, which could name the files that changed, can't be read."
    old, new = (flatten(hashes, separator="/").items() for hashes in (before, contents(data)))
    if not (changed := {name for name, _ in old ^ new}):
        return "resume: the files are the same, but the names of their cases or the way of reading them changed."
    return f"resume: files that are new, gone or changed ({some(changed)})."
