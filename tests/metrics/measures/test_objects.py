"""Measures of objects by hand; `test_void.py` compares them with plain loops."""

import numpy as np
import pytest

from segmeter.errors import ConfigError, InputError
from segmeter.metrics.config.measures import (
    AjiConfig,
    AveragePrecisionConfig,
    InstanceIouConfig,
    InstancesConfig,
    SizesConfig,
)
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.measures.objects import number_objects
from segmeter.metrics.measures.protocol import CaseMaps, build_measures
from segmeter.metrics.measures.row import make_row
from segmeter.metrics.summary.summarise import summarise
from tests.metrics.build import BINARY, class_spec, maps_of
from tests.metrics.build import measured as measured_by


def measured(config, maps):
    return measured_by((config,), maps, background=False)


def whole(config, *cases):
    """The scores of several cases together."""
    metrics = MetricsConfig(measures=(config,), background=False, bootstrap=0)
    measures = build_measures(metrics, BINARY)
    rows = [make_row(maps_of(*pair, case_id=str(i)), measures) for i, pair in enumerate(cases)]
    found = summarise(rows, BINARY, metrics)["measures"]
    return {name: {kind: entry["road"].get(kind) for kind in ("dataset", "mean")} for name, entry in found.items()}


# three objects of 4, 2 and 5 pixels; found: 3 of the 4, nothing, all 5; and one that is not there
TARGET = np.array([[1, 1, 1, 1, 0, 1, 1, 0, 1, 1, 1, 1, 1, 0, 0, 0]], np.uint8)
LABELS = np.array([[1, 1, 1, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 0, 1, 1]], np.uint8)


def test_instances_by_hand():
    found = measured(InstancesConfig(), maps_of(TARGET, LABELS))
    # IoU 3/4 and 1; one missed, one spurious: objects = 2 + 1/2 + 1/2
    assert found == {
        "pq/road": 1.75 / 3,
        "sq/road": 0.875,
        "rq/road": 2 / 3,
        "object_dice/road": (6 / 7 + 1) / 2,
        "sum:instances_dice/road": 6 / 7 + 1,
        "sum:instances_tp/road": 2.0,
        "sum:instances_fp/road": 1.0,
        "sum:instances_fn/road": 1.0,
        "sum:instances_iou/road": 1.75,
    }


def test_average_precision_by_hand():
    found = measured(AveragePrecisionConfig(thresholds=(0.5, 0.75, 0.9)), maps_of(TARGET, LABELS))
    # above 0.5 both match: 2 / (2 + 1 + 1); above 0.75 and 0.9 only the perfect one: 1 / (1 + 2 + 2)
    assert found["ap/road"] == pytest.approx((2 / 4 + 1 / 5 + 1 / 5) / 3, rel=1e-12)
    ap = whole(AveragePrecisionConfig(thresholds=(0.5, 0.75)), (TARGET, LABELS), (TARGET, TARGET))
    assert (ap["ap@0.5"]["dataset"], ap["ap@0.75"]["dataset"]) == (5 / (6 + 6 - 5 + 0), 4 / 8)
    assert ap["ap"]["dataset"] == pytest.approx((5 / 7 + 4 / 8) / 2, rel=1e-12)


def test_aji_by_hand():
    # 3 + 5 pixels are common; unions 4 and 5, the missed 2, the spurious 2
    assert measured(AjiConfig(), maps_of(TARGET, LABELS))["aji/road"] == 8 / 13


def test_sizes_by_hand():
    # small is below 5 pixels: 4 found, 2 missed, 2 spurious; large: 5 found
    found = whole(SizesConfig(limits=(5,)), (TARGET, LABELS))
    wanted = {"recall@small": 0.5, "f1@small": 2 / (2 + 1 + 1), "recall@large": 1.0, "fn@small": 1, "fp@small": 1}
    assert {name: found[f"object_{name}"]["dataset"] for name in wanted} == wanted
    three = whole(SizesConfig(limits=(3, 5)), (TARGET, LABELS))
    assert [three[f"object_recall@{size}"]["dataset"] for size in ("small", "medium")] == [0, 1]


