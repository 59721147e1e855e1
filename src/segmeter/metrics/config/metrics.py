"""Declares the settings of the summary: measures, groups, slices and intervals. Imports nothing heavy."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from segmeter.checks import expected, nearest
from segmeter.classes import BACKGROUNDS, ClassSpec, Task
from segmeter.errors import ConfigError
from segmeter.metrics.config.conventions import ALL, CONVENTIONS
from segmeter.metrics.config.measures import MEASURES as MEASURES
from segmeter.metrics.config.measures import InstancesConfig, ObjectsConfig
from segmeter.metrics.config.scores import MEAN
from segmeter.metrics.statistics.clusters import CLUSTER_RULE, is_cluster
from segmeter.metrics.statistics.columns import Interval
from segmeter.schema import Component, Config, Given, OneOf, RuleError, Unit, rule

Edge = Annotated[float, Unit("unit of the distances"), Field(gt=0)]


class MetricsConfig(Config, title="metrics"):
    """The way rows of counts become a summary, and what to measure in addition to the counts."""

    convention: Annotated[str, OneOf(*CONVENTIONS, ALL)] = "segmeter"
    """The tool whose definitions the headline metrics follow; "all" shows them under every convention. The rows of a
    run are the same under all of them; see docs/why-tools-differ.md."""
    headline: str | None = None
    """The score that a run is judged by, which leads tables, pictures, rankings and sweeps. Give mean_iou, iou/car, or
    a score of `measures` such as hd95/lesion. With null, it is PQ where the measure "instances" matches objects, the
    object's IoU for a binary task or the two classes [background, NAME], else mean_iou."""
    background: bool = True
    """Whether class 0 counts in means over classes (mmseg, Cityscapes) or not (nnU-Net). Every class of a multilabel
    task counts."""
    groups: dict[str, Annotated[tuple[str, ...], Field(min_length=1)]] = Field(default_factory=dict)
    """Classes that are scored as one region, by the region's name: {vehicles: [Car, Bicyclist]}; not for multilabel."""
    bootstrap: Annotated[int, Unit("resamples")] = Field(10_000, ge=0, le=1_000_000)
    """Resamples for each 95 % interval; 0 leaves intervals out. Fewer than about 1000 make them too narrow."""
    interval: Interval = "expanded"
    """How intervals are computed: "expanded" (percentiles with Student's tails and bias correction), "bca"
    (bias-corrected and accelerated) or "percentile". docs/statistics.md shows how often each contains the true
    value."""
    cluster: str | None = None
    """Cases to resample together because they are not independent, such as slices of a patient or frames of a sequence.
    With "prefix:_", cases with the same text before the last "_" of their id are joined, and with "prefix:8" those with
    the same first 8 characters. With "pair", the two sides of a patient are joined, such as Image_01L and Image_01R.
    With "TABLE.csv:COLUMN", cases with the same value in a table whose column case_id names them are joined. A regular
    expression joins cases whose groups match."""
    slices: str | None = None
    """Table of facts about the cases, TABLE.csv or TABLE.parquet; its column case_id names the cases; null for none."""
    slice_by: tuple[str, ...] = ()
    """Subsets of the cases to score, each compared with the other cases. Give columns of `slices`, or anything that
    `cluster` accepts. With share/car, the cases are sliced by how much of the image a class takes. With the measure
    "content" there are object_size/car, touches_border/car, and brightness if there are images. With thirds(dose), a
    column of numbers is cut into three equal parts."""
    seed: int = Field(0, ge=0)
    """Seed of the resampling."""
    measures: tuple[Annotated[Any, Component(MEASURES)], ...] = ()
    """Measures to take of each case in addition to its counts, each once: [surface, boundary], or
    [{name: surface, tolerances: [1, 2]}]."""
    spacing: tuple[Edge, Edge] | tuple[Edge, Edge, Edge] | None = None
    """Pixel edge per axis, for files that don't state it: [0.5, 0.5]; null counts pixels."""
    calibration: bool = False
    """Whether to measure probabilities too: calibration and every threshold. They are copied to the host for that."""

    @rule("cluster")
    def _check_cluster(cls, cluster: str | None, given: Given) -> None:
        if not is_cluster(cluster):
            raise RuleError(CLUSTER_RULE)


