"""Declares the keys of the commands that help to decide."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from segmeter.data.labels_config import LabelsConfig
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.schema import Config, Given, RuleError, Unit, rule


class PlanKeys(Config, title="config"):
    """The pilot that `segmeter plan` plans from, and the aim."""

    runs: Path | tuple[Path, ...] = ()
    """The pilot: one finished run of eval or score, or [BASE,NEW] on the same cases for their difference. run=RUN is
    the same."""
    scores: tuple[str, ...] = ()
    """The scores to plan for, by their names in `segmeter compare`: [mean_iou, iou/car, hd95/mean]. Empty: the headline
    and its metric for each class."""
    width: Annotated[float | None, Unit("unit of the score")] = Field(None, gt=0)
    """The width that the 95 % interval should have, from end to end."""
    detect: Annotated[float | None, Unit("unit of the score")] = Field(None, gt=0)
    """The smallest difference between two runs that the comparison should detect."""
    power: Annotated[float, Unit("share of studies")] = Field(0.8, gt=0.05, lt=1)
    """The chance to detect that difference if it is the true one."""
    mean: Annotated[float | None, Unit("unit of the score")] = None
    """Without runs: the published mean over cases."""
    sd: Annotated[float | None, Unit("unit of the score")] = Field(None, gt=0)
    """Without runs: the standard deviation of the cases' values; for `detect`, of their differences."""
    cases: Annotated[int | None, Unit("cases")] = Field(None, ge=2)
    """Number of cases behind `sd`; null takes `sd` as exact, and gives no interval."""
    metrics: MetricsConfig
    """How the runs are resampled: clusters, slices, interval."""

    @property
    def folders(self) -> tuple[Path, ...]:
        """The runs, none, one or two."""
        return self.runs if isinstance(self.runs, tuple) else (self.runs,)

    @rule("metrics")
    def _one_pilot(cls, metrics: MetricsConfig, given: Given) -> None:
        if (given.runs == ()) == (given.sd is None):
            raise RuleError(
                "to be given, or else sd", "Write run=RUN, runs=[BASE,NEW], or mean=0.78 sd=0.12.", key="runs"
            )
        if given.detect is not None and given.sd is None and (isinstance(given.runs, Path) or len(given.runs) < 2):
            remedy = "A difference is planned from the differences of cases."
            raise RuleError("to be [BASE,NEW] for detect", remedy, key="runs")

    @rule("metrics")
    def _resampled(cls, metrics: MetricsConfig, given: Given) -> None:
        if given.width is None and given.detect is None:
            raise RuleError("to be given, or else detect", "Write width=0.05 or detect=0.01.", key="width")
        if metrics.bootstrap < 1000:
            raise RuleError("to be 1000 or more", "Fewer make intervals too narrow.", key="metrics.bootstrap")
        if metrics.measures:
            remedy = "Leave it out: runs are planned for by the measures that they have."
            raise RuleError("to be empty", remedy, key="metrics.measures")


class TuneKeys(Config, title="config"):
    """The settings that `segmeter tune` tries."""

    over: tuple[str, ...]
    """The settings to try, all combinations: [threshold=0.3:0.7:0.05, postprocess.min_size=0|16|64]. After
    "postprocess." comes a step and its option, such as opening.radius=0|1|2, or a step alone with no|yes. 0 or no
    leaves the step out. min_size is short for remove_small_objects.min_pixels."""
    probs: Path | None = None
    """An earlier run of `tune`, or one of `eval` with export.probs=true, of the same checkpoint and split. Its
    probabilities are used, so that the model isn't run again."""
    keep_gb: Annotated[float, Unit("GiB")] = Field(4.0, ge=0)
    """Most disk space for the probabilities that are kept under predictions/probs, as float16, for `probs=` of a later
    run. None are kept where they need more; 0 keeps none."""
    by: str | None = None
    """The score to choose by; null takes `metrics.headline`."""
    metrics: MetricsConfig
    """The metrics, and how cases are resampled."""

    @rule("metrics")
    def _resampled(cls, metrics: MetricsConfig, given: Given) -> None:
        if metrics.bootstrap < 1000:
            raise RuleError("to be 1000 or more", "Fewer make intervals too narrow.", key="metrics.bootstrap")


class AgreeKeys(Config, title="config"):
    """The readers and models that `segmeter agree` compares."""

    folders: tuple[Path, ...] = ()
    """One folder of masks per reader, with the same file names; formats as for `segmeter score`."""
    runs: tuple[Path, ...] = ()
    """Finished runs of eval or predict, whose label maps are compared too. Beside `folders` they are models among
    readers; alone they are compared with each other."""
    models: tuple[str, ...] = ()
    """Names of folders or runs that are models; [] takes the runs where there are folders. Models don't count in
    majorities. A model's contrast tells whether it is further from the readers than they are from each other.
    """
    missing: Literal["error", "leave_out"] = "error"
    """How to treat a case that not every reader has: as an error, or left out and listed."""
    consensus: tuple[Literal["majority", "staple"], ...] = ("majority",)
    """Consensus maps to write under consensus/: "majority", with tied pixels ignored, and "staple" by SimpleITK (extra
    "itk"). [] writes none."""

    data: LabelsConfig
    """The meaning of the values in masks. Without classes, those of the first run of eval are taken."""
    metrics: MetricsConfig
    """The metrics to compute, in both directions of each pair."""

    @model_validator(mode="before")
    @classmethod
    def _from_runs(cls, values: Any) -> Any:
        """Take the classes of the runs where none are given."""
        data = values.get("data") if isinstance(values, Mapping) else None
        if not isinstance(data, Mapping) or data.get("classes") or data.get("num_classes"):
            return values
        for run in values.get("runs") or ():
            if (Path(run) / "cases.parquet").is_file():
                from segmeter.metrics.cases.stored import read_spec  # pyarrow, which the build of a wheel does without

                spec = read_spec(run)
                return {**values, "data": {**data, **spec.meaning, "colours": spec.colours}}
        return values


class SuspectsKeys(Config, title="config"):
    """The probabilities in which `segmeter suspects` looks for wrong labels, or for images to label next."""

    runs: Annotated[tuple[Path, ...], Field(min_length=1)]
    """Finished runs of eval on cases that their model never saw, with export.probs=true: a held-out split, or the folds
    of a cross-validation. With order=label_next, runs of predict on the same images."""
    unseen: bool = False
    """Set it to true if you know that the models saw none of the cases. Runs with data.split=all need it."""
    order: Literal["suspects", "label_next"] = "suspects"
    """The list to make: "suspects" ranks objects by the chance that their reference is wrong, "label_next" ranks images
    without a reference by how much their labels would teach a model.
    """
