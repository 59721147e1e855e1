"""Measures of objects: by hand, against plain loops over every pair of masks, and the golden components of spines."""

import numpy as np
import pytest

from segmeter.errors import ConfigError, InputError
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.config.measures import AjiConfig, AveragePrecisionConfig, InstancesConfig, SizesConfig
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.measures.objects import find_objects
from segmeter.metrics.measures.protocol import CaseMaps, build_measures, measure_case
from segmeter.metrics.pixels.confusion import confusion_matrix
from segmeter.metrics.summary.summarise import summarise
from tests.metrics.build import class_spec, named

BINARY = class_spec(2, "binary")


def maps_of(target, labels, spec=BINARY, **fields):
    return CaseMaps(case_id="c", target=target, labels=labels, spacing=(1.0,) * target.ndim, spec=spec, **fields)


def measured(config, maps):
    metrics = MetricsConfig(measures=(config,), background=False)
    return named(measure_case(maps, build_measures(metrics, maps.spec)))


def whole(configs, cases, spec=BINARY):
    """What the summary says of several cases."""
    config = MetricsConfig(measures=configs, background=False, bootstrap=0)
    rows = []
    for i, (target, labels) in enumerate(cases):
        counts = confusion_matrix(target, labels, num_classes=spec.num_classes, ignore_index=spec.ignore_index)
        columns = measure_case(maps_of(target, labels, spec), build_measures(config, spec))
        rows.append(CaseRow(case_id=str(i), height=1, width=1, counts=counts, measured=columns))
    return summarise(rows, spec, config)["measures"]


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
    ap = whole((AveragePrecisionConfig(thresholds=(0.5, 0.75)),), [(TARGET, LABELS), (TARGET, TARGET)])
    assert ap["ap@0.5"]["road"]["dataset"] == 5 / (6 + 6 - 5 + 0)
    assert ap["ap@0.75"]["road"]["dataset"] == 4 / 8
    assert ap["ap"]["road"]["dataset"] == pytest.approx((5 / 7 + 4 / 8) / 2, rel=1e-12)


def test_aji_by_hand():
    # 3 + 5 pixels are common; unions 4 and 5, the missed 2, the spurious 2
    assert measured(AjiConfig(), maps_of(TARGET, LABELS))["aji/road"] == 8 / 13


def test_sizes_by_hand():
    # small is below 5 pixels: 4 found, 2 missed, 2 spurious; large: 5 found
    found = whole((SizesConfig(limits=(5,)),), [(TARGET, LABELS)])
    assert found["object_recall@small"]["road"]["dataset"] == 0.5
    assert found["object_f1@small"]["road"]["dataset"] == 2 / (2 + 1 + 1)
    assert found["object_recall@large"]["road"]["dataset"] == 1.0
    three = whole((SizesConfig(limits=(3, 5)),), [(TARGET, LABELS)])
    assert three["object_recall@small"]["road"]["dataset"] == 0.0
    assert three["object_recall@medium"]["road"]["dataset"] == 1.0


def test_scores_of_the_data_set_come_from_summed_objects():
    found = whole((InstancesConfig(),), [(TARGET, LABELS), (TARGET, TARGET)])
    assert [found[name]["road"]["dataset"] for name in ("tp", "fp", "fn")] == [5.0, 1.0, 1.0]
    assert found["pq"]["road"]["dataset"] == pytest.approx((1.75 + 3) / 6, rel=1e-12)
    assert found["pq"]["road"]["mean"] == pytest.approx((1.75 / 3 + 1) / 2, rel=1e-12)
    assert found["sq"]["road"]["dataset"] == pytest.approx(4.75 / 5, rel=1e-12)


@pytest.mark.parametrize("config", [InstancesConfig(), AveragePrecisionConfig(), AjiConfig()], ids=lambda c: c.name)
def test_empty_cases_are_undefined_and_misses_are_0(config):
    metric = {"instances": "pq", "average_precision": "ap", "aji": "aji"}[config.name]
    nothing = np.zeros_like(TARGET)
    assert np.isnan(measured(config, maps_of(nothing, nothing))[f"{metric}/road"])
    assert measured(config, maps_of(TARGET, nothing))[f"{metric}/road"] == 0.0
    assert measured(config, maps_of(nothing, TARGET))[f"{metric}/road"] == 0.0
    assert measured(config, maps_of(TARGET, TARGET))[f"{metric}/road"] == 1.0
    assert measured(InstancesConfig(), maps_of(TARGET, nothing))["sum:instances_fn/road"] == 3.0


