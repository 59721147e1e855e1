"""Declares the keys of the commands that help to decide."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from segmeter.metrics.pixels.consensus import Consensus
from segmeter.schema import Config, Given, RuleError, Unit, rule


class AgreeKeys(Config, title="config"):
    """The readers and models that `segmeter agree` compares."""

    folders: tuple[Path, ...] = ()
    """One folder of masks per reader, with the same file names; formats as for `segmeter score`."""
    runs: tuple[Path, ...] = ()
    """Finished runs of eval or predict, whose label maps are compared too. Beside `folders` they are models among
    readers; alone they are compared with each other."""
    models: tuple[str, ...] = ()
    """Names of folders or runs that are models; [] takes the runs where there are folders. A model counts in no
    majority, and its contrast tells whether it is further from the readers than they are from each other."""
    missing: Literal["error", "leave_out"] = "error"
    """How to treat a case that not every reader has: as an error, or left out and listed."""
    consensus: tuple[Consensus, ...] = ("majority",)
    """Consensus maps to write under consensus/: "majority", with tied pixels ignored, and "staple" by SimpleITK (extra
    "itk"). [] writes none."""

    @rule("consensus")
    @classmethod
    def _each_once(cls, consensus: tuple[str, ...], given: Given) -> None:
        if len(set(consensus)) < len(consensus):
            raise RuleError("to name each kind once")


class SuspectsKeys(Config, title="config"):
    """The probabilities in which `segmeter suspects` looks for wrong labels, or for images to label next."""

    runs: tuple[Path, ...]
    """Finished runs of eval on cases that their model never saw, with export.probs=true: a held-out split, or the folds
    of a cross-validation. With order=label_next, runs of predict on the same images."""
    order: Literal["suspects", "label_next"] = "suspects"
    """The list to make: "suspects" ranks objects by the chance that their reference is wrong, "label_next" ranks images
    without a reference by how much their labels would tell."""
    shown: Annotated[int, Unit("suspects")] = Field(60, ge=1, le=1000)
    """Suspects with pictures on the page."""
    exported: Annotated[int, Unit("suspects")] = Field(300, ge=1, le=100_000)
    """Suspects in suspects.json and in the files for annotation tools; suspects.parquet has all of them."""

    @rule("runs")
    @classmethod
    def _at_least_one(cls, runs: tuple[Path, ...], given: Given) -> None:
        if not runs:
            raise RuleError("to name a run or more")
