"""The root configuration of each command."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from segmeter.checks import collecting
from segmeter.cli.convert import component
from segmeter.data.config import DATA
from segmeter.export.config import ExportConfig
from segmeter.inference.config import InferenceConfig
from segmeter.losses.config import LOSSES
from segmeter.metrics.config import MetricsConfig
from segmeter.models.config import MODELS
from segmeter.postprocess.config import PostprocessConfig
from segmeter.report.config import ReportConfig
from segmeter.training.augment_config import AugmentConfig
from segmeter.training.config import LOGGERS, OPTIMIZERS, SCHEDULES, TrainingConfig


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Where the outputs go: ``<root>/<command>/<date>_<time>_<name>``.

    Parameters
    ----------
    root
        Folder of all runs.
    name
        Last part of the folder's name; null takes the data set's name.
    """

    root: Path = Path("runs")
    name: str | None = None

    def __post_init__(self) -> None:
        with collecting("run") as problems:
            safe = self.name is None or (self.name != "" and not set(self.name) & set("/\\\n\0"))
            problems.expect(safe, "name", "to be a plain name without slashes", self.name)


@dataclass(frozen=True, kw_only=True)
class Common:
    """What every command takes.

    Parameters
    ----------
    run
        Where the outputs go.
    device
        "auto", "cpu", "cuda" or "cuda:<number>".
    seed
        Of everything that is drawn at random, >= 0.
    plugins
        Modules that register the user's own components; only the command line is read for them.
    """

    run: RunConfig = field(default_factory=RunConfig)
    device: str = "auto"
    seed: int = 0
    plugins: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        with collecting("config") as problems:
            problems.in_range("seed", self.seed, 0, 2**32 - 1)


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Common):
    """`segmeter train`.

    Parameters
    ----------
    resume
        null starts a new run; "auto" continues the newest run of this name; a path continues that run.
    allow_changes
        Keys of the configuration that may differ from the resumed run's, for example ["training.epochs"].
    """

    resume: str | None = None
    allow_changes: tuple[str, ...] = ()
    data: Any = component(DATA)
    model: Any = component(MODELS)
    loss: Any = component(LOSSES)
    optimizer: Any = component(OPTIMIZERS)
    schedule: Any = component(SCHEDULES)
    training: TrainingConfig
    augment: AugmentConfig
    inference: InferenceConfig
    logger: Any = component(LOGGERS)


@dataclass(frozen=True, kw_only=True)
class EvalConfig(Common):
    """`segmeter eval`.

    Parameters
    ----------
    checkpoint
        A run folder (its best checkpoint), a checkpoint folder, or a file in it.
    """

    checkpoint: Path
    data: Any = component(DATA)
    loss: Any = component(LOSSES)
    inference: InferenceConfig
    export: ExportConfig
    postprocess: PostprocessConfig
    metrics: MetricsConfig
    report: ReportConfig


@dataclass(frozen=True, kw_only=True)
class PredictConfig(Common):
    """`segmeter predict`.

    Parameters
    ----------
    checkpoint
        As for eval.
    input
        An image, or a folder of images.
    """

    checkpoint: Path
    input: Path
    inference: InferenceConfig
    export: ExportConfig
    postprocess: PostprocessConfig
    report: ReportConfig


@dataclass(frozen=True, kw_only=True)
class CheckConfig(Common):
    """`segmeter check`.

    Parameters
    ----------
    splits
        The splits to verify; all of them are also compared with each other.
    """

    data: Any = component(DATA)
    splits: tuple[str, ...] = ("train", "val", "test")


ROOTS: dict[str, type] = {
    "train": TrainConfig,
    "eval": EvalConfig,
    "predict": PredictConfig,
    "check": CheckConfig,
}
