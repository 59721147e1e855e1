"""The root configuration of each command."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from segmeter.data.config import DATA, TimeoutSeconds
from segmeter.data.labels_config import LabelsConfig
from segmeter.distributed.config import LAUNCHES
from segmeter.distributed.shards import parse_shard
from segmeter.errors import InputError
from segmeter.export.config import ExportConfig
from segmeter.inference.config import InferenceConfig
from segmeter.losses.config import LOSSES
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.config.scores import RequireConfig
from segmeter.models.config import MODELS
from segmeter.postprocess.config import PostprocessConfig
from segmeter.report.config import ReportConfig
from segmeter.schema import Component, Config, Given, RuleError, Unit, rule
from segmeter.training.config import LOGGERS, OPTIMIZERS, SCHEDULES, TrainingConfig
from segmeter.training.data.augment_config import AugmentConfig


class RunConfig(Config, title="run"):
    """Where the outputs go: ``<root>/<command>/<date>_<time>_<name>``."""

    root: Path = Path("runs")
    """Folder of all runs."""
    name: str | None = None
    """Last part of the folder's name; null takes the data set's name."""
    copy_to: str | None = None
    """URL of a folder that a finished run's folder is copied into, under its own name: s3://bucket/runs. null: none."""

    @rule("name")
    @classmethod
    def _plain(cls, name: str | None, given: Given) -> None:
        if name is not None and (name == "" or set(name) & set("/\\\n\0")):
            raise RuleError("to be a plain name without slashes")


class Command(Config, title="config"):
    """What every command takes."""

    plugins: tuple[str, ...] = ()
    """Modules that register your own components; only the command line is read for them."""


class Common(Command):
    """What every command with a run folder takes."""

    run: RunConfig = RunConfig()
    """Where the outputs go: ``<root>/<command>/<date>_<time>_<name>``."""


class Seeded(Common):
    """What a command takes in which something is drawn at random."""

    seed: int = Field(0, ge=0, le=2**32 - 1)
    """Seed of everything that is drawn at random: ``training.seed`` and ``metrics.seed`` follow it. What decides the
    data themselves (``data.seed``, ``data.split_seed``) does not."""


class Launched(Common):
    """What a command takes that can run elsewhere than in this process, and go on where it was stopped."""

    resume: str | None = None
    """null starts a new run; "auto" continues the newest run of this name; a path continues that run, with its
    own configuration but for the keys that the command line sets."""
    launch: Annotated[Any, Component(LAUNCHES)]
    """Where it runs."""


class Sharded(Launched):
    """What a command takes whose cases can be shared out among jobs."""

    shard: str | None = None
    """Take one part of the cases: 2/7 is the second of seven; `segmeter merge` joins the parts. null takes all."""

    @rule("shard")
    @classmethod
    def _of_two_numbers(cls, shard: str | None, given: Given) -> None:
        try:
            parse_shard(shard or "1/1")
        except InputError:
            raise RuleError("to be NUMBER/COUNT, the number being at most the count: 2/7") from None


class Measured(Seeded, Sharded):
    """What a command takes that measures masks."""

    objective: str | None = None
    """What a sweep compares, and Optuna searches by, in the direction in which it is better: mean_iou, mean_dice,
    pixel_accuracy, or a metric of `metrics.measures`, such as hd95 (the mean over classes) or hd95/car; null takes
    `metrics.headline`."""
    metrics: MetricsConfig
    """What is measured."""
    report: ReportConfig
    """Pictures and the HTML report."""


class Modelled(Common):
    """What a command takes that runs a model."""

    device: str = "auto"
    """Where the model runs: "auto", "cpu", "cuda", "cuda:<number>" or "mps" (an Apple GPU; docs/gpu.md)."""


