"""The root configuration of each command."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from segmeter.checks import collecting
from segmeter.classes import ClassSpec, Task
from segmeter.cli.convert import component
from segmeter.data.config import DATA, DataConfig, Instances
from segmeter.export.config import ExportConfig
from segmeter.inference.config import InferenceConfig
from segmeter.losses.config import LOSSES
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.models.config import MODELS
from segmeter.postprocess.config import PostprocessConfig
from segmeter.report.config import ReportConfig
from segmeter.training.config import LOGGERS, OPTIMIZERS, SCHEDULES, TrainingConfig
from segmeter.training.data.augment_config import AugmentConfig


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
    """What every command with a run folder takes.

    Parameters
    ----------
    run
        Where the outputs go.
    plugins
        Modules that register the user's own components; only the command line is read for them.
    """

    run: RunConfig = field(default_factory=RunConfig)
    plugins: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Seeded(Common):
    """What a command takes in which something is drawn at random.

    Parameters
    ----------
    seed
        Of everything that is drawn at random, >= 0: ``training.seed`` and ``metrics.seed`` follow it. What decides the
        data themselves (``data.seed``, ``data.split_seed``) does not.
    """

    seed: int = 0

    def __post_init__(self) -> None:
        with collecting("config") as problems:
            problems.in_range("seed", self.seed, 0, 2**32 - 1)


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Seeded):
    """`segmeter train`.

    Parameters
    ----------
    device
        "auto", "cpu", "cuda" or "cuda:<number>".
    resume
        null starts a new run; "auto" continues the newest run of this name; a path continues that run.
    allow_changes
        Keys of the configuration that may differ from the resumed run's, for example ["training.epochs"].
    """

    device: str = "auto"
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
class EvalConfig(Seeded):
    """`segmeter eval`.

    Parameters
    ----------
    device
        As for train.
    checkpoint
        A run folder (its best checkpoint), a checkpoint folder, or a file in it.
    resume
        null starts a new run; "auto" continues the newest run of this name; a path continues that run.
    """

    device: str = "auto"
    checkpoint: Path
    resume: str | None = None
    data: Any = component(DATA)
    loss: Any = component(LOSSES)
    inference: InferenceConfig
    export: ExportConfig
    postprocess: PostprocessConfig
    metrics: MetricsConfig
    report: ReportConfig


@dataclass(frozen=True, kw_only=True)
class ImagesConfig:
    """How images without masks are read; classes, channels and normalisation are the checkpoint's.

    Parameters
    ----------
    max_pixels, orientation
        As for a data set.
    """

    max_pixels: int = DataConfig.max_pixels
    orientation: Literal["refuse", "ignore", "apply"] = "refuse"

    def __post_init__(self) -> None:
        with collecting("data") as problems:
            problems.in_range("max_pixels", self.max_pixels, 1)


@dataclass(frozen=True, kw_only=True)
class PredictConfig(Common):
    """`segmeter predict`.

    Parameters
    ----------
    device
        As for train.
    checkpoint
        As for eval.
    input
        An image, or a folder of images.
    data
        How images are read.
    """

    device: str = "auto"
    checkpoint: Path
    input: Path
    data: ImagesConfig
    inference: InferenceConfig
    export: ExportConfig
    postprocess: PostprocessConfig
    report: ReportConfig


@dataclass(frozen=True, kw_only=True)
class CheckConfig:
    """`segmeter check`, which leaves no run folder.

    Parameters
    ----------
    plugins
        As for every command.
    splits
        The splits to verify; all of them are also compared with each other.
    """

    plugins: tuple[str, ...] = ()
    data: Any = component(DATA)
    splits: tuple[str, ...] = ("train", "val", "test")


@dataclass(frozen=True, kw_only=True)
class LabelsConfig:
    """What the values in masks mean, where there are no images and no model that say so.

    Parameters
    ----------
    task, classes, colours, ignore_index, label_map, max_pixels
        As for a data set.
    num_classes
        Instead of `classes`: they are then called class_0, class_1, ...
    key
        Which array of NPZ archives and Zarr groups; null takes the only one.
    instances
        Whether the files hold numbers of objects, 0 being none, instead of labels; for a binary task. true: both sides;
        "references", "predictions": one side only, and connected parts of the other one are its objects.
    """

    task: Task = "multiclass"
    classes: tuple[str, ...] = ()
    num_classes: int | None = None
    colours: tuple[tuple[int, ...], ...] | None = None
    ignore_index: int | None = None
    label_map: dict[str, int] = field(default_factory=dict)
    max_pixels: int = 500_000_000
    key: str | None = None
    instances: Instances = False

    def __post_init__(self) -> None:
        with collecting("data") as problems:
            mapped = self.instances is True and self.label_map  # of one side, the map is for the other one
            alone = not self.instances or (self.task == "binary" and not mapped)
            rule, remedy = "to be false but for a binary task without label map", "Set data.task=binary."
            problems.expect(alone, "instances", rule, self.instances, remedy)
            problems.in_range("num_classes", self.num_classes, 1, 65534)
            given, named = self.num_classes, len(self.classes)
            remedy = "Set data.classes=[background,cell], or data.num_classes=2."
            problems.expect(bool(given or named), "classes", "to be given", list(self.classes), remedy)
            problems.expect(not (given and named) or given == named, "num_classes", f"to be {named}", given)
        self._as_data()

    def spec(self) -> ClassSpec:
        """What the labels mean."""
        return self._as_data().spec()

    def labels_of(self) -> dict[str, int]:
        """The label map with its keys written in one way."""
        return self._as_data().labels_of()

    def _as_data(self) -> DataConfig:
        """A data set of such masks, which checks the values as for any other."""
        classes = self.classes or tuple(f"class_{k}" for k in range(self.num_classes or 0))
        return DataConfig(
            name="labels",
            root=".",
            task=self.task,
            classes=classes,
            colours=self.colours or None,
            ignore_index=self.ignore_index,
            label_map=self.label_map,
            max_pixels=self.max_pixels,
        )


@dataclass(frozen=True, kw_only=True)
class ScoreConfig(Seeded):
    """`segmeter score`.

    Parameters
    ----------
    predictions, references
        Folders of masks, paired by file name.
    images
        A folder of their images, for overlays; null draws none.
    probs
        A folder of their probabilities, NPY (C, H, W) float32 as `export.probs` writes them, with the same names; null
        measures none.
    missing
        What a reference without a prediction is: "error", or scored "as_background", class 0 everywhere.
    workers
        Processes, 0 to 256; 0 takes threads, one per core.
    resume
        null starts a new run; "auto" continues the newest run of this name; a path continues that run.
    """

    predictions: Path
    references: Path
    images: Path | None = None
    probs: Path | None = None
    missing: Literal["error", "as_background"] = "error"
    workers: int = 0
    resume: str | None = None
    data: LabelsConfig
    metrics: MetricsConfig
    report: ReportConfig

    def __post_init__(self) -> None:
        super().__post_init__()
        with collecting("score") as problems:
            problems.in_range("workers", self.workers, 0, 256)
            if self.metrics is not None and self.metrics.calibration:  # None: it failed already
                remedy = "Set probs=FOLDER; labels carry no probabilities."
                problems.expect(self.probs is not None, "probs", "for metrics.calibration", None, remedy)


@dataclass(frozen=True, kw_only=True)
class CompareConfig(Seeded):
    """`segmeter compare`.

    Parameters
    ----------
    runs
        Folders of two or more finished evaluations of the same cases.
    rank_by
        The metric that orders them: mean_iou, mean_dice, pixel_accuracy, or one that they were measured by, such as pq,
        nsd@1 or hd95 (the mean over classes), or hd95/car.
    """

    runs: tuple[Path, ...]
    rank_by: str = "mean_iou"
    metrics: MetricsConfig

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.metrics is not None:  # None: it failed already
            with collecting("metrics") as problems:
                problems.in_range("bootstrap", self.metrics.bootstrap, 1)
                remedy = "Leave it out: runs are compared by the measures that they have."
                problems.expect(not self.metrics.measures, "measures", "to be empty", "some", remedy)


ROOTS: dict[str, type] = {
    "train": TrainConfig,
    "eval": EvalConfig,
    "predict": PredictConfig,
    "check": CheckConfig,
    "score": ScoreConfig,
    "compare": CompareConfig,
}
