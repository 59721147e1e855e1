"""Measures of masks: surfaces, boundary IoU, clDice, types of errors, lesions, and what a case shows."""

import math

import numpy as np
import pytest

from segmeter.errors import InputError
from segmeter.metrics.config.measures import (
    BoundaryConfig,
    ClDiceConfig,
    ContentConfig,
    ErrorTypesConfig,
    LesionsConfig,
    SurfaceConfig,
)
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.measures.protocol import build_measures
from segmeter.metrics.shapes import centreline_dice
from tests.metrics.build import BINARY, class_spec, maps_of, measured
from tests.metrics.measures.test_row import blobs
from tests.metrics.test_shapes import tubes

DOT, NOTHING = np.zeros((2, 5, 12), np.uint8)
DOT[2, 2] = 1


def whole(config, sums):
    """Scores of the data set from sums of its cases, for two resamples, the last of which has nothing."""
    (measure,) = build_measures(MetricsConfig(measures=(config,)), BINARY)
    arrays = {(name, "road"): np.array([value, 0.0]) for name, value in sums.items()}
    return {name: score for (name, _), score in measure.summarise(arrays).items()}


@pytest.mark.parametrize(("penalty", "value"), [("inf", math.inf), ("diagonal", 13.0), ("nan", math.nan), (7, 7.0)])
def test_a_miss_gets_the_penalty(penalty, value):
    for pair in ((DOT, NOTHING), (NOTHING, DOT)):
        found = measured((SurfaceConfig(penalty=penalty),), maps_of(*pair))
        np.testing.assert_equal([found["hd95/road"], found["nsd@1/road"]], [value, 0.0])


def test_a_surface_that_neither_side_holds_is_undefined():
    found = measured((SurfaceConfig(surface="both"),), maps_of(NOTHING, NOTHING, class_spec(3)))
    assert all(math.isnan(value) for name, value in found.items() if name.endswith("/car"))
    assert (found["hd95/sky"], found["nsd_mean@1/sky"]) == (0.0, 1.0)


def test_boundaries_by_hand():
    # 5 x 5 and 5 x 4 pixels: rings of 16 and 14 pixels; 11 are in both
    target, labels = np.zeros((2, 7, 7), np.uint8)
    target[1:6, 1:6], labels[1:6, 1:5] = 1, 1
    found = measured((BoundaryConfig(width=1),), maps_of(target, labels))
    assert found == {"boundary_iou/road": 11 / 19, "sum:boundary_common/road": 11, "sum:boundary_union/road": 19}
    scores = whole(BoundaryConfig(), {"boundary_common": 11.0, "boundary_union": 38.0})
    np.testing.assert_array_equal(scores["boundary_iou"], [11 / 38, np.nan])


def test_cldice_sums_over_cases():
    parts = ("inside_target", "points_mask", "inside_mask", "points_target")
    columns = []
    for target, labels in (tubes(0), tubes(1), np.zeros((2, 9, 9), bool)):
        columns.append(measured((ClDiceConfig(),), maps_of(target.astype(np.uint8), labels.astype(np.uint8))))
        found = centreline_dice(target, labels)
        np.testing.assert_equal(columns[-1]["cldice/road"], found.cldice)
        assert [columns[-1][f"sum:cldice_{part}/road"] for part in parts] == [getattr(found, part) for part in parts]
    sums = {part: sum(one[f"sum:cldice_{part}/road"] for one in columns) for part in parts}
    precision, recall = sums["inside_target"] / sums["points_mask"], sums["inside_mask"] / sums["points_target"]
    score = whole(ClDiceConfig(), {f"cldice_{part}": total for part, total in sums.items()})["cldice"]
    assert score[0] == pytest.approx(2 / (1 / precision + 1 / recall), rel=1e-12)
    assert math.isnan(score[1])
    assert math.isnan(columns[2]["cldice/road"])