def test_scores_of_the_data_set_come_from_summed_objects():
    found = whole(InstancesConfig(), (TARGET, LABELS), (TARGET, TARGET))
    assert [found[name]["dataset"] for name in ("tp", "fp", "fn")] == [5.0, 1.0, 1.0]
    assert found["pq"] == pytest.approx({"dataset": (1.75 + 3) / 6, "mean": (1.75 / 3 + 1) / 2}, rel=1e-12)
    assert found["sq"]["dataset"] == pytest.approx(4.75 / 5, rel=1e-12)


@pytest.mark.parametrize("config", [InstancesConfig(), AveragePrecisionConfig(), AjiConfig()], ids=lambda c: c.name)
def test_empty_cases_are_undefined_and_misses_are_0(config):
    metric = {"instances": "pq", "average_precision": "ap", "aji": "aji"}[config.name]
    nothing = np.zeros_like(TARGET)
    pairs = (nothing, nothing), (TARGET, nothing), (nothing, TARGET), (TARGET, TARGET)
    found = [measured(config, maps_of(*pair))[f"{metric}/road"] for pair in pairs]
    np.testing.assert_equal(found, [np.nan, 0.0, 0.0, 1.0])


def test_touching_corners_are_one_object_or_two():
    target = np.eye(4, dtype=np.uint8)
    assert number_objects([target > 0], None, 8).max() == 1
    assert number_objects([target > 0], None, 4).max() == 4
    assert measured(InstancesConfig(connectivity=4), maps_of(target, target))["sum:instances_tp/road"] == 4.0


def test_instance_maps_tell_touching_objects_apart():
    target = np.ones((4, 8), np.uint8)
    split = np.repeat([[3, 9]], 4, axis=1) * np.ones((4, 1), np.int64)
    maps = maps_of(target, target, target_instances=split, instances=split)
    assert measured(InstancesConfig(), maps)["sum:instances_tp/road"] == 2.0
    assert measured(InstancesConfig(objects="components"), maps)["sum:instances_tp/road"] == 1.0
    one_side = maps_of(target, target, instances=split)
    found = measured(InstancesConfig(), one_side)
    assert [found[f"sum:instances_{name}/road"] for name in ("tp", "fp", "fn")] == [0.0, 2.0, 1.0]


def test_regions_of_one_name_are_told_apart_by_their_classes():
    """What is kept of a case was found by the region's name, and another group of that name took it."""
    spec = class_spec(4)
    maps = maps_of(np.array([[1, 1, 0, 2, 2, 0, 3, 3]], np.uint8), np.array([[1, 1, 0, 2, 2, 0, 0, 0]], np.uint8), spec)
    for members, missed in ((spec.names[1:3], 0.0), (spec.names[1:4], 1.0)):
        found = measured_by((InstancesConfig(),), maps, groups={"all": members})
        assert found["sum:instances_fn/all"] == missed


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"labels": LABELS[:, 1:]}, "`labels` to have the target's shape"),
        ({"labels": LABELS * 1.0}, "`labels` to have dtype integer"),
        ({"instances": LABELS[:, 1:]}, "`instances` to have the target's shape"),
        ({"target_instances": -LABELS.astype(np.int64)}, "`target_instances` to hold ids between 0 and"),
        ({"spacing": (1.0,)}, r"`spacing` to have 2 finite values > 0, one per axis, got \(1.0,\)"),
        ({"target": TARGET[None], "labels": LABELS[None], "spacing": (1.0, 1.0)}, "`spacing` to have 3 finite values"),
    ],
)
def test_maps_that_do_not_fit_each_other_are_refused(fields, message):
    given = {"case_id": "c", "target": TARGET, "labels": LABELS, "spacing": (1.0, 1.0), "spec": BINARY}
    with pytest.raises(InputError, match=f"case c: expected {message}"):
        CaseMaps(**given | fields)


