"""Declares the root configuration of each command: its own keys, and the groups that it takes."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from segmeter.data.config import DATA, PlaneAxis, TimeoutSeconds
from segmeter.data.labels_config import LabelsConfig
from segmeter.distributed.config import LAUNCHES
from segmeter.distributed.shards import parse_shard
from segmeter.errors import InputError
from segmeter.evaluation.decisions.config import AgreeKeys, PlanKeys, SuspectsKeys, TuneKeys
from segmeter.export.config import ExportConfig
from segmeter.inference.config import InferenceConfig
from segmeter.losses.config import LOSSES
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.config.scores import RequireConfig
from segmeter.models.config import MODELS
from segmeter.models.foreign.config import ForeignConfig
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
    """URL of a folder that finished runs are copied into, such as s3://bucket/runs; null copies nothing."""

    @rule("name")
    @classmethod
    def _plain(cls, name: str | None, given: Given) -> None:
        if name is not None and (name == "" or set(name) & set("/\\\n\0")):
            raise RuleError("to be a plain name without slashes")


class Command(Config, title="config"):
    """Keys of every command."""

    plugins: tuple[str, ...] = ()
    """Modules that register your own components; only the command line can name them."""


class Common(Command):
    """Keys of every command with a run folder."""

    run: RunConfig = RunConfig()
    """Where the outputs go: ``<root>/<command>/<date>_<time>_<name>``."""


class Seeded(Common):
    """Keys of every command that draws random numbers."""

    seed: int = Field(0, ge=0, le=2**32 - 1)
    """Seed of all random numbers: `training.seed` and `metrics.seed` follow it. The seeds of the data (`data.seed`,
    `data.split_seed`) do not."""


class Launched(Common):
    """Keys of every command that can run in other processes and be resumed."""

    resume: str | None = None
    """null starts a new run; "auto" continues the newest run of this name; a path continues that run with its own
    configuration, except for keys that the command line sets."""
    launch: Annotated[Any, Component(LAUNCHES)]
    """Where it runs."""


class Sharded(Launched):
    """Keys of every command whose cases can be split among jobs."""

    shard: str | None = None
    """Process one part of the cases: 2/7 is the second of seven. `segmeter merge` joins the parts. null takes all."""

    @rule("shard")
    @classmethod
    def _of_two_numbers(cls, shard: str | None, given: Given) -> None:
        try:
            parse_shard(shard or "1/1")
        except InputError:
            raise RuleError("to be NUMBER/COUNT, the number being at most the count: 2/7") from None


class Measured(Seeded, Sharded):
    """Keys of every command that measures masks."""

    objective: str | None = None
    """The score that a sweep compares and Optuna optimises, in the direction in which it is better. Give mean_iou,
    mean_dice, pixel_accuracy, or a metric of `metrics.measures`, such as hd95 (the mean over classes) or hd95/car; null
    takes `metrics.headline`."""
    metrics: MetricsConfig
    """The metrics to compute."""
    report: ReportConfig
    """Pictures and the HTML report."""


class Modelled(Common):
    """Keys of every command that runs a model."""

    device: str = "auto"
    """Where the model runs: "auto", "cpu", "cuda", "cuda:<number>" or "mps" (an Apple GPU; docs/gpu.md)."""


class Trained(Common):
    """Keys of every command that runs one or several trained models."""

    checkpoint: Path | tuple[Path, ...]
    """A run folder (its best checkpoint), a checkpoint folder, or a file in one; [A,B,C] averages the probabilities of
    several. Or a model that others trained: FILE.onnx, hf:FOLDER, torchvision:NAME, smp:ARCHITECTURE/ENCODER, or a
    plugin's name (docs/any-model.md)."""

    @property
    def checkpoints(self) -> tuple[Path, ...]:
        """The checkpoints, one or several."""
        return self.checkpoint if isinstance(self.checkpoint, tuple) else (self.checkpoint,)


