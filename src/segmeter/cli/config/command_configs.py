"""Declares the keys that commands share, and the keys of score, merge and compare, which need no model."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from segmeter.data.labels_config import LabelsConfig
from segmeter.distributed.config import LAUNCHES
from segmeter.distributed.shards import parse_shard
from segmeter.errors import InputError
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.config.scores import RequireConfig
from segmeter.report.config import ReportConfig
from segmeter.schema import Component, Config, Given, RuleError, Unit, rule

PlainName = Annotated[
    str, Field(pattern=r"^[^/\\\n\x00]+$", json_schema_extra={"words": "a plain name without slashes"})
]


class RunConfig(Config, title="run"):
    """Where the outputs go: ``<root>/<command>/<date>_<time>_<name>``."""

    root: Path = Path("runs")
    """Folder of all runs."""
    name: PlainName | None = None
    """Last part of the folder's name; null takes the data set's name."""
    copy_to: str | None = None
    """URL of a folder that finished runs are copied into, such as s3://bucket/runs; null copies nothing."""


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
    """Folders of two or more finished runs of eval or score, or summary.json files of nnU-Net. The first of each pair
    is the base: differences are new minus base.
    """
    rank_by: str | None = None
    """The metric that orders the runs; null takes the headline. Give mean_iou, mean_dice, pixel_accuracy, or a measure
    that all of them have, such as pq, nsd@1, hd95 (the mean over classes) or hd95/car.
    """
    metrics: MetricsConfig
    """How runs are compared."""

    @rule("metrics")
    def _resampled(cls, metrics: MetricsConfig, given: Given) -> None:
        if metrics.bootstrap < 1:
            raise RuleError("to be an integer >= 1 and <= 1000000", key="metrics.bootstrap")
        if metrics.measures:
            remedy = "Leave it out: runs are compared by the measures that they have."
            raise RuleError("to be empty", remedy, key="metrics.measures")
