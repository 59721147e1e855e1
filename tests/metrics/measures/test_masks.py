"""Measures of masks: surfaces, boundary IoU, clDice and types of errors, of a case and of the data set."""

import math

import numpy as np
import pytest

from segmeter.errors import InputError
from segmeter.metrics.config.measures import BoundaryConfig, ClDiceConfig, ErrorTypesConfig, SurfaceConfig
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.measures.protocol import build_measures
from segmeter.metrics.shapes import boundary_iou, centreline_dice
from segmeter.metrics.surfaces import surface_metrics
from tests.metrics.build import BINARY, class_spec, maps_of, measured
from tests.metrics.measures.test_protocol import blobs
from tests.metrics.test_shapes import tubes

DOT, NOTHING = np.zeros((2, 5, 12), np.uint8)
DOT[2, 2] = 1


def whole(config, sums):
    """Scores of the data set from sums of its cases, for two resamples, the last of which has nothing."""
    (measure,) = build_measures(MetricsConfig(measures=(config,)), BINARY)
    arrays = {(name, "road"): np.array([value, 0.0]) for name, value in sums.items()}
    return {name: score for (name, _), score in measure.summarise(arrays).items()}


@pytest.mark.parametrize(
    ("penalty", "value"),
    [("inf", math.inf), (math.inf, math.inf), ("diagonal", 13.0), ("nan", math.nan), (math.nan, math.nan), (7, 7.0)],
)
def test_a_miss_gets_the_penalty(penalty, value):
    for pair in ((DOT, NOTHING), (NOTHING, DOT)):
        found = measured((SurfaceConfig(penalty=penalty),), maps_of(*pair))
        np.testing.assert_equal([found["hd95/road"], found["nsd@1/road"]], [value, 0.0])


def test_a_surface_that_neither_side_holds_is_undefined():
    found = measured((SurfaceConfig(surface="both"),), maps_of(NOTHING, NOTHING, class_spec(3)))
    assert all(math.isnan(value) for name, value in found.items() if name.endswith("/car"))
    assert (found["hd95/sky"], found["nsd_mean@1/sky"]) == (0.0, 1.0)


def test_both_surfaces_are_those_of_the_function():
    target, labels = blobs(2, ignore=False)
    maps = maps_of(target, labels, spacing=(2.0, 0.5))
    found = measured((SurfaceConfig(surface="both", tolerances=(2,)),), maps)
    for surface, suffix in (("border_pixels", ""), ("marching_cubes", "_marching_cubes")):
        alone = surface_metrics(target == 1, labels == 1, spacing=(2.0, 0.5), tolerances=(2,), surface=surface)
        assert (found[f"hd95{suffix}/road"], found[f"nsd{suffix}@2/road"]) == (alone.hd95, alone.nsd[0])
        if not suffix:
            assert found["nsd_mean@2/road"] == (alone.near_target[0] + alone.near_mask[0]) / 2
    assert found["assd/road"] != found["assd_marching_cubes/road"]


def test_boundaries_by_hand():
    # 5 x 5 and 5 x 4 pixels: rings of 16 and 14 pixels; 11 are in both
    target, labels = np.zeros((2, 7, 7), np.uint8)
    target[1:6, 1:6], labels[1:6, 1:5] = 1, 1
    found = measured((BoundaryConfig(width=1),), maps_of(target, labels))
    assert found == {"boundary_iou/road": 11 / 19, "sum:boundary_common/road": 11, "sum:boundary_union/road": 19}
    scores = whole(BoundaryConfig(), {"boundary_common": 11.0, "boundary_union": 38.0})
    np.testing.assert_array_equal(scores["boundary_iou"], [11 / 38, np.nan])
    target, labels = np.zeros((2, 6, 9, 9), np.uint8)  # a volume has a width too
    target[1:5, 2:7, 2:7], labels[1:5, 2:7, 3:8] = 1, 1
    wanted = boundary_iou(target, labels, num_classes=2, width=1).iou[1]
    assert measured((BoundaryConfig(width=1),), maps_of(target, labels))["boundary_iou/road"] == wanted


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
