"""Defines the input and output of measures, which turn the maps of a case into columns of its row."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import ior
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected, require_kind, shown
from segmeter.classes import COUNTING_PLANES, ClassSpec
from segmeter.errors import InputError
from segmeter.metrics.arrays import FloatArray, check_ids, check_maps, validated_spacing
from segmeter.metrics.cases.table import ColumnKey, MeasureColumn, decode_key, encode_key
from segmeter.metrics.config.conventions import OURS
from segmeter.metrics.config.measures import MEASURES, MeasureConfig, SurfaceConfig
from segmeter.metrics.config.metrics import MetricsConfig, check_metrics, mean_classes

OBJECTS = "objects"  # Under this key of `CaseMaps.kept`, a measure leaves the rows of objects.parquet.

Name = tuple[str, str]  # metric, and class or group
Numbers = dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Region:
    """A class, or a group of classes that is measured as one. `members` are indices of classes."""

    name: str
    members: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class CaseMaps:
    """The maps of one case, as measures receive them.

    Measures get maps that contain only classes and the ignored value, because counting (`row.make_row`) has refused
    others. If the spec counts invalid values, the prediction may contain them.

    Parameters
    ----------
    case_id
        The case's name.
    target, labels : (H, W) or (D, H, W), for multilabel (K, H, W), integer
        Reference and prediction.
    spacing
        Pixel edge per spatial axis, in axis order; ones where it is unknown.
    spec
        The classes. Pixels that the target ignores are left out.
    target_instances, instances : as one plane of the maps, integer
        Objects of either map, if they are given instead of being its connected pixels; 0 is background.
    image : (H, W, C) or (H, W)
        The image that was segmented, if it is available.
    kept
        Intermediate results of one measure that others reuse.

    Raises
    ------
    InputError
        The maps differ in shape, one is not an array of integers, ids are negative, the spacing does not match the
        axes, or the spec is not a ClassSpec.
    """

    case_id: str
    target: NDArray[Any]
    labels: NDArray[Any]
    spacing: tuple[float, ...]
    spec: ClassSpec
    target_instances: NDArray[Any] | None = None
    instances: NDArray[Any] | None = None
    image: NDArray[Any] | None = None
    kept: dict[Any, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        where = f"case {self.case_id}"
        require_kind(where, "spec", self.spec, ClassSpec)
        multilabel = self.spec.task == "multilabel"
        axes = (3, 4) if multilabel else (2, 3)
        check_maps(where, self.target, self.labels, "labels", kinds="iub", axes=axes)
        plane = self.target[0] if multilabel else self.target
        validated_spacing(where, self.spacing, plane.ndim)
        for name, numbers in (("target_instances", self.target_instances), ("instances", self.instances)):
            if numbers is not None:
                check_maps(where, plane, numbers, name, kinds="iub", axes=(2, 3))
                check_ids(where, name, numbers)

    @property
    def shape(self) -> tuple[int, ...]:
        """(H, W), or (D, H, W) of a volume."""
        return self.target.shape[1:] if self.spec.task == "multilabel" else self.target.shape

    def passes(
        self, regions: Sequence[Region]
    ) -> Iterator[tuple[NDArray[Any], NDArray[Any], dict[str, Any], list[tuple[Region, int]]]]:
        """Yield target and labels: once for all regions that are single classes, then the planes of each other region.

        Each pass also gives the number of classes and the ignored value of these maps, and the class of each region.
        """
        only_classes = not self.spec.is_multilabel and not self.spec.count_invalid
        single = [(region, region.members[0]) for region in regions if only_classes and len(region.members) == 1]
        if single:
            yield self.target, self.labels, self.spec.counting, single
        for region in regions:
            if (region, region.members[0]) not in single:
                yield *self.planes(region), COUNTING_PLANES, [(region, 1)]

    def planes(self, region: Region) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Return target and labels of a region: 1 inside, 0 outside, and in the target 2 for ignored pixels."""
        target, labels, members = self.target, self.labels, region.members
        if self.spec.task == "multilabel":
            target, labels, members = target[members[0]], labels[members[0]], (1,)
        target_plane, labels_plane = (
            reduce(ior, (class_map == member for member in members)).astype(np.uint8) for class_map in (target, labels)
        )
        target_plane[self.spec.is_ignored(target)] = 2
        return target_plane, labels_plane

    def masks(self, region: Region) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return target and labels of a region as masks; ignored pixels are in neither."""
        target, labels = self.planes(region)
        return target == 1, (labels == 1) & (target != 2)


@runtime_checkable
class Measure(Protocol):
    """Measures one case."""

    def __call__(self, maps: CaseMaps) -> Iterable[MeasureColumn]:
        """Measure a case. Each column comes at most once."""

    def summarise(self, sums: Mapping[Name, FloatArray]) -> Mapping[Name, FloatArray]:
        """Turn sums over cases into scores of the whole data set; both are named by (metric, region).

        Every value is an array (R,), one per resample, so that the results get intervals like everything else.
        """


@dataclass(frozen=True)
class RegionMeasure:
    """Base of the built-in measures, which the registry builds from their settings.

    A subclass defines `case`, or `measure` if one pass serves several regions. If its sums give scores of the data set,
    it also defines `dataset_scores` and these two names:

    * `region_marker_sums`: a region has scores of the data set if it has one of these sums (named without "@...").
    * `scores_also_per_case`: those of the `dataset_scores` that each case gets too, as if it were the data set.
    """

    config: Any
    spec: ClassSpec = field(kw_only=True)
    regions: tuple[Region, ...] = field(kw_only=True)
    region_marker_sums: ClassVar[tuple[str, ...]] = ()
    scores_also_per_case: ClassVar[tuple[str, ...]] = ()

    def __call__(self, maps: CaseMaps) -> Iterable[MeasureColumn]:
        for region, values, sums in self.measure(maps):
            scores: dict[str, FloatArray] = {}
            if self.scores_also_per_case:
                alone = {name: np.array([value], np.float64) for name, value in sums.items()}
                scores = self.dataset_scores(alone, region.name)
            for metric, value in ({name: scores[name][0] for name in self.scores_also_per_case} | values).items():
                yield MeasureColumn(metric, region.name, float(value))
            for metric, value in sums.items():
                yield MeasureColumn(metric, region.name, float(value), summed=True)

    def measure(self, maps: CaseMaps) -> Iterator[tuple[Region, Numbers, Numbers]]:
        """Yield each region with its values and its sums by metric."""
        for region in self.regions:
            yield region, *self.case(maps, region)

    def case(self, maps: CaseMaps, region: Region) -> tuple[Numbers, Numbers]:
        """Measure one region: values of the case, and sums over cases, by metric."""
        raise NotImplementedError

    def dataset_scores(self, sums: Mapping[str, FloatArray], region: str) -> dict[str, FloatArray]:
        """Compute the scores of the data set for one region from its sums over cases."""
        raise NotImplementedError

    def summarise(self, sums: Mapping[Name, FloatArray]) -> dict[Name, FloatArray]:
        scores: dict[Name, FloatArray] = {}
        marked = [where for metric, where in sums if metric.partition("@")[0] in self.region_marker_sums]
        for region in dict.fromkeys(marked):
            region_sums = {metric: total for (metric, where), total in sums.items() if where == region}
            region_scores = self.dataset_scores(region_sums, region)
            scores |= {(name, region): score for name, score in region_scores.items()}
        return scores


def build_measures(config: MetricsConfig, spec: ClassSpec) -> tuple[Measure, ...]:
    """Build the measures of a configuration.

    A custom measure registers its schema, derived from `MeasureConfig`, with `MEASURES`; its builder is called as
    ``build(config, spec=ClassSpec, regions=tuple of Region)``.

    Raises
    ------
    ConfigError
        As `check_metrics`.
    """
    check_metrics(config, spec)
    settings = config.measures
    if config.convention != OURS.name:  # the conventions differ in their surfaces
        settings = tuple(one.replace(surface="both") if isinstance(one, SurfaceConfig) else one for one in settings)
    return tuple(MEASURES.build(one, spec=spec, regions=find_regions(one, config, spec)) for one in settings)


def find_regions(measure: MeasureConfig, config: MetricsConfig, spec: ClassSpec) -> tuple[Region, ...]:
    """List the classes to measure, then the groups."""
    names = measure.classes
    if names is None:
        indices = [1] if spec.task == "binary" else mean_classes(config, spec)
        names = tuple(spec.names[k] for k in indices)
    groups = {name: (name,) for name in names} | config.groups
    return tuple(
        Region(name=name, members=tuple(spec.names.index(member) for member in members))
        for name, members in groups.items()
    )


def measure_case(maps: CaseMaps, measures: Sequence[Measure]) -> tuple[MeasureColumn, ...]:
    """Apply all measures to one case. The result becomes `CaseRow.measured`.

    Raises
    ------
    InputError
        A measure refuses the maps (the lines name the case), or returns something other than columns, a column twice,
        or a sum that is not finite.
    """
    measured: dict[ColumnKey, MeasureColumn] = {}
    for measure in measures:
        try:
            columns = list(measure(maps))
        except InputError as error:
            raise InputError([f"{maps.case_id}: {line}" for line in error.problems]) from error
        for column in columns:
            if not isinstance(column, MeasureColumn):
                rule = "to give MeasureColumn(metric, region, value, summed)"
                raise InputError(expected("measure_case", "measures", rule, shown(column)))
            name = encode_key(column.key)
            is_allowed = math.isfinite(column.value) or not column.summed
            if column.key in measured or decode_key(name) != column.key or not is_allowed:
                rule = "to give each column once, without '/' and 'sum:' in the metric, and finite sums"
                raise InputError(expected("measure_case", "measures", rule, f"{column.value} for {name}"))
            measured[column.key] = column._replace(value=float(column.value))
    return tuple(measured.values())
