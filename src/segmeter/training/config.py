"""Schemas of the groups `training`, `optimizer`, `schedule` and `logger`, without torch."""

import re
from typing import Annotated, Any, Literal

from pydantic import Field

from segmeter.checks import expected, nearest
from segmeter.classes import ClassSpec
from segmeter.errors import ConfigError
from segmeter.inference.config import Precision
from segmeter.metrics.config.metrics import choose_headline
from segmeter.schema import Config, Given, OneOf, Registry, RuleError, Unit, rule

OPTIMIZERS = Registry("optimizer")
SCHEDULES = Registry("schedule")
LOGGERS = Registry("logger")

AUTO, LOSS = "auto", "loss"  # the loss is the only score of a validation that is better if lower
MONITORS = ("mean_iou", "mean_dice", "pixel_accuracy", LOSS)
CLASS_MONITORS = ("iou", "dice")  # followed by a class, such as iou/car
MAX_LR = 10.0  # far above what any optimizer here survives; catches a slip such as 1e30
RunShare = Annotated[float, Unit("share of the run")]
WarmUp = Annotated[RunShare, Field(ge=0, le=0.9)]
RateShare = Annotated[float, Unit("share of the learning rate")]
LearningRate = Annotated[float, Field(gt=0, le=MAX_LR)]
WeightDecay = Annotated[float, Field(ge=0, le=10)]

_LIKE = "to be like 12m, 1h30m or 90 (seconds)"
DEFAULT_EPOCHS = 60  # the run's length if no limit is set
_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)(s)?)?")


def parse_duration(text: str | float) -> float:
    """Read a duration, in seconds.

    Raises
    ------
    ConfigError
        It is not a positive duration.

    Examples
    --------
    >>> parse_duration("1h30m"), parse_duration("1h30")
    (5400.0, 5400.0)
    >>> parse_duration("12m"), parse_duration("45s"), parse_duration(90)
    (720.0, 45.0, 90.0)
    """
    match = _DURATION.fullmatch(str(text).strip())
    hours, minutes, rest, unit = match.groups() if match else (None, None, None, None)
    scale = 60 if hours and not minutes and not unit else 1  # 1h30 is an hour and a half
    seconds = 3600 * float(hours or 0) + 60 * float(minutes or 0) + scale * float(rest or 0)
    if not seconds > 0:
        raise ConfigError(expected("training", "time_budget", _LIKE, repr(text)))
    return seconds


def monitors(spec: ClassSpec, *, objects: bool = False) -> list[str]:
    """List every score that a validation computes, and that `training.monitor` may name."""
    of_classes = [f"{kind}/{name}" for kind in CLASS_MONITORS for name in spec.names]
    return [*MONITORS, *of_classes, *([choose_headline(spec.task, spec.names, objects=True)] if objects else [])]


def find_monitor(monitor: str, spec: ClassSpec, *, objects: bool = False) -> str:
    """Return the score that `training.monitor` means, by default PQ if validation matches `objects`."""
    if monitor == AUTO:
        return choose_headline(spec.task, spec.names, objects=objects)
    known = monitors(spec, objects=objects)
    if monitor not in known:
        rule = "to be a score that validation computes"
        raise ConfigError(expected("training", "monitor", rule, repr(monitor), nearest(monitor, known)))
    return monitor