def test_touching_corners_are_one_object_or_two():
    target = np.eye(4, dtype=np.uint8)
    assert find_objects(target > 0, None, 8).max() == 1
    assert find_objects(target > 0, None, 4).max() == 4
    whole_one = measured(InstancesConfig(connectivity=4), maps_of(target, target))
    assert whole_one["sum:instances_tp/road"] == 4.0


def test_instance_maps_tell_touching_objects_apart():
    target = np.ones((4, 8), np.uint8)
    split = np.repeat([[3, 9]], 4, axis=1) * np.ones((4, 1), np.int64)
    maps = maps_of(target, target, target_instances=split, instances=split)
    assert measured(InstancesConfig(), maps)["sum:instances_tp/road"] == 2.0
    assert measured(InstancesConfig(objects="components"), maps)["sum:instances_tp/road"] == 1.0
    one_side = maps_of(target, target, instances=split)
    found = measured(InstancesConfig(), one_side)
    assert [found[f"sum:instances_{name}/road"] for name in ("tp", "fp", "fn")] == [0.0, 2.0, 1.0]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: InstancesConfig(threshold=1.0), "`threshold` to be a number >= 0 and < 1"),
        (lambda: InstancesConfig(connectivity=6), "`connectivity` to be one of 8, 4"),
        (lambda: InstancesConfig(objects="files"), "`objects` to be one of"),
        (lambda: AveragePrecisionConfig(thresholds=(0.3, 0.5)), r"`thresholds\[0\]` to be a number >= 0.5"),
        (lambda: AveragePrecisionConfig(thresholds=(0.6, 0.5)), "`thresholds` to ascend"),
        (lambda: AveragePrecisionConfig(thresholds=()), "`thresholds` to ascend"),
        (lambda: SizesConfig(limits=(9, 4)), "`limits` to be 1 or 2 rising numbers"),
        (lambda: SizesConfig(limits=(1, 2, 3)), "`limits` to be 1 or 2"),
    ],
)
def test_bad_options_are_refused(build, message):
    with pytest.raises(ConfigError, match=message):
        build()


def test_regions_of_one_name_are_told_apart_by_their_classes():
    """What is kept of a case was found by the region's name, and another group of that name took it."""
    spec = class_spec(4)
    maps = maps_of(np.array([[1, 1, 0, 2, 2, 0, 3, 3]], np.uint8), np.array([[1, 1, 0, 2, 2, 0, 0, 0]], np.uint8), spec)
    found = []
    for members in (spec.names[1:3], spec.names[1:4]):
        config = MetricsConfig(groups={"all": members}, measures=(InstancesConfig(),))
        found.append(named(measure_case(maps, build_measures(config, spec)))["sum:instances_fn/all"])
    assert found == [0.0, 1.0]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"labels": LABELS[:, 1:]}, "`labels` to have the target's shape"),
        ({"labels": LABELS * 1.0}, "`labels` to have dtype integer"),
        ({"instances": LABELS[:, 1:]}, "`instances` to have the target's shape"),
        ({"target_instances": -LABELS.astype(np.int64)}, "`target_instances` to hold ids >= 0, got -1"),
        ({"spacing": (1.0,)}, "`spacing` to have 2 values, one per axis, got 1"),
        ({"target": TARGET[None], "labels": LABELS[None], "spacing": (1.0, 1.0)}, "`spacing` to have 3 values"),
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
    spec = class_spec(4)
    first, second, _ = (spec.names[k] for k in (1, 2, 3))
    target = np.array([[1, 1, 2, 2, 0, 3, 3]], np.uint8)
    labels = np.array([[1, 1, 1, 0, 0, 1, 1]], np.uint8)
    metrics = MetricsConfig(groups={"all": spec.names[1:]}, bootstrap=0)
    found = {}
    for kind in ("components", "by_class"):
        config = InstancesConfig(objects=kind, classes=(first, second), distances=True)
        built = build_measures(MetricsConfig(groups=metrics.groups, measures=(config,)), spec)
        found[kind] = named(measure_case(maps_of(target, labels, spec), built))
    sums = {kind: [columns[f"sum:instances_{n}/all"] for n in ("tp", "fp", "fn")] for kind, columns in found.items()}
    # together: 4 against 3 pixels, and 2 against 2; apart: 2 against 3, a missed one, and 2 against 2
    assert sums == {"components": [2, 0, 0], "by_class": [2, 0, 1]}
    assert found["by_class"]["object_dice/all"] == pytest.approx((4 / 5 + 1) / 2, rel=1e-12)
    assert found["by_class"]["object_masd/all"] == pytest.approx((0 + (0 / 2 + 1 / 3) / 2) / 2, rel=1e-12)
    assert np.isnan(found["by_class"][f"object_masd/{second}"])