class Foreign(Config):
    """Keys of every command that runs a model that others trained."""

    model: ForeignConfig = ForeignConfig()
    """The card of a model that others trained; a checkpoint of ours has its own."""


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
    """Duration, validation, precision and other settings of training."""
    augment: AugmentConfig
    """How training samples are drawn and augmented."""
    inference: InferenceConfig
    """How the model runs over images in validation."""
    logger: Annotated[Any, Component(LOGGERS)]
    """Where curves are written in addition to history.jsonl."""


class EvalConfig(Foreign, Trained, Modelled, Measured):
    """`segmeter eval`: measure a checkpoint on a data set."""

    data: Annotated[Any, Component(DATA)]
    """The data set."""
    loss: Annotated[Any, Component(LOSSES)]
    """The loss, reported with the metrics."""
    inference: InferenceConfig
    """How the model runs over images."""
    export: ExportConfig
    """The files to write per case."""
    postprocess: PostprocessConfig
    """The steps that clean up each label map."""


class ImagesConfig(Config, title="data"):
    """How images without masks are read. Classes, channels and normalisation come from the checkpoint."""

    max_pixels: Annotated[int, Unit("pixels")] = Field(200_000_000, ge=1)
    """Most pixels of an image, checked before it is decoded; for a TIFF or Zarr that is read in bands, of one tile."""
    level: Annotated[int, Unit("level")] = Field(0, ge=0, le=99)
    """The level to read of TIFF pyramids and OME-Zarr; 0 is the finest."""
    orientation: Literal["refuse", "ignore", "apply"] = "refuse"
    """How to treat images whose EXIF tag says that they are rotated."""
    planes: PlaneAxis | None = None
    """Images are volumes that are cut across this axis: "auto", "axial", "i", "j" or "k"; null does as in training."""
    timeout_s: TimeoutSeconds = None
    """Most seconds for reading a case, or each part of one that is read in bands. Then the run stops, and `resume`
    continues it. null waits for ever."""


class PredictConfig(Foreign, Trained, Modelled, Sharded):
    """`segmeter predict`: write label maps for images without a reference."""

    input: Path
    """An image, or a folder of images."""
    data: ImagesConfig
    """How images are read."""
    inference: InferenceConfig
    """How the model runs over images."""
    export: ExportConfig
    """The files to write per image."""
    postprocess: PostprocessConfig
    """The steps that clean up each label map."""
    report: ReportConfig
    """Pictures."""


class DeployConfig(Trained):
    """`segmeter export`: write a checkpoint as one file that turns images into labels without segmeter."""

    format: Literal["onnx"] = "onnx"
    """"onnx" runs in onnxruntime and other engines."""
    input: Path | None = None
    """An image, or a folder of images, on which the file's labels are compared with segmeter's. The file takes images
    of their dtype. null takes the test split of the data that the checkpoint was trained on."""
    cases: Annotated[int, Unit("images")] = Field(4, ge=1, le=10_000)
    """Images to compare, spread evenly over those in the folder."""
    threshold: Annotated[float, Unit("probability")] = Field(0.5, ge=0, le=1)
    """Binary and multilabel: a class is present where its probability is above this."""
    data: ImagesConfig
    """How images are read."""


class CheckConfig(Foreign, Command):
    """`segmeter check`: verify a data set before training, or a model that others trained on it. It leaves no run
    folder.
    """

    checkpoint: Path | None = None
    """A model that others trained, to try on the first split: shows what is known of it and writes its card."""
    card: Path | None = None
    """Where the model's card is written; null takes model.yaml beside the model. A card that is there stays."""

    data: Annotated[Any, Component(DATA)]
    """The data set."""
    splits: tuple[str, ...] = ("train", "val", "test")
    """The splits to verify. They are also compared with each other."""
    output: Path | None = None
    """JSON file for everything that is printed, or null."""