def test_error_types_by_hand():
    target, labels = np.zeros((2, 60, 60), np.uint8)
    target[10:30, 10:30], labels[10:30, 11:30], labels[40:50, 40:50] = 1, 1, 1
    found = measured((ErrorTypesConfig(width=1),), maps_of(target, labels))
    sums = {name.removeprefix("sum:"): value for name, value in found.items() if name.startswith("sum:")}
    assert {name: value for name, value in found.items() if not name.startswith("sum:")} == {
        "boundary_errors/road": 20 / 500, "extent_errors/road": 0.0, "segment_errors/road": 100 / 500
    }  # fmt: skip
    some = {"errors_fn_boundary/road": 20, "errors_fp_segment/road": 100, "errors_tp/road": 380}
    assert {name: value for name, value in sums.items() if value} == some
    scores = whole(ErrorTypesConfig(), {name.removesuffix("/road"): value for name, value in sums.items()})
    np.testing.assert_allclose(scores["boundary_errors"], [20 / 500, np.nan])
    np.testing.assert_allclose(scores["segment_gain"], [380 / 400 - 380 / 500, np.nan])
    np.testing.assert_allclose(scores["extent_gain"], [0, np.nan])


@pytest.mark.parametrize("config", [ErrorTypesConfig(width=1), SurfaceConfig()], ids=["error types", "surface"])
def test_a_group_of_one_class_equals_the_class(config):
    found = measured((config,), maps_of(*blobs(), class_spec(4)), groups={"g": ("road",)})
    of_class = {name: value for name, value in found.items() if name.endswith("/road")}
    assert len(of_class) > 5
    for name, value in of_class.items():
        np.testing.assert_equal(found[name.replace("/road", "/g")], value)


@pytest.mark.parametrize(("depth", "remedy"), [(2, "Leave out this measure"), (1, "Set data.flat=true")])
def test_volumes_have_no_error_types(depth, remedy):
    maps = maps_of(*np.zeros((2, depth, 3, 4), np.uint8))
    with pytest.raises(InputError, match=rf"c: error_types: .*two spatial axes for error types, got .*\. {remedy}"):
        measured((ErrorTypesConfig(),), maps)


TARGET = np.zeros((9, 24), np.uint8)
TARGET[1:4, 1:5] = TARGET[5:7, 9:11] = 1  # lesions of 12 and 4 pixels
LABELS = np.zeros_like(TARGET)
LABELS[1:4, 1:3] = LABELS[0:2, 20:23] = 1  # half of the first one, and 6 pixels made up


def lesions(target=TARGET, labels=LABELS, *, spec=BINARY, spacing=(1.0, 1.0), groups=None, **options):
    options = {"dilation": 0, "least": 0.0} | options
    maps = maps_of(target, labels, spec, spacing=spacing)
    return measured((LesionsConfig(**options),), maps, groups=groups or {}, background=False)


def test_each_convention_by_hand():
    found = lesions()
    # one lesion with Dice 2 * 6 / 18, one missed, one made up
    assert found["brats_dice/road"] == pytest.approx((2 * 6 / 18 + 0 + 0) / 3)
    assert 2 * 374 / 3 < found["brats_hd95/road"] < 374
    assert [found[f"sum:brats_{name}/road"] for name in ("tp", "fp", "fn")] == [1, 1, 1]
    assert [found[f"sum:picai_{name}/road"] for name in ("tp", "fp", "fn")] == [1, 1, 1]
    assert (found["autopet_fp_volume/road"], found["autopet_fn_volume/road"]) == (6, 4)
    assert 0 < found["cc_dice/road"] < 1
    assert len(found) == 2 + 3 + 3 + 2 + 1


def test_volumes_and_the_least_size_are_in_the_unit_of_the_spacing():
    found = lesions(spacing=(0.5, 3.0), least=6.0)
    assert (found["autopet_fp_volume/road"], found["autopet_fn_volume/road"]) == (6 * 1.5, 4 * 1.5)
    assert found["sum:brats_fn/road"] == 0  # its 4 pixels are 6 of the unit, and lesions up to that do not count
    assert lesions(spacing=(0.5, 3.0), least=5.9)["sum:brats_fn/road"] == 1


def test_settings_reach_their_convention():
    assert lesions(overlap=0.5)["sum:picai_tp/road"] == 1  # 6 of 12 pixels are an IoU of .5
    assert lesions(overlap=0.51)["sum:picai_tp/road"] == 0
    near = LABELS.copy()
    near[1:3, 6:8] = 1  # a second part, two columns from the first lesion: met only after dilation
    assert lesions(labels=near)["sum:brats_fp/road"] == 2
    assert lesions(labels=near, dilation=2)["sum:brats_fp/road"] == 1


