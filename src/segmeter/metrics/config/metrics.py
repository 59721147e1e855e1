"""What is measured, and how its uncertainty is found; no torch, no heavy import."""

import math
from dataclasses import dataclass, field
from typing import Any

from segmeter.checks import collecting, expected, nearest
from segmeter.classes import ClassSpec
from segmeter.errors import ConfigError
from segmeter.metrics.config.conventions import ALL, CONVENTIONS
from segmeter.metrics.config.measures import MEASURES as MEASURES
from segmeter.metrics.statistics.clusters import CLUSTER_RULE, is_cluster
from segmeter.metrics.statistics.clusters import check_clusters as check_clusters
from segmeter.metrics.statistics.intervals import INTERVALS, Interval


@dataclass(frozen=True, kw_only=True)
class MetricsConfig:
    """How the rows of counts become a summary.

    Parameters
    ----------
    convention
        Whose definitions the headline figures follow: one of `CONVENTIONS`, or "all" to see how they move from ours to
        each other. What is kept of each case is the same under all of them.
    background
        Whether class 0 counts in the means over classes; every class does for multilabel.
    groups
        Name of a region to the names of the classes that are scored as one; not for multilabel.
    bootstrap
        Resamples behind each interval; 0 leaves the intervals out. Below about 1000 they are too narrow.
    interval
        "expanded" (percentiles with Student's tails and bias correction), "bca" (bias-corrected and accelerated) or
        "percentile"; how often each holds the true value is in docs/statistics.md.
    cluster
        Which cases are no independent units, such as slices of a patient or frames of a sequence, and are resampled
        together: "prefix:_" (same text before the last "_" of the case id), "TABLE.csv:COLUMN" (same value there; its
        column case_id names the cases), or a regular expression (same text in its groups).
    seed
        Of the resampling.
    measures
        What is measured of each case beside its counts: measure configurations, each chosen by its `name`, none twice.
    spacing
        Pixel edge per axis, in the unit that distances shall have, for files that do not say it; None counts pixels.
    calibration
        Whether probabilities are measured too, where a model gives them.

    Raises
    ------
    ConfigError
        With every value that is out of range.
    """

    convention: str = "segmeter"
    background: bool = True
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    bootstrap: int = 10_000
    interval: Interval = "expanded"
    cluster: str | None = None
    seed: int = 0
    measures: tuple[Any, ...] = field(default=(), metadata={"registry": MEASURES})
    spacing: tuple[float, ...] | None = None
    calibration: bool = False

    def __post_init__(self) -> None:
        with collecting("metrics") as problems:
            problems.one_of("convention", self.convention, (*CONVENTIONS, ALL))
            problems.one_of("interval", self.interval, INTERVALS)
            problems.in_range("bootstrap", self.bootstrap, 0, 1_000_000)
            problems.in_range("seed", self.seed, 0)
            for name, members in self.groups.items():
                distinct = bool(members) and len(set(members)) == len(members)
                problems.expect(distinct, f"groups.{name}", "to name one or more distinct classes", list(members))
            problems.expect(is_cluster(self.cluster), "cluster", CLUSTER_RULE, self.cluster)
            names = [measure.name for measure in self.measures]
            problems.expect(len(set(names)) == len(names), "measures", "to name each measure once", names)
            ok = self.spacing is None or (len(self.spacing) in (2, 3) and all(0 < e < math.inf for e in self.spacing))
            problems.expect(ok, "spacing", "to be null or 2 or 3 numbers > 0, one per axis", self.spacing)


def check_metrics(config: MetricsConfig, spec: ClassSpec) -> None:
    """Refuse groups and measures of classes that there are not; call it before the first case, not after the last.

    Raises
    ------
    ConfigError
        With every problem.
    """
    problems = []
    if config.groups and spec.task == "multilabel":
        problems.append(expected("metrics", "groups", "to be empty for a multilabel task", list(config.groups)))
    wanted = {f"groups.{group}": members for group, members in config.groups.items()}
    wanted |= {f"measures.{measure.name}.classes": measure.classes or () for measure in config.measures}
    for key, members in wanted.items():
        unknown = [name for name in members if name not in spec.names]
        problems += [
            expected("metrics", key, "to name classes", repr(name), nearest(name, spec.names)) for name in unknown
        ]
    taken = [name for name in ("mean", *config.groups) if config.measures and name in spec.names]
    problems += [
        expected("metrics", "measures", f"to have classes of other names than {name!r}", list(spec.names))
        for name in taken
    ]
    if problems:
        raise ConfigError(problems)


def mean_classes(config: MetricsConfig, spec: ClassSpec) -> list[int]:
    """Indices of the classes that means run over."""
    first = 0 if config.background or spec.task == "multilabel" else 1
    return list(range(first, spec.num_classes))