class Trained(Common):
    """What a command takes that runs a trained model, or several."""

    checkpoint: Path | tuple[Path, ...]
    """A run folder (its best checkpoint), a checkpoint folder, or a file in it; [A,B,C] averages the probabilities of
    several."""

    @property
    def checkpoints(self) -> tuple[Path, ...]:
        """One or several."""
        return self.checkpoint if isinstance(self.checkpoint, tuple) else (self.checkpoint,)


class TrainConfig(Modelled, Seeded, Launched):
    """`segmeter train`: train a model on images and masks."""

    allow_changes: tuple[str, ...] = ()
    """Keys that may differ from the resumed run's configuration: [training.epochs]."""
    folds: Annotated[int | None, Unit("folds")] = Field(None, ge=2, le=100)
    """Cross-validation in one command: trains this many folds, evaluates each on the cases that it did not see, and
    joins the results. null trains once."""
    data: Annotated[Any, Component(DATA)]
    """The data set."""
    model: Annotated[Any, Component(MODELS)]
    """The network."""
    loss: Annotated[Any, Component(LOSSES)]
    """The loss."""
    optimizer: Annotated[Any, Component(OPTIMIZERS)]
    """The optimizer."""
    schedule: Annotated[Any, Component(SCHEDULES)]
    """The schedule of the learning rate."""
    training: TrainingConfig
    """How long, how often, how exactly."""
    augment: AugmentConfig
    """How samples are drawn."""
    inference: InferenceConfig
    """How the model is run over images in validation."""
    logger: Annotated[Any, Component(LOGGERS)]
    """Where curves are written beside history.jsonl."""


class EvalConfig(Trained, Modelled, Measured):
    """`segmeter eval`: measure a checkpoint on a data set."""

    data: Annotated[Any, Component(DATA)]
    """The data set."""
    loss: Annotated[Any, Component(LOSSES)]
    """The loss, which is reported beside the metrics."""
    inference: InferenceConfig
    """How the model is run over images."""
    export: ExportConfig
    """Which files are written per case."""
    postprocess: PostprocessConfig
    """The steps that clean each label map."""


class ImagesConfig(Config, title="data"):
    """How images without masks are read; classes, channels and normalisation are the checkpoint's."""

    max_pixels: Annotated[int, Unit("pixels")] = Field(200_000_000, ge=1)
    """The most pixels of an image, checked before it is decoded; of a TIFF or Zarr that is read by rows, of one of its
    tiles."""
    level: Annotated[int, Unit("level")] = Field(0, ge=0, le=99)
    """Which level of TIFF pyramids and OME-Zarr is read, 0 being the finest."""
    orientation: Literal["refuse", "ignore", "apply"] = "refuse"
    """What to do with images whose EXIF tag says that they lie on their side."""
    timeout_s: TimeoutSeconds = None
    """The most seconds that reading a case may take, or each part of one that is read by rows; then the run stops, and
    `resume` goes on with it. null waits for ever."""


class PredictConfig(Trained, Modelled, Sharded):
    """`segmeter predict`: write label maps for images that have no reference."""

    input: Path
    """An image, or a folder of images."""
    data: ImagesConfig
    """How images are read."""
    inference: InferenceConfig
    """How the model is run over images."""
    export: ExportConfig
    """Which files are written per image."""
    postprocess: PostprocessConfig
    """The steps that clean each label map."""
    report: ReportConfig
    """Pictures."""


class DeployConfig(Trained):
    """`segmeter export`: write a checkpoint as one file that takes images and gives labels, without segmeter."""

    format: Literal["onnx"] = "onnx"
    """"onnx" runs in onnxruntime and other engines, wherever they are."""
    input: Path | None = None
    """An image, or a folder of images, on which the labels are compared with ours; the file will take images of their
    dtype. null takes the test split of the data that the checkpoint was trained on."""
    cases: Annotated[int, Unit("images")] = Field(4, ge=1, le=10_000)
    """How many images are compared, spread evenly over those that are there."""
    threshold: Annotated[float, Unit("probability")] = Field(0.5, ge=0, le=1)
    """Binary and multilabel: a class is present where its probability is above this."""
    data: ImagesConfig
    """How images are read."""