DEFAULT = MetricsConfig()


def check_metrics(config: MetricsConfig, spec: ClassSpec) -> None:
    """Refuse groups and measures of unknown classes, or named twice. Call this before the first case is measured.

    Raises
    ------
    ConfigError
        Lists every problem.
    """
    problems = []
    if config.groups and spec.task == "multilabel":
        problems.append(expected("metrics", "groups", "to be empty for a multilabel task", list(config.groups)))
    if config.slices and not config.slice_by:
        problems.append(expected("metrics", "slice_by", "to name columns of metrics.slices", []))
    classes_by_key = {f"groups.{group}": members for group, members in config.groups.items()}
    classes_by_key |= {f"measures.{measure.name}.classes": measure.classes or () for measure in config.measures}
    for key, classes in classes_by_key.items():
        unknown = [name for name in classes if name not in spec.names]
        problems += [
            expected("metrics", key, "to name classes", repr(name), nearest(name, spec.names)) for name in unknown
        ]
    for key, names in (classes_by_key | {"measures": [measure.name for measure in config.measures]}).items():
        if len(set(names)) < len(names):
            problems.append(expected("metrics", key, "to name each once", list(names)))
    taken = [name for name in (*(["mean"] if config.measures else []), *config.groups) if name in spec.names]
    problems += [
        expected("metrics", "groups", f"to have classes of other names than {name!r}", list(spec.names))
        for name in taken
    ]
    if problems:
        raise ConfigError(problems)


def with_objects(config: MetricsConfig) -> MetricsConfig:
    """Add the measure "instances", which masks that number objects call for, unless objects are measured already."""
    if any(isinstance(measure, ObjectsConfig) for measure in config.measures):
        return config
    return config.replace(measures=(*config.measures, InstancesConfig()))


def has_one_object(task: Task, names: Sequence[str]) -> bool:
    """Tell whether class 1 is an object and class 0 all the rest: a binary task, or two classes with a background."""
    return task == "binary" or (task == "multiclass" and len(names) == 2 and names[0].casefold() in BACKGROUNDS)


def choose_headline(task: Task, names: Sequence[str], *, objects: bool, given: str | None = None) -> str:
    """Choose the score that a run is judged by. Everything that needs a headline gets it from here.

    Parameters
    ----------
    task, names
        As in a `ClassSpec`.
    objects
        Whether objects are matched, so that there is PQ.
    given
        The name that `MetricsConfig.headline` sets.

    Examples
    --------
    >>> choose_headline("binary", ("ground", "cell"), objects=False), choose_headline("multiclass", "abc", objects=True)
    ('iou/cell', 'pq/mean')
    >>> choose_headline("multiclass", ("background", "vessel"), objects=False)
    'iou/vessel'
    """
    if given is not None:
        return given
    if objects:
        return f"pq/{names[1]}" if task == "binary" else f"pq/{MEAN}"
    return f"iou/{names[1]}" if has_one_object(task, names) else "mean_iou"  # background would give half of the mean


def headline_of(config: MetricsConfig, spec: ClassSpec) -> str:
    """Return the headline of a run with this configuration."""
    matching = [measure for measure in config.measures if isinstance(measure, InstancesConfig)]
    objects = any(not measure.classes or set(measure.classes) & set(spec.names[1:]) for measure in matching)
    return choose_headline(spec.task, spec.names, objects=objects, given=config.headline)


def mean_classes(config: MetricsConfig, spec: ClassSpec) -> list[int]:
    """Return the indices of the classes that means run over."""
    first = 0 if config.background or spec.task == "multilabel" else 1
    return list(range(first, spec.num_classes))