class TrainingConfig(Config, title="training"):
    """The length of a training, how often it validates and saves, and how exactly it computes.

    The run ends at the first limit that it reaches (epochs, steps, time_budget), and the schedule follows whichever
    limit will be reached first. If you set no limit it runs for 60 epochs.
    """

    epochs: Annotated[int | None, Unit("epochs")] = Field(None, ge=1)
    """Limit: passes over the training data, or null."""
    steps: Annotated[int | None, Unit("steps")] = Field(None, ge=1)
    """Limit: updates of the weights, or null."""
    time_budget: str | int | None = None
    """Limit: duration, validation included, such as 12m, 1h30m or a number of seconds; or null."""
    batch_size: Annotated[int, Unit("images"), Field(ge=1, le=65536)] | Literal["auto"] = 8
    """Images per forward pass; "auto" chooses it by the samples' size and the device."""
    plan: bool = False
    """Whether to choose open values by the data and the device: normalisation, samples per epoch, share of balanced
    samples, on a CPU a time budget of 10 minutes. A time budget is then made to hold 300 steps and 8 validations, by
    timing a few steps, which comes on top of it. `segmeter check` shows the plan."""
    accumulate: Annotated[int, Unit("forward passes")] = Field(1, ge=1, le=65536)
    """Forward passes per step. Loss and gradient are those of one large batch, except for batch norm and for region
    losses with ``over=batch``."""
    clip_norm: float | None = Field(12.0, gt=0)
    """Largest norm of the gradient, or null."""
    precision: Precision = "auto"
    """Number format of the forward pass; "auto" is bfloat16 if the hardware has it (on Intel's CPUs only with AMX, as
    it is slower without). float32 never means TF32."""
    max_skipped: Annotated[int, Unit("steps")] = Field(50, ge=1)
    """With float16, the number of updates in a row that may be skipped, as their gradient is not finite, before the run
    stops."""
    compile: Literal["auto", True, False] = "auto"
    """Whether torch compiles the network; "auto" does so only for long runs on a GPU."""
    freeze_encoder: Annotated[int, Unit("steps")] = Field(0, ge=0)
    """Steps at the start in which a pretrained encoder does not change, running statistics included."""
    freeze_norm: Literal["encoder", "all"] | None = None
    """Where the running statistics of batch norm stay as they were at the start: in the encoder, in the whole network,
    or nowhere (null)."""
    ema: float | None = Field(None, gt=0, le=0.99999)
    """Decay of the moving average of the weights, or null. The average is then validated and saved."""
    validate_every: int | None = Field(1, ge=1)
    """How often the model is validated, in `validate_unit`; null never validates."""
    validate_unit: Literal["epochs", "steps"] = "epochs"
    """The unit of `validate_every`."""
    validate_cases: Annotated[int | None, Unit("cases")] = Field(None, ge=1)
    """Validation cases that are scored, spread evenly over the split; null scores all."""
    pictures: Annotated[int, Unit("cases")] = Field(4, ge=0, le=100)
    """Validation cases, always the same ones, that are drawn at each validation, in validation/ of the run's folder. 0
    draws neither these nor the first batch (first_batch.png)."""
    patience: Annotated[int | None, Unit("validations")] = Field(None, ge=1)
    """Validations without an improvement until the run stops, or null."""
    stop_at: Annotated[float | None, Unit("score")] = Field(None, ge=0)
    """A score of `monitor` that ends the run once a validation reaches it, or null."""
    monitor: Annotated[str, OneOf(AUTO, *MONITORS, prefixes=tuple(f"{name}/" for name in (*CLASS_MONITORS, "pq")))] = (
        AUTO
    )
    """The score that decides which checkpoint is best. "iou/" and "dice/" are followed by a class's name. So is "pq/",
    for objects with `data.core_depth`. "auto" is the PQ where objects are matched. Otherwise it is the object's IoU for
    a binary task, and mean_iou for others."""
    keep: Annotated[int, Unit("checkpoints")] = Field(1, ge=1)
    """How many of the best checkpoints stay."""
    save_minutes: Annotated[float | None, Unit("minutes")] = Field(15.0, gt=0)
    """Longest time without a checkpoint, or null."""
    stall_minutes: Annotated[float | None, Unit("minutes")] = Field(30.0, gt=0)
    """How long a process waits in a step or a validation for those that it trains with, before it fails. null waits
    forever."""
    log_every: Annotated[int, Unit("steps")] = Field(20, ge=1)
    """Steps between two lines of history.jsonl. A validation adds one for the steps since the last one."""
    overfit_batches: Annotated[int | None, Unit("batches")] = Field(None, ge=1, le=64)
    """Train on the first cases alone, as many as fill this number of batches, and validate on them. Nothing changes the
    samples, but crops still move. A model that can't fit them has a fault. null trains on all data."""
    profile_steps: Annotated[int, Unit("steps")] = Field(0, ge=0, le=1000)
    """Steps that torch's profiler records after the first 3; its table and trace are in profile/."""
    deterministic: bool = False
    """Use deterministic kernels on a GPU; a CPU is always deterministic."""
    cache_gb: Annotated[float, Unit("GB")] = Field(4.0, ge=0)
    """Memory for decoded images."""
    workers: Annotated[int, Unit("threads")] = Field(2, ge=0, le=256)
    """Threads that prepare batches, or 0."""
    seed: int = Field(0, ge=0, le=2**63 - 1)
    """Seed of everything random in training."""

    @rule("time_budget")
    def _length_of_time(cls, time_budget: Any, given: Given) -> None:
        try:
            if time_budget is not None:
                parse_duration(time_budget)
        except ConfigError as error:
            raise RuleError(_LIKE) from error

    @property
    def unlimited(self) -> bool:
        """Whether no limit is set."""
        return self.epochs is None and self.steps is None and self.time_budget is None

    @property
    def epoch_limit(self) -> int | None:
        """Passes over the data that end the run: `epochs`, or the default if no limit is set."""
        return DEFAULT_EPOCHS if self.unlimited else self.epochs

    @property
    def budget_seconds(self) -> float | None:
        """The time budget in seconds, validation included, or None."""
        return None if self.time_budget is None else parse_duration(self.time_budget)