class CheckConfig(Command):
    """`segmeter check`: verify a data set before the first step; it leaves no run folder."""

    data: Annotated[Any, Component(DATA)]
    """The data set."""
    splits: tuple[str, ...] = ("train", "val", "test")
    """The splits to verify; all of them are also compared with each other."""
    output: Path | None = None
    """JSON file that takes all that is shown, or null."""


class ScoreConfig(Measured):
    """`segmeter score`: measure masks that any tool wrote against their references, without a model."""

    predictions: Path
    """Folder of label maps: PNG, BMP, TIFF, NPY, NPZ, NIfTI, MHA, NRRD, DICOM-SEG, GeoJSON, YOLO, Zarr; multilabel: one
    folder per class. Or a file of COCO, Label Studio or CVAT."""
    references: Path
    """Folder of the masks that they are measured against, with the same file names; or such a file."""
    prediction_ending: str = ""
    """What the names of predictions have after their case's, before the suffix; files without it are passed over."""
    reference_ending: str = ""
    """The same for references: _gtFine_labelIds."""
    images: Path | None = None
    """Folder of the images, for overlays; null draws none."""
    missing: Literal["error", "as_background"] = "error"
    """What a reference without a prediction is: an error, or scored as class 0 everywhere."""
    workers: Annotated[int, Unit("processes")] = Field(0, ge=0, le=256)
    """Processes; 0 takes threads, one per core, which are as fast but for measures in plain Python."""
    data: LabelsConfig
    """What the values in masks mean."""
    probs: Path | None = None
    """Folder of their probabilities, NPY or NPZ, (C, H, W) or (C, D, H, W), float32 as `export.probs` writes them,
    with the same names; null measures none."""

    @rule("probs")
    @classmethod
    def _for_calibration(cls, probs: Path | None, given: Given) -> None:
        if probs is None and given.metrics.calibration:
            raise RuleError("to be given for metrics.calibration", "Set probs=FOLDER; labels carry no probabilities.")


class MergeConfig(Common):
    """`segmeter merge`: join the shards of a run, or the evaluations of the folds of a cross-validation."""

    runs: tuple[Path, ...]
    """Folders of finished runs of one command: all shards of one run, in any order."""
    kind: Literal["shards", "folds"] = "shards"
    """What the runs are: "shards" of one run, joined to what it would have left without them, to the byte; or "folds",
    evaluations of different checkpoints on disjoint cases, whose rows are joined to an out-of-fold result."""
    report: ReportConfig
    """Pictures and the HTML report."""


class CompareConfig(Seeded, RequireConfig):
    """`segmeter compare`: paired statistics between evaluations of the same cases."""

    runs: tuple[Path, ...]
    """Folders of two or more finished runs of eval or score, or summary.json files of nnU-Net. Of each pair, the
    one that is given first is the base: differences are new minus base."""
    rank_by: str | None = None
    """The metric that orders the runs: mean_iou, mean_dice, pixel_accuracy, or one that they were measured by, such as
    pq, nsd@1 or hd95 (the mean over classes), or hd95/car; null takes the headline."""
    metrics: MetricsConfig
    """What is compared."""

    @rule("metrics")
    @classmethod
    def _resampled(cls, metrics: MetricsConfig, given: Given) -> None:
        if metrics.bootstrap < 1:
            raise RuleError("to be an integer >= 1 and <= 1000000", key="metrics.bootstrap")
        if metrics.measures:
            remedy = "Leave it out: runs are compared by the measures that they have."
            raise RuleError("to be empty", remedy, key="metrics.measures")


ROOTS: dict[str, type[Config]] = {
    "train": TrainConfig,
    "eval": EvalConfig,
    "predict": PredictConfig,
    "export": DeployConfig,
    "check": CheckConfig,
    "score": ScoreConfig,
    "compare": CompareConfig,
    "merge": MergeConfig,
}
