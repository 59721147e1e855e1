"""Declares the keys of the commands that help to decide."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

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
    @classmethod
    def _one_pilot(cls, metrics: MetricsConfig, given: Given) -> None:
        if (given.runs == ()) == (given.sd is None):
            raise RuleError(
                "to be given, or else sd", "Write run=RUN, runs=[BASE,NEW], or mean=0.78 sd=0.12.", key="runs"
            )
        if given.detect is not None and given.sd is None and (isinstance(given.runs, Path) or len(given.runs) < 2):
            remedy = "A difference is planned from the differences of cases."
            raise RuleError("to be [BASE,NEW] for detect", remedy, key="runs")

    @rule("metrics")
    @classmethod
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
    by: str | None = None
    """The score to choose by; null takes `metrics.headline`."""