class OptimizerConfig(Config, title="optimizer"):
    """Keys of every optimizer."""

    name: str
    """The registered name of the optimizer."""
    lr: LearningRate
    """Highest learning rate."""


class NetworkOptimizerConfig(OptimizerConfig):
    """Keys of the optimizers here, which know the parts of a network."""

    encoder_lr: RateShare = Field(1.0, gt=0, le=1)
    """Learning rate of the encoder; below 1 for a pretrained one."""


@OPTIMIZERS.register("adamw", builder="segmeter.training.optimizers:build_adamw")
class AdamWConfig(NetworkOptimizerConfig):
    """AdamW (Loshchilov and Hutter 2019), fused; weight decay leaves norms and biases alone."""

    name: str = "adamw"
    lr: LearningRate = 1e-3
    """Highest learning rate."""
    weight_decay: WeightDecay = 0.01
    """Weight decay."""
    beta1: float = Field(0.9, ge=0, le=0.9999)
    """Decay of the running mean of the gradient."""
    beta2: float = Field(0.999, ge=0, le=0.99999)
    """Decay of the running mean of the squared gradient."""
    eps: float = Field(1e-8, gt=0, le=1)
    """Added to the denominator."""


@OPTIMIZERS.register("sgd", builder="segmeter.training.optimizers:build_sgd")
class SgdConfig(NetworkOptimizerConfig):
    """Stochastic gradient descent with momentum (nnU-Net's values); weight decay leaves norms and biases alone."""

    name: str = "sgd"
    lr: LearningRate = 0.01
    """Highest learning rate."""
    weight_decay: WeightDecay = 3e-5
    """Weight decay."""
    momentum: float = Field(0.99, ge=0, le=0.9999)
    """Momentum."""
    nesterov: bool = True
    """Nesterov's form of momentum."""

    @rule("nesterov")
    def _needs_momentum(cls, nesterov: bool, given: Given) -> None:
        if nesterov and given.momentum == 0:
            raise RuleError("to be false where momentum is 0")


class ScheduleConfig(Config, title="schedule"):
    """Keys of every schedule of the learning rate."""

    name: str
    """The registered name of the schedule."""