def test_classes_that_there_are_not_and_groups_of_planes_are_refused():
    with pytest.raises(ConfigError, match=r"`measures\.instances\.classes` to name classes, got 'bus'"):
        build_measures(MetricsConfig(measures=(InstancesConfig(classes=("bus",)),)), BINARY)
    with pytest.raises(ConfigError, match="`groups` to be empty for a multilabel task"):
        build_measures(MetricsConfig(groups={"all": ("sky", "road")}), class_spec(2, "multilabel"))


def test_classes_of_a_group_are_numbered_apart_and_matched_whatever_their_class():
    spec, found = class_spec(4), {}
    maps = maps_of([[1, 1, 2, 2, 0, 3, 3]], [[1, 1, 1, 0, 0, 1, 1]], spec)
    for kind in ("components", "by_class"):
        config = InstancesConfig(objects=kind, classes=("road", "car"), distances=True)
        found[kind] = measured_by((config,), maps, groups={"all": spec.names[1:]})
    sums = {kind: [columns[f"sum:instances_{n}/all"] for n in ("tp", "fp", "fn")] for kind, columns in found.items()}
    # together: 4 against 3 pixels, and 2 against 2; apart: 2 against 3, a missed one, and 2 against 2
    assert sums == {"components": [2, 0, 0], "by_class": [2, 0, 1]}
    assert found["by_class"]["object_dice/all"] == pytest.approx((4 / 5 + 1) / 2, rel=1e-12)
    assert found["by_class"]["object_masd/all"] == pytest.approx((0 + (0 / 2 + 1 / 3) / 2) / 2, rel=1e-12)
    assert np.isnan(found["by_class"]["object_masd/car"])


SPEC = class_spec(3)


def iiou(target, labels, spec=BINARY, groups=(), instances=None, **fields):
    maps = maps_of(target, labels, spec, target_instances=instances)
    return measured_by((InstanceIouConfig(**fields),), maps, groups=dict(groups), background=False)


def test_every_object_weighs_the_same_and_false_positives_their_pixels():
    # objects of 3 and 1 pixels, all and none of them found; 1 pixel too many: 2 * 1 / (2 * 2 + 1)
    found = iiou([[1, 1, 1, 0, 1, 0, 0]], [[1, 1, 1, 0, 0, 0, 1]])
    assert found["iiou/road"] == pytest.approx(2 / 5, rel=1e-12)
    assert [found[f"sum:iiou_{each}/road"] for each in ("found", "objects", "pixels", "fp")] == [1, 2, 4, 1]
    given = iiou([[1, 1, 1, 0, 1, 0, 0]], [[1, 1, 1, 0, 0, 0, 1]], average_sizes={"road": 10.0})
    assert given["iiou/road"] == pytest.approx(10 / 21, rel=1e-12)  # a given size in place of the data's


def test_touching_objects_of_two_classes_are_two_where_each_class_is_numbered_apart():
    groups = {"both": SPEC.names[1:]}
    found = {
        kind: iiou([[1, 1, 1, 2]], [[1, 1, 1, 0]], SPEC, groups, objects=kind)["iiou/both"]
        for kind in ("components", "by_class")
    }
    assert found == {"components": 0.75, "by_class": 0.5}


def test_numbers_of_the_instance_map_come_first():
    found = iiou([[1, 1, 1, 1]], [[1, 1, 1, 0]], instances=np.array([[1, 1, 1, 2]], np.int32))
    assert found["iiou/road"] == 0.5


def test_sizes_of_classes_that_are_not_measured_are_refused():
    with pytest.raises(ConfigError, match=r"measures\.iiou\.average_sizes"):
        build_measures(MetricsConfig(measures=(InstanceIouConfig(average_sizes={"bus": 3.0}),)), BINARY)
