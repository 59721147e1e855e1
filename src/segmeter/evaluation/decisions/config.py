"""Declares the keys of the commands that help to decide."""

from pathlib import Path
from typing import Literal

from segmeter.metrics.pixels.consensus import Consensus
from segmeter.schema import Config, Given, RuleError, rule


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