@SCHEDULES.register("cosine", builder="segmeter.training.optimizers:build_schedule")
class CosineConfig(ScheduleConfig):
    """Linear warm-up, then half a cosine."""

    name: str = "cosine"
    warmup: WarmUp = 0.05
    """Length of the warm-up."""
    final: RateShare = Field(0.0, ge=0, le=1)
    """Learning rate at the end."""


@SCHEDULES.register("poly", builder="segmeter.training.optimizers:build_schedule")
class PolyConfig(ScheduleConfig):
    """Linear warm-up, then (1 - progress) to a power (DeepLab, nnU-Net)."""

    name: str = "poly"
    warmup: WarmUp = 0.0
    """Length of the warm-up."""
    power: float = Field(0.9, gt=0, le=10)
    """The exponent."""


@SCHEDULES.register("one_cycle", builder="segmeter.training.optimizers:build_schedule")
class OneCycleConfig(ScheduleConfig):
    """One cosine up and one down (Smith and Topin 2018)."""

    name: str = "one_cycle"
    rise: RunShare = Field(0.3, gt=0, le=0.9)
    """Length of the rise."""
    start: RateShare = Field(0.04, gt=0, le=1)
    """Learning rate at the start."""
    final: RateShare = Field(1e-4, ge=0, le=1)
    """Learning rate at the end."""


@SCHEDULES.register("constant", builder="segmeter.training.optimizers:build_schedule")
class ConstantConfig(ScheduleConfig):
    """Linear warm-up, then a constant learning rate."""

    name: str = "constant"
    warmup: WarmUp = 0.0
    """Length of the warm-up."""


class LoggerConfig(Config, title="logger"):
    """Keys of every logger."""

    name: str
    """The registered name of the logger."""
    also: tuple[str, ...] = ()
    """More loggers, each with its default values: [tensorboard]. `logger=[wandb,tensorboard]` is short for it."""

    @rule("also")
    def _others(cls, also: tuple[str, ...], given: Given) -> None:
        unknown = [name for name in also if name not in LOGGERS.names()]
        if unknown:
            raise RuleError(f"to name loggers, not {unknown[0]!r}", nearest(unknown[0], LOGGERS.names()))
        if len({given.name, *also}) <= len(also):
            raise RuleError("to name each logger once")

    @property
    def all(self) -> tuple["LoggerConfig", ...]:
        """The logger and the others that `also` names."""
        others = (LOGGERS.schema(name)() for name in self.also)
        return (self, *(config for config in others if isinstance(config, LoggerConfig)))


@LOGGERS.register("none", builder=lambda config, **context: None)
class NoLoggerConfig(LoggerConfig):
    """Only history.jsonl, which is always written."""

    name: str = "none"


@LOGGERS.register("tensorboard", builder="segmeter.training.loggers:TensorBoardLogger")
class TensorBoardConfig(LoggerConfig):
    """Curves for TensorBoard, in the folder tensorboard/ of the run; needs: pip install "segmeter[tensorboard]"."""

    name: str = "tensorboard"


@LOGGERS.register("wandb", builder="segmeter.training.loggers:WandbLogger")
class WandbConfig(LoggerConfig):
    """Weights & Biases; needs: pip install "segmeter[wandb]". Its key comes from WANDB_API_KEY or `wandb login`."""

    name: str = "wandb"
    project: str = Field("segmeter", min_length=1)
    """The project."""
    entity: str | None = None
    """User or team; null takes the account's own."""
    mode: Literal["online", "offline"] = "online"
    """Whether rows are sent at once, or kept in the run's folder wandb/ for `wandb sync`."""


@LOGGERS.register("mlflow", builder="segmeter.training.loggers:MlflowLogger")
class MlflowConfig(LoggerConfig):
    """MLflow; needs: pip install "segmeter[mlflow]"."""

    name: str = "mlflow"
    uri: str | None = None
    """The store: sqlite:////path/mlflow.db, or the address of a server; null takes MLFLOW_TRACKING_URI, else mlflow.db
    in the run's folder."""
    experiment: str = Field("segmeter", min_length=1)
    """The experiment."""