def test_only_what_is_asked_for_is_measured_of_each_class_and_group():
    spec, groups = class_spec(3), {"both": ("road", "car")}
    target = np.where(TARGET, 1 + (np.arange(24) > 6), 0).astype(np.uint8)  # the second lesion is of the second class
    found = lesions(target, LABELS, spec=spec, groups=groups, conventions=("autopet",))
    assert found == {
        "autopet_fp_volume/road": 6, "autopet_fn_volume/road": 0,
        "autopet_fp_volume/car": 0, "autopet_fn_volume/car": 4,
        "autopet_fp_volume/both": 6, "autopet_fn_volume/both": 4,
    }  # fmt: skip


def test_scores_of_the_data_set_come_from_sums_over_its_cases():
    """Mutation seen to fail: one false positive counted as two. Arrays are resamples."""
    (measure,) = build_measures(MetricsConfig(measures=(LesionsConfig(),)), BINARY)
    numbers = {"tp": np.array([3.0, 0.0, 0.0]), "fp": np.array([1.0, 2.0, 0.0]), "fn": np.array([4.0, 0.0, 0.0])}
    for convention in ("brats", "picai"):
        found = measure.summarise({(f"{convention}_{name}", "road"): values for name, values in numbers.items()})
        assert set(found) == {(f"{convention}_{name}", "road") for name in ("tp", "fp", "fn", "f1")}
        np.testing.assert_array_equal(found[f"{convention}_f1", "road"], [6 / 11, 0, np.nan])
        np.testing.assert_array_equal(found[f"{convention}_fp", "road"], numbers["fp"])
    assert measure.summarise({}) == {}


def content(target, *, image=None, instances=None, **options):
    target = np.array(target, np.uint8)
    maps = maps_of(target, np.ones_like(target), target_instances=instances, image=image)  # of no prediction
    return measured((ContentConfig(**options),), maps)


def test_the_size_is_the_median_over_objects():
    # objects of 1, 2 and 4 pixels, none of which reaches the edge; then of 1 and 2
    target = np.zeros((7, 9), int)
    target[1, 1] = target[1, 3:5] = target[3:5, 3:5] = 1
    assert content(target) == {"object_size/road": 2.0, "touches_border/road": 0.0}
    target[3:5] = 0
    assert content(target)["object_size/road"] == 1.5


def test_corners_join_objects_or_not():
    target = np.pad(np.eye(3, dtype=int), 1)
    assert content(target)["object_size/road"] == 3
    assert content(target, connectivity=4)["object_size/road"] == 1


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("side", [0, -1])
def test_every_edge_of_a_volume_is_one(axis, side):
    target = np.zeros((4, 5, 6), int)
    target[2, 2, 2] = 1
    assert content(target)["touches_border/road"] == 0
    place = [2, 2, 2]
    place[axis] = side
    target[tuple(place)] = 1
    assert content(target)["touches_border/road"] == 1


def test_a_class_that_is_not_there_has_neither_and_ignored_pixels_are_none():
    found = content([[0, 255], [255, 0]])
    assert all(math.isnan(value) for value in found.values())
    assert content([[1, 255], [0, 0]])["object_size/road"] == 1


def test_objects_are_those_of_the_instance_map_whatever_their_numbers():
    """Numbers of more than 2^31 take no memory; mutation seen to fail: a bin for each number up to the highest."""
    numbers = np.array([[5, 7, 2**40, 3, 2**40, 2**40]])
    assert content([[1, 1, 1, 0, 1, 1]], instances=numbers)["object_size/road"] == 1  # of 1, 1 and 3
    assert math.isnan(content([[1, 1, 0]], instances=np.zeros((1, 3), np.uint8))["object_size/road"])


@pytest.mark.parametrize(
    ("image", "brightness"),
    [
        (np.array([[0, 255]], np.uint8), 0.5),
        (np.array([[0, 65535], [65535, 65535]], np.uint16), 0.75),
        (np.array([[[0.25, 0.75, 2.0]]], np.float32), 1.0),
        (np.array([[True, False]]), 0.5),
    ],
    ids=["uint8", "uint16", "float32", "bool"],
)
def test_brightness_is_the_mean_as_a_share_of_what_the_type_holds(image, brightness):
    assert content(np.zeros((1, 2)), image=image)["brightness/image"] == pytest.approx(brightness, rel=1e-12)