class ScoreConfig(Measured):
    """`segmeter score`: measure masks from any tool against their references, without a model."""

    predictions: Path
    """Folder of label maps: PNG, BMP, TIFF, NPY, NPZ, NIfTI, MHA, NRRD, DICOM-SEG, GeoJSON, YOLO, Zarr; multilabel: one
    folder per class. Or a file of COCO, Label Studio or CVAT."""
    references: Path
    """Folder of the reference masks, with the same file names. Or a file of COCO, Label Studio or CVAT."""
    prediction_ending: str = ""
    """Text between case name and suffix in the names of predictions, such as _pred; files without it are skipped."""
    reference_ending: str = ""
    """The same for references, such as _gtFine_labelIds."""
    images: Path | None = None
    """Folder of the images, for overlays; null draws none."""
    missing: Literal["error", "as_background"] = "error"
    """How to treat a reference without a prediction: as an error, or as class 0 everywhere."""
    workers: Annotated[int, Unit("processes")] = Field(0, ge=0, le=256)
    """Number of processes; 0 takes one thread per core, which is as fast except for measures in plain Python."""
    data: LabelsConfig
    """The meaning of the values in masks."""
    probs: Path | None = None
    """Folder of probabilities with the same file names: NPY or NPZ, (C, H, W) or (C, D, H, W), float32 as
    `export.probs` writes them; null measures none."""

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
    """The kind of runs. With "shards", they are shards of one run, and are merged to the same bytes as an unsharded
    run. With "folds", they are evaluations of different checkpoints on disjoint cases, and are merged to an out-of-fold
    result."""
    report: ReportConfig
    """Pictures and the HTML report."""


class CompareConfig(Seeded, RequireConfig):
    """`segmeter compare`: paired statistics between evaluations of the same cases."""

    runs: tuple[Path, ...]
    """Folders of two or more finished runs of eval or score, or summary.json files of nnU-Net. Of each pair, the
    one that is given first is the base: differences are new minus base."""
    rank_by: str | None = None
    """The metric that orders the runs; null takes the headline. Give mean_iou, mean_dice, pixel_accuracy, or one that
    they were measured by, such as pq, nsd@1, hd95 (the mean over classes) or hd95/car."""
    metrics: MetricsConfig
    """How runs are compared."""

    @rule("metrics")
    @classmethod
    def _resampled(cls, metrics: MetricsConfig, given: Given) -> None:
        if metrics.bootstrap < 1:
            raise RuleError("to be an integer >= 1 and <= 1000000", key="metrics.bootstrap")
        if metrics.measures:
            remedy = "Leave it out: runs are compared by the measures that they have."
            raise RuleError("to be empty", remedy, key="metrics.measures")


class AgreeConfig(Seeded, AgreeKeys):
    """`segmeter agree`: how far several readers agree, without a reference."""


class SuspectsConfig(Seeded, SuspectsKeys):
    """`segmeter suspects`: which labels are likely wrong, or which images to label next."""


class PlanConfig(Seeded, PlanKeys):
    """`segmeter plan`: how many cases a score or a comparison needs."""


class TuneConfig(Trained, Modelled, Seeded, TuneKeys):
    """`segmeter tune`: choose threshold and post-processing on the validation split."""

    data: Annotated[Any, Component(DATA)]
    """The data set; its validation split is used."""
    inference: InferenceConfig
    """How the model runs over images; the threshold here is the usual one, that others are compared with."""
    postprocess: PostprocessConfig
    """Steps that run before those that are tried; one that makes instances stays last."""


ROOTS: dict[str, type[Config]] = {
    "train": TrainConfig,
    "eval": EvalConfig,
    "predict": PredictConfig,
    "export": DeployConfig,
    "check": CheckConfig,
    "score": ScoreConfig,
    "compare": CompareConfig,
    "merge": MergeConfig,
    "agree": AgreeConfig,
    "suspects": SuspectsConfig,
    "plan": PlanConfig,
    "tune": TuneConfig,
}
