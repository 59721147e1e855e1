"""Schemas of the groups `training`, `optimizer`, `schedule` and `logger`: types and ranges, without torch."""

import re
from dataclasses import dataclass
from typing import Literal

from segmeter.checks import collecting, expected
from segmeter.errors import ConfigError
from segmeter.inference.config import Precision
from segmeter.registry import Registry

OPTIMIZERS = Registry("optimizer")
SCHEDULES = Registry("schedule")
LOGGERS = Registry("logger")

AUTO = "auto"
MONITORS = ("mean_iou", "mean_dice", "pixel_accuracy", "loss")
CLASS_MONITORS = ("iou", "dice")  # followed by "/" and the name of a class
MAX_LR = 10.0  # far above what any optimizer here survives; catches a slip such as 1e30

DEFAULT_EPOCHS = 60  # where no limit is given
_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)(s)?)?")


def parse_duration(text: str | float) -> float:
    """Read a length of time, in seconds.

    Raises
    ------
    ConfigError
        It is not a positive length of time.

    Examples
    --------
    >>> parse_duration("1h30m"), parse_duration("1h30")
    (5400.0, 5400.0)
    >>> parse_duration("12m"), parse_duration("45s"), parse_duration(90)
    (720.0, 45.0, 90.0)
    """
    found = _DURATION.fullmatch(str(text).strip())
    hours, minutes, last, unit = found.groups() if found else (None, None, None, None)
    scale = 60 if hours and not minutes and not unit else 1  # 1h30 is an hour and a half
    total = 3600 * float(hours or 0) + 60 * float(minutes or 0) + scale * float(last or 0)
    if not total > 0:
        raise ConfigError(expected("training", "time_budget", "to be like 12m, 1h30m or 90 (seconds)", repr(text)))
    return total


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How long, how often, how exactly: everything about a training run but its parts.

    Parameters
    ----------
    epochs, steps, time_budget
        The run ends at whichever of the limits that are given comes first, and the schedule follows the one that is
        nearest to its end. Without any of them it runs for `DEFAULT_EPOCHS`. A step is one update of the weights.
    batch_size, accumulate
        Images per forward pass, and forward passes per step, whose loss and gradient are those of one large batch
        (but for batch norm, and for region losses with ``over=batch``).
    clip_norm
        Largest norm of the gradient, or null.
    max_skipped
        float16: updates skipped in a row, as their gradient is not finite, after which the run stops, >= 1.
    compile
        "auto" compiles long runs on a GPU only.
    ema
        Decay of the moving average of the weights, which is then what is validated and published, or null.
    validate_every, validate_unit
        How often the model is validated; null validates never.
    patience
        Validations without an improvement after which the run stops, or null.
    monitor
        What decides which checkpoint is best: one of `MONITORS`, or "iou/<class>" or "dice/<class>"; "auto" is the
        object's IoU for a binary task, else "mean_iou".
    keep
        How many of the best checkpoints stay.
    save_minutes
        Longest time without a checkpoint, or null.
    """

    epochs: int | None = None
    steps: int | None = None
    time_budget: str | int | None = None
    batch_size: int = 8
    accumulate: int = 1
    clip_norm: float | None = 12.0
    precision: Precision = "auto"
    max_skipped: int = 50
    channels_last: bool = True
    compile: Literal["auto", True, False] = "auto"
    ema: float | None = None
    validate_every: int | None = 1
    validate_unit: Literal["epochs", "steps"] = "epochs"
    patience: int | None = None
    monitor: str = AUTO
    keep: int = 1
    save_minutes: float | None = 15.0
    log_every: int = 20
    deterministic: bool = False
    cache_gb: float = 4.0
    workers: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        with collecting("training") as problems:
            for name in ("epochs", "steps", "validate_every", "patience"):
                problems.in_range(name, getattr(self, name), 1)
            problems.in_range("batch_size", self.batch_size, 1, 65536)
            problems.in_range("accumulate", self.accumulate, 1, 65536)
            problems.in_range("clip_norm", self.clip_norm, 0, above=True)
            problems.one_of("precision", self.precision, ("auto", "float32", "bfloat16", "float16"))
            problems.in_range("max_skipped", self.max_skipped, 1)
            problems.expect(self.compile in ("auto", True, False), "compile", "to be auto, true or false", self.compile)
            problems.in_range("ema", self.ema, 0, 0.99999, above=True)
            problems.one_of("validate_unit", self.validate_unit, ("epochs", "steps"))
            if self.monitor.partition("/")[0] not in CLASS_MONITORS:
                problems.one_of("monitor", self.monitor, (AUTO, *MONITORS))
            problems.in_range("keep", self.keep, 1)
            problems.in_range("save_minutes", self.save_minutes, 0, above=True)
            problems.in_range("log_every", self.log_every, 1)
            problems.in_range("cache_gb", self.cache_gb, 0)
            problems.in_range("workers", self.workers, 0, 256)
            problems.in_range("seed", self.seed, 0, 2**63 - 1)
            try:
                _ = self.budget_seconds
            except ConfigError as error:
                problems.lines.extend(error.problems)

    @property
    def epoch_limit(self) -> int | None:
        """Passes over the data that end the run: `epochs`, or the default where no limit at all is given."""
        unlimited = self.epochs is None and self.steps is None and self.time_budget is None
        return DEFAULT_EPOCHS if unlimited else self.epochs

    @property
    def budget_seconds(self) -> float | None:
        """The time budget in seconds, validation included, or None."""
        return None if self.time_budget is None else parse_duration(self.time_budget)


@OPTIMIZERS.register("adamw", builder="segmeter.training.optimisation.optimizer:build_adamw")
@dataclass(frozen=True, kw_only=True)
class AdamWConfig:
    """AdamW (Loshchilov and Hutter 2019); weight decay leaves norms and biases alone."""

    name: str = "adamw"
    lr: float = 1e-3
    weight_decay: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def __post_init__(self) -> None:
        with collecting("optimizer") as problems:
            problems.in_range("lr", self.lr, 0, MAX_LR, above=True)
            problems.in_range("weight_decay", self.weight_decay, 0, 10)
            problems.in_range("beta1", self.beta1, 0, 0.9999)
            problems.in_range("beta2", self.beta2, 0, 0.99999)
            problems.in_range("eps", self.eps, 0, 1, above=True)


@OPTIMIZERS.register("sgd", builder="segmeter.training.optimisation.optimizer:build_sgd")
@dataclass(frozen=True, kw_only=True)
class SgdConfig:
    """Stochastic gradient descent with momentum; weight decay leaves norms and biases alone."""

    name: str = "sgd"
    lr: float = 0.01
    weight_decay: float = 3e-5
    momentum: float = 0.99
    nesterov: bool = True

    def __post_init__(self) -> None:
        with collecting("optimizer") as problems:
            problems.in_range("lr", self.lr, 0, MAX_LR, above=True)
            problems.in_range("weight_decay", self.weight_decay, 0, 10)
            problems.in_range("momentum", self.momentum, 0, 0.9999)
            usable = not self.nesterov or self.momentum > 0
            problems.expect(usable, "nesterov", "to be false where momentum is 0", self.nesterov)


@SCHEDULES.register("cosine", builder="segmeter.training.optimisation.schedule:build_cosine")
@dataclass(frozen=True, kw_only=True)
class CosineConfig:
    """Linear warm-up, then half a cosine; `warmup` is a fraction of the run, `final` one of the learning rate."""

    name: str = "cosine"
    warmup: float = 0.05
    final: float = 0.0

    def __post_init__(self) -> None:
        with collecting("schedule") as problems:
            problems.in_range("warmup", self.warmup, 0, 0.9)
            problems.in_range("final", self.final, 0, 1)


@SCHEDULES.register("poly", builder="segmeter.training.optimisation.schedule:build_poly")
@dataclass(frozen=True, kw_only=True)
class PolyConfig:
    """Linear warm-up, then (1 - progress) to a power (DeepLab, nnU-Net)."""

    name: str = "poly"
    warmup: float = 0.0
    power: float = 0.9

    def __post_init__(self) -> None:
        with collecting("schedule") as problems:
            problems.in_range("warmup", self.warmup, 0, 0.9)
            problems.in_range("power", self.power, 0, 10, above=True)


@SCHEDULES.register("one_cycle", builder="segmeter.training.optimisation.schedule:build_one_cycle")
@dataclass(frozen=True, kw_only=True)
class OneCycleConfig:
    """A cosine up from `start` of the learning rate over `rise` of the run, then one down to `final` of it."""

    name: str = "one_cycle"
    rise: float = 0.3
    start: float = 0.04
    final: float = 1e-4

    def __post_init__(self) -> None:
        with collecting("schedule") as problems:
            problems.in_range("rise", self.rise, 0, 0.9, above=True)
            problems.in_range("start", self.start, 0, 1, above=True)
            problems.in_range("final", self.final, 0, 1)


@SCHEDULES.register("constant", builder="segmeter.training.optimisation.schedule:build_constant")
@dataclass(frozen=True, kw_only=True)
class ConstantConfig:
    """Linear warm-up, then the learning rate as given."""

    name: str = "constant"
    warmup: float = 0.0

    def __post_init__(self) -> None:
        with collecting("schedule") as problems:
            problems.in_range("warmup", self.warmup, 0, 0.9)


@LOGGERS.register("none", builder="segmeter.training.run.loggers:build_none")
@dataclass(frozen=True, kw_only=True)
class NoLoggerConfig:
    """Nothing beside history.jsonl, which is always written."""

    name: str = "none"


@LOGGERS.register("tensorboard", builder="segmeter.training.run.loggers:build_tensorboard")
@dataclass(frozen=True, kw_only=True)
class TensorBoardConfig:
    """Curves for TensorBoard, in the folder tensorboard/ of the run; needs the extra `tensorboard`."""

    name: str = "tensorboard"
    flush_seconds: int = 30

    def __post_init__(self) -> None:
        with collecting("logger") as problems:
            problems.in_range("flush_seconds", self.flush_seconds, 1)


OptimizerConfig = AdamWConfig | SgdConfig
ScheduleConfig = CosineConfig | PolyConfig | OneCycleConfig | ConstantConfig
LoggerConfig = NoLoggerConfig | TensorBoardConfig
