"""Settings of measures and summaries, conventions in words, the grammar of requirements, and which way is better."""

import math
import re
from dataclasses import fields, replace
from typing import get_args, get_type_hints

import numpy as np
import pytest

from segmeter.errors import ConfigError
from segmeter.metrics.config.conventions import CONVENTIONS, OURS, Convention, differences
from segmeter.metrics.config.measures import (
    MEASURES,
    AveragePrecisionConfig,
    BoundaryConfig,
    InstancesConfig,
    LesionsConfig,
    SizesConfig,
    SurfaceConfig,
)
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.config.scores import RULE, SUFFIXES, RequireConfig, find_direction, parse_requirements
from segmeter.metrics.distances import SurfaceKind
from segmeter.metrics.measures.protocol import Measure, build_measures, measure_case
from segmeter.metrics.statistics.clusters import CLUSTER_RULE
from tests.metrics.build import BINARY, maps_of


@pytest.mark.parametrize(
    ("schema", "values", "message"),
    [
        (SurfaceConfig, {"tolerances": ()}, "`tolerances` to be a list, each a number >= 0, of length >= 1"),
        (SurfaceConfig, {"tolerances": (1, -1)}, "`tolerances[1]` to be a number >= 0, got -1"),
        (SurfaceConfig, {"penalty": -1}, "`penalty` to be one of inf, diagonal, nan or a number >= 0, got -1"),
        (SurfaceConfig, {"penalty": "max"}, "`penalty` to be one of inf"),
        (SurfaceConfig, {"surface": "C"}, "`surface` to be one of"),
        (BoundaryConfig, {"width": 0}, "`width` to be an integer >= 1"),
        (BoundaryConfig, {"ratio": 0}, "`ratio` to be a number > 0"),
        (InstancesConfig, {"threshold": 1.0}, "`threshold` to be a number >= 0 and < 1"),
        (InstancesConfig, {"connectivity": 6}, "`connectivity` to be one of 8, 4, got 6"),
        (InstancesConfig, {"objects": "files"}, "`objects` to be one of"),
        (AveragePrecisionConfig, {"thresholds": (0.3, 0.5)}, "`thresholds[0]` to be a number >= 0.5"),
        (AveragePrecisionConfig, {"thresholds": ()}, "`thresholds` to be a list"),
        (SizesConfig, {"limits": (1, 2, 3)}, "`limits` to be a list of 1, each an integer >= 1 or a list of 2"),
        (LesionsConfig, {"conventions": ("picia",)}, "Did you mean 'picai'"),
        (MetricsConfig, {"convention": "segmetr"}, "`convention` to be one of segmeter, mmseg, "),
        (MetricsConfig, {"convention": "segmetr"}, "Did you mean 'segmeter'"),
        (MetricsConfig, {"bootstrap": -1}, "`bootstrap` to be an integer >= 0"),
        (MetricsConfig, {"bootstrap": 2_000_000}, "<= 1000000"),
        (MetricsConfig, {"seed": -1}, "`seed` to be an integer >= 0"),
        (MetricsConfig, {"interval": "basic"}, "`interval` to be one of expanded, bca, percentile"),
        (MetricsConfig, {"cluster": "p["}, f"`cluster` {CLUSTER_RULE}"),
        (MetricsConfig, {"groups": {"x": ()}}, "`groups.x` to be a list, each text, of length >= 1"),
        (MetricsConfig, {"spacing": (1.0, 0.0)}, "`spacing` to be a list of 2, each a number > 0 or a list of 3"),
    ],
)
def test_settings_out_of_range_are_refused(schema, values, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        schema(**values)


def test_infinite_and_undefined_penalties_are_words():
    assert [SurfaceConfig(penalty=number).penalty for number in (math.nan, math.inf, 3.5)] == ["nan", "inf", 3.5]


def test_one_list_of_surfaces():
    kinds = get_args(SurfaceKind)
    assert tuple(SUFFIXES) == kinds
    assert len(set(SUFFIXES.values())) == len(kinds)
    assert get_args(get_type_hints(SurfaceConfig)["surface"]) == (*kinds, "both")
    assert {convention.surface for convention in CONVENTIONS.values()} == set(kinds)


def test_every_choice_of_a_convention_is_in_its_hash():
    assert len({convention.hash for convention in CONVENTIONS.values()}) == len(CONVENTIONS)
    for field in fields(Convention):
        assert replace(OURS, **{field.name: "other"}).hash != OURS.hash, field.name
    assert replace(OURS).hash == OURS.hash


def test_what_differs_is_said_of_every_other_convention():
    assert differences(OURS, background=False) == []
    assert differences(CONVENTIONS["mmseg"], background=False) == ["with background"]
    assert differences(CONVENTIONS["brats"], surfaces=False, groups=False) == [
        "mean per class, then over classes",
        "without background",
        "both sides empty: Dice 1",
    ]
    for name in CONVENTIONS.keys() - {"segmeter", "mmseg", "cityscapes", "torchmetrics-jaccard", "hf-evaluate"}:
        assert differences(CONVENTIONS[name]), name


@pytest.mark.parametrize(
    ("text", "metric", "factor", "offset", "at_least"),
    [
        ("mean_iou >= base - 0.005", "mean_iou", 1, -0.005, True),
        ("mean_iou>=base", "mean_iou", 1, 0, True),
        ("hd95/mean <= base + 1.5e-1", "hd95/mean", 1, 0.15, False),
        ("iou/Road Marking >= .7", "iou/Road Marking", 0, 0.7, True),
        ("nsd@2/car >= base * 0.98 - .01", "nsd@2/car", 0.98, -0.01, True),
        ("score/a-b >= -2", "score/a-b", 0, -2, True),
    ],
)
def test_requirements_are_read(text, metric, factor, offset, at_least):
    (one,) = parse_requirements([text])
    assert (one.metric, one.factor, one.offset, one.at_least) == (metric, factor, offset, at_least)
    assert (one.slice, one.per_case) == (None, False)
    assert parse_requirements([str(one)]) == [one]


def test_slices_means_over_cases_and_several_in_one_text():
    first, second = parse_requirements(["per_case(mean_iou)[ward = B 2] >= 0.5; iou/*[ward=*] >= base"])
    assert (first.metric, first.per_case, first.slice) == ("mean_iou", True, ("ward", "B 2"))
    assert str(first) == "per_case(mean_iou)[ward=B 2] >= 0.5"
    assert (second.metric, second.slice) == ("iou/*", ("ward", "*"))


UNREADABLE = ("mean_iou", "mean_iou > base", "mean_iou => base", "mean_iou >= base - 2%", "0.5 <= mean_iou <= 0.9", "")
UNREADABLE += ("mean_iou >= other - 0.1", "mean_iou >= base / 2", ">= 0.5", "mean_iou >= 1_000", "mean_iou >= nan")


@pytest.mark.parametrize("text", [*UNREADABLE, "mean_iou >= __import__('os').getcwd()"])
@pytest.mark.parametrize("read", [lambda text: parse_requirements([text]), lambda text: RequireConfig(require=text)])
def test_what_cannot_be_read_is_refused_with_what_is_meant(read, text):
    with pytest.raises(ConfigError, match=re.escape(f"{RULE}, got {text!r}.")):
        read(text)


def test_every_unreadable_one_is_named_at_once():
    with pytest.raises(ConfigError) as caught:
        parse_requirements(["a > 1; b >= base", "c < 2"])
    assert [line.partition(", got ")[2] for line in caught.value.problems] == ["'a > 1'.", "'c < 2'."]


FURTHER = {"surface": {"surface": "both"}, "instances": {"distances": True}}
EVERY = tuple(MEASURES.schema(name)(**FURTHER.get(name, {})) for name in MEASURES.names())
LOWER = {"hd", "hd95", "hd95_pooled", "assd", "masd", "object_masd", "fp", "fn", "object_fp", "object_fn"}
LOWER |= {f"objects_{name}" for name in ("missed", "spurious", "split", "part", "merged", "merging")}
LOWER |= {f"{kind}_{what}" for kind in ("boundary", "extent", "segment") for what in ("errors", "gain")}
LOWER |= {"voi", "voi_split", "voi_merge", "are", "betti0_error", "betti1_error", "euler_error"}
LOWER |= {"brats_hd95", "brats_fp", "brats_fn", "picai_fp", "picai_fn", "autopet_fp_volume", "autopet_fn_volume"}


def test_every_measure_has_its_own_name_and_every_metric_a_direction_but_facts_of_the_case():
    assert [config.name for config in EVERY] == list(MEASURES.names())
    measures, target = build_measures(MetricsConfig(measures=EVERY), BINARY), np.eye(9, dtype=np.uint8)
    assert all(isinstance(measure, Measure) for measure in measures)
    columns = measure_case(maps_of(target, target), measures)
    sums = {(one.metric, one.region): np.array([one.value]) for one in columns if one.summed}
    metrics = {one.metric for one in columns if not one.summed} - {"object_size", "touches_border"}
    metrics |= {metric for measure in measures for metric, _ in measure.summarise(sums)}
    assert len(metrics) > 20
    for metric in metrics:
        wanted = "lower" if metric.partition("@")[0].removesuffix("_marching_cubes") in LOWER else "higher"
        assert find_direction(f"{metric}/road") == wanted, metric


@pytest.mark.parametrize("metric", ["area/cell", "object_tp/cell", "hd95x/cell", "hd95_b/cell", ""])
def test_nothing_is_guessed_of_another(metric):
    assert find_direction(metric) is None
