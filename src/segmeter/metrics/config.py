"""What is measured, and how its uncertainty is found; no torch, no heavy import."""

import re
from dataclasses import dataclass, field
from typing import Literal

from segmeter.checks import collecting, expected, nearest
from segmeter.errors import ConfigError
from segmeter.vocabulary import ClassSpec

CONVENTIONS = ("segmeter",)


@dataclass(frozen=True, kw_only=True)
class MetricsConfig:
    """How the rows of counts become a summary.

    Parameters
    ----------
    convention
        Whose definitions the figures follow.
    background
        Whether class 0 counts in the means over classes; every class does for multilabel.
    groups
        Name of a region to the names of the classes that are scored as one; not for multilabel.
    bootstrap
        Resamples behind each interval; 0 leaves the intervals out.
    interval
        "bca" (bias-corrected and accelerated) or "percentile".
    cluster
        A regular expression; cases whose ids agree in what it captures are resampled together.
    seed
        Of the resampling.

    Raises
    ------
    ConfigError
        With every value that is out of range.
    """

    convention: str = "segmeter"
    background: bool = True
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    bootstrap: int = 10_000
    interval: Literal["bca", "percentile"] = "bca"
    cluster: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        with collecting("metrics") as problems:
            problems.one_of("convention", self.convention, CONVENTIONS)
            problems.one_of("interval", self.interval, ("bca", "percentile"))
            problems.in_range("bootstrap", self.bootstrap, 0, 1_000_000)
            problems.in_range("seed", self.seed, 0)
            for name, members in self.groups.items():
                distinct = bool(members) and len(set(members)) == len(members)
                problems.expect(distinct, f"groups.{name}", "to name one or more distinct classes", list(members))
            problems.expect(_captures(self.cluster), "cluster", "to be a regular expression with a group", self.cluster)


def _captures(pattern: str | None) -> bool:
    try:
        return pattern is None or re.compile(pattern).groups > 0
    except re.error:
        return False


def check_metrics(config: MetricsConfig, spec: ClassSpec) -> None:
    """Refuse groups that the classes do not have; call it before the first case, not after the last.

    Raises
    ------
    ConfigError
        With every problem.
    """
    problems = []
    if config.groups and spec.task == "multilabel":
        problems.append(expected("metrics", "groups", "to be empty for a multilabel task", list(config.groups)))
    for group, members in config.groups.items():
        unknown = [name for name in members if name not in spec.names]
        problems += [
            expected("metrics", f"groups.{group}", "to name classes", repr(name), nearest(name, spec.names))
            for name in unknown
        ]
    if problems:
        raise ConfigError(problems)
