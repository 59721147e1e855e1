"""Every figure of a case: of each measure that is registered, of the counts, and of each convention."""

import math
import types
import typing

import numpy as np

from segmeter.errors import InputError
from segmeter.metrics.config.conventions import CONVENTIONS
from segmeter.metrics.config.measures import MEASURES, SurfaceConfig
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.config.scores import find_direction
from segmeter.metrics.measures.protocol import build_measures, measure_case
from segmeter.metrics.measures.row import make_row
from segmeter.metrics.pixels.confusion import count_case
from segmeter.metrics.pixels.overlap import AGGREGATES, overlap_scores
from tests.metrics.build import score_under
from tests.metrics.laws.drawn import changed

SMALL = {  # limits that fit small maps
    "sizes": {"limits": (4, 12)},
    "lesions": {"dilation": 1, "least": 2.0},
    "surface": {"tolerances": (0.0, 1.0, 2.5)},
}
WIDTHS = (None, 1, 2, 3)
OF_COUNTS = (*AGGREGATES, "iou", "dice", "precision", "recall")


def configs(rng):
    """A configuration of each registered measure, its choices drawn from its schema."""
    return {name: drawn_config(rng, name) for name in MEASURES.names()}


def drawn_config(rng, name):
    schema = MEASURES.schema(name)
    values = dict(SMALL.get(name, {}))
    for field, info in schema.model_fields.items():
        choices = _choices(info.annotation)
        if field == "width":
            values[field] = WIDTHS[rng.integers(len(WIDTHS))]
        elif choices:
            values[field] = choices[rng.integers(len(choices))]
    return schema(**values)


def _choices(annotation):
    """The words and truth values that a field may have."""
    if annotation is bool:
        return [False, True]
    kind, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if kind is typing.Literal:
        return list(parts)
    if kind in (typing.Union, types.UnionType, typing.Annotated):
        return [choice for part in parts for choice in _choices(part)]
    return []


def groups_of(spec):
    return {"both": spec.names[1:3]} if spec.task == "multiclass" and spec.num_classes > 2 else {}


def built(config, spec, **options):
    return build_measures(MetricsConfig(measures=(config,), groups=groups_of(spec), **options), spec)


def figures(maps, chosen):
    """Figures by (measure, metric/region), of the case and of a data set that holds nothing else."""
    found = {}
    for name, config in chosen.items():
        measures = built(config, maps.spec)
        for key, value in figures_of(changed(maps), measures).items():
            found[name, key] = value
    return found | _of_counts(maps)


def figures_of(maps, measures):
    """Columns of a case, and the data set's scores; a measure may refuse a volume."""
    try:
        columns = measure_case(maps, measures)
    except InputError:
        if len(maps.shape) == 3:
            return {}
        raise
    found = {f"{one.metric}/{one.region}": one.value for one in columns if not one.summed}
    sums = {(one.metric, one.region): np.array([one.value]) for one in columns if one.summed}
    for measure in measures:
        for (metric, region), score in measure.summarise(sums).items():
            found[f"dataset:{metric}/{region}"] = float(score[0])
    return found


def _of_counts(maps):
    spec = maps.spec
    scores = overlap_scores(count_case(maps.target, maps.labels, spec), task=spec.task)
    found = {}
    for name in OF_COUNTS:
        values = np.atleast_1d(getattr(scores, name))
        regions = ("all",) if name in AGGREGATES else spec.names
        found |= {("counts", f"{name}/{region}"): float(v) for region, v in zip(regions, values, strict=True)}
    return found


def figures_under(maps, names=tuple(CONVENTIONS)):
    """The headline under each convention."""
    measures = (SurfaceConfig(surface="both"),)
    config = MetricsConfig(measures=measures, groups=groups_of(maps.spec), background=False)
    rows = [make_row(changed(maps), build_measures(config, maps.spec))]
    return {
        (f"convention {name}", f"{metric}/all"): value
        for name in names
        for metric, value in score_under(name, rows, maps.spec, config).items()
    }


def metric_of(key):
    """The metric's name, without the data set, its region, and its tolerance or size."""
    return key.removeprefix("dataset:").partition("/")[0].partition("@")[0]


def region_of(key):
    return key.rpartition("/")[2]


def direction_of(key):
    return find_direction(key.removeprefix("dataset:"))


def same(one, other):
    undefined = math.isnan(one) and math.isnan(other)
    return undefined or one == other or math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)


def better(key, before, after):
    """Whether a figure got better, or got out of the means by being undefined."""
    if math.isnan(after):
        return not math.isnan(before)
    if same(before, after):
        return False
    lower = direction_of(key) == "lower"
    if math.isnan(before):
        return after <= 1e-9 if lower else after > 1e-9
    return after < before if lower else after > before
