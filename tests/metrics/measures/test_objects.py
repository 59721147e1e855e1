"""Measures of objects by hand, and their rows; test_void.py compares them with plain loops."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from segmeter.classes import ClassSpec
from segmeter.errors import ConfigError
from segmeter.metrics.cases.stored import write_cases
from segmeter.metrics.config.measures import (
    AveragePrecisionConfig,
    EventsConfig,
    InstanceIouConfig,
    InstancesConfig,
    PartitionConfig,
    SizesConfig,
)
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.measures.protocol import build_measures
from segmeter.metrics.measures.row import make_row
from segmeter.metrics.summary.summarise import summarise
from tests.metrics.build import BINARY, boxes, class_spec, maps_of
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


def test_instance_maps_tell_touching_objects_apart_unless_components_are_asked_for():
    target = np.ones((4, 8), np.uint8)
    split = np.repeat([[3, 9]], 4, axis=1) * np.ones((4, 1), np.int64)
    one_side = maps_of(target, target, instances=split)
    found = measured(InstancesConfig(), one_side)
    assert [found[f"sum:instances_{name}/road"] for name in ("tp", "fp", "fn")] == [0.0, 2.0, 1.0]
    assert measured(InstancesConfig(objects="components"), one_side)["sum:instances_tp/road"] == 1.0


def test_regions_of_one_name_are_told_apart_by_their_classes():
    """What is kept of a case was found by the region's name, and another group of that name took it."""
    spec = class_spec(4)
    maps = maps_of(np.array([[1, 1, 0, 2, 2, 0, 3, 3]], np.uint8), np.array([[1, 1, 0, 2, 2, 0, 0, 0]], np.uint8), spec)
    for members, missed in ((spec.names[1:3], 0.0), (spec.names[1:4], 1.0)):
        found = measured_by((InstancesConfig(),), maps, groups={"all": members})
        assert found["sum:instances_fn/all"] == missed


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


CONFIG = MetricsConfig(bootstrap=0, measures=(EventsConfig(distances=True),))


SCENE = boxes((10, 12), (0, 0, 3, 3), (5, 1, 9, 5), (5, 8, 7, 11))
FOUND = boxes((10, 12), (0, 0, 3, 4), (5, 1, 6, 5), (7, 1, 9, 5), (0, 8, 1, 10))


def row_of(target, labels, config=CONFIG, *, case_id="a", spec=BINARY, spacing=(1.0, 1.0)):
    return make_row(maps_of(target, labels, spec, case_id=case_id, spacing=spacing), build_measures(config, spec))


def test_numbers_of_the_data_set_are_sums_over_its_cases():
    rows = [row_of(SCENE, FOUND), row_of(SCENE, SCENE, case_id="b")]
    found = summarise(rows, BINARY, CONFIG)["measures"]
    numbers = {name.removeprefix("objects_"): entry["road"]["dataset"] for name, entry in found.items()}
    # of the first case one matched, one in two parts, one missed, and one found where nothing is
    assert numbers == {
        "matched": 4, "split": 1, "merged": 0, "missed": 1, "part": 2, "merging": 0, "spurious": 1
    }  # fmt: skip
    assert all("mean" not in entry for entry in found.values())


def test_a_row_per_object(tmp_path):
    row = row_of(SCENE, FOUND, spacing=(2.0, 0.5))
    assert write_cases(tmp_path, [row], BINARY) == ("cases.parquet", "cases.csv", "objects.parquet")
    table = pq.read_table(tmp_path / "objects.parquet").to_pylist()
    assert [(o["side"], o["event"], o["pixels"]) for o in table] == [
        ("target", "matched", 9),
        ("target", "split", 16),
        ("target", "missed", 6),
        ("prediction", "matched", 12),
        ("prediction", "spurious", 2),
        ("prediction", "part", 4),
        ("prediction", "part", 8),
    ]
    first, other = table[0], table[3]
    assert (first["case_id"], first["region"], first["unit"]) == ("a", "road", "pixels")
    assert (first["box"], first["centroid"], first["touches_border"]) == ([0, 0, 3, 3], [1.0, 1.0], True)
    assert (table[2]["box"], table[2]["touches_border"]) == ([5, 8, 7, 11], False)
    assert (first["id"], first["partner"]) == (other["partner"], other["id"])
    assert first["size"] == 9 * 2.0 * 0.5
    assert (first["iou"], first["dice"]) == (9 / 12, 18 / 21) == (other["iou"], other["dice"])
    assert first["centroid_distance"] == pytest.approx(0.5 * 0.5)  # half a column of 0.5
    assert first["hd95"] == pytest.approx(0.5)  # the last column of the prediction is one column away
    assert all(o["iou"] is None and o["partner"] is None and o["hd95"] is None for o in table[1:3] + table[4:])


def test_without_a_table_there_is_no_file(tmp_path):
    config = MetricsConfig(bootstrap=0, measures=(EventsConfig(table=False),))
    assert write_cases(tmp_path, [row_of(SCENE, FOUND, config)], BINARY) == ("cases.parquet", "cases.csv")


def test_volumes_and_several_classes(tmp_path):
    spec = ClassSpec(task="multiclass", names=("none", "a", "b"), colours=((0, 0, 0),) * 3)
    target = np.zeros((4, 5, 6), np.uint8)
    target[:2], target[3] = 1, 2
    config = MetricsConfig(bootstrap=0, background=False, measures=(EventsConfig(),))
    write_cases(tmp_path, [row_of(target, target, config, spec=spec, spacing=(3.0, 1.0, 1.0))], spec)
    table = pq.read_table(tmp_path / "objects.parquet").to_pylist()
    expected = [(k, side, size, 1.0) for k, size in (("a", 180.0), ("b", 90.0)) for side in ("target", "prediction")]
    assert [(o["region"], o["side"], o["size"], o["iou"]) for o in table] == expected
    assert (table[2]["box"], table[2]["hd95"]) == ([3, 0, 0, 4, 5, 6], None)


def test_the_adapted_rand_error_of_the_data_set_counts_missed_and_spurious_objects():
    config = MetricsConfig(bootstrap=0, measures=(PartitionConfig(),))
    rows = [row_of(SCENE, SCENE, config), row_of(SCENE, 0 * SCENE, config, case_id="b")]
    rows.append(row_of(0 * SCENE, boxes((10, 12), (0, 0, 2, 2)), config, case_id="c"))
    pairs = 9 * 8 + 16 * 15 + 6 * 5  # within the objects
    entry = summarise(rows, BINARY, config)["measures"]["are"]["road"]
    assert entry["dataset"] == pytest.approx(1 - 2 * pairs / (2 * pairs + pairs + 4 * 3))
