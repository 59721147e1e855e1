"""Declares the keys of each command that trains, runs or checks a model, or helps to decide.

The commands that only read masks and finished runs have theirs in `command_configs`.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from segmeter.cli.config.command_configs import Command, Common, Launched, Measured, Seeded, Sharded
from segmeter.data.classes_config import TimeoutSeconds
from segmeter.data.config import DATA, PlaneAxis
from segmeter.evaluation.decisions.config import AgreeKeys, PlanKeys, SuspectsKeys, TuneKeys
from segmeter.export.config import ExportConfig
from segmeter.inference.config import InferenceConfig
from segmeter.losses.config import LOSSES
from segmeter.models.config import MODELS
from segmeter.models.foreign.config import ForeignConfig
from segmeter.postprocess.config import PostprocessConfig
from segmeter.report.config import ReportConfig
from segmeter.schema import Component, Config, Unit
from segmeter.training.config import LOGGERS, OPTIMIZERS, SCHEDULES, TrainingConfig
from segmeter.training.data.augment_config import AugmentConfig


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
    """The way images without masks are read. Classes, channels and normalisation come from the checkpoint."""

    max_pixels: Annotated[int, Unit("pixels")] = Field(200_000_000, ge=1)
    """Largest number of pixels of an image, checked before decoding. Of a TIFF or Zarr that is read in bands, it limits
    one tile.
    """
    level: Annotated[int, Unit("level")] = Field(0, ge=0, le=99)
    """The level of TIFF pyramids and OME-Zarr to read; 0 is the finest."""
    orientation: Literal["refuse", "ignore", "apply"] = "refuse"
    """How to treat images whose EXIF tag says that they are rotated."""
    planes: PlaneAxis | None = None
    """Images are volumes, cut into planes across this axis: "auto", "axial", "i", "j" or "k". null does as in training.
    """
    timeout_s: TimeoutSeconds = None
    """Time limit for reading a case, or one part of a large case. When it is exceeded, the run stops, and `resume` can
    continue it. null sets no limit.
    """


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
    """A model that others trained. It is tried on the first split, and its card is shown and written."""
    card: Path | None = None
    """Where the model's card is written; null takes model.yaml beside the model. An existing card is kept."""

    data: Annotated[Any, Component(DATA)]
    """The data set."""
    splits: tuple[str, ...] = ("train", "val", "test")
    """The splits to verify. They are also compared with each other."""
    output: Path | None = None
    """JSON file for everything that is printed but a model's card, or null."""


class AgreeConfig(Seeded, AgreeKeys):
    """`segmeter agree`: how far several readers agree, without a reference."""


class SuspectsConfig(Seeded, SuspectsKeys):
    """`segmeter suspects`: which labels are likely wrong, or which images to label next."""


class PlanConfig(Seeded, PlanKeys):
    """`segmeter plan`: how many cases a score or a comparison needs."""


class TuneConfig(Foreign, Trained, Modelled, Seeded, TuneKeys):
    """`segmeter tune`: choose threshold and post-processing on the validation split."""

    data: Annotated[Any, Component(DATA)]
    """The data set; its validation split is used."""
    inference: InferenceConfig
    """How the model runs over images. Its threshold is the usual one, with which others are compared."""
    postprocess: PostprocessConfig
    """Steps that run before those that are tried. A step that makes instances stays last."""
