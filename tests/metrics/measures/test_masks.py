"""The measure of surfaces: the penalty of a miss, what is undefined, and both kinds of surface in one call."""

import math

import numpy as np
import pytest

from segmeter.metrics.config.measures import SurfaceConfig
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.surfaces import surface_metrics
from tests.metrics.build import class_spec
from tests.metrics.measures.test_protocol import blobs, case_of, measured


@pytest.mark.parametrize(
    ("penalty", "value"), [("inf", math.inf), (math.inf, math.inf), ("diagonal", 13.0), ("nan", math.nan), (7, 7.0)]
)
def test_a_miss_gets_the_penalty(penalty, value):
    target, labels = np.zeros((2, 5, 12), np.uint8)
    target[2, 2] = 1
    config = MetricsConfig(measures=(SurfaceConfig(penalty=penalty),))
    found = measured(config, case_of(target, labels, class_spec(2, "binary")))
    np.testing.assert_equal(found["hd95/road"], value)
    assert found["nsd@1/road"] == 0.0
    swapped = measured(config, case_of(labels, target, class_spec(2, "binary")))
    np.testing.assert_equal(swapped, found)


def test_nan_from_the_command_line_is_the_policy_nan():
    config = MetricsConfig(measures=(SurfaceConfig(penalty=math.nan),))
    assert [SurfaceConfig(penalty=number).penalty for number in (math.nan, math.inf, 3.5)] == ["nan", "inf", 3.5]
    target, labels = np.zeros((2, 5, 12), np.uint8)
    target[2, 2] = 1
    assert math.isnan(measured(config, case_of(target, labels, class_spec(2, "binary")))["hd/road"])


def test_what_neither_side_holds_is_undefined():
    target = np.zeros((5, 6), np.uint8)
    found = measured(MetricsConfig(measures=(SurfaceConfig(),)), case_of(target, target, class_spec(3)))
    assert math.isnan(found["hd95/car"])
    assert math.isnan(found["nsd@1/car"])
    assert found["hd95/sky"] == 0.0


def test_marching_cubes_are_those_of_the_function_and_beside_the_border_pixels():
    target, labels = blobs(2, ignore=False)
    config = MetricsConfig(measures=(SurfaceConfig(surface="both", tolerances=(2,)),))
    found = measured(config, case_of(target, labels, class_spec(2, "binary"), spacing=(2.0, 0.5)))
    for surface, suffix in (("border_pixels", ""), ("marching_cubes", "_marching_cubes")):
        alone = surface_metrics(target == 1, labels == 1, spacing=(2.0, 0.5), tolerances=(2,), surface=surface)
        assert found[f"hd95{suffix}/road"] == alone.hd95
        assert found[f"nsd{suffix}@2/road"] == alone.nsd[0]
        if not suffix:
            assert found["nsd_mean@2/road"] == (alone.near_target[0] + alone.near_mask[0]) / 2
    assert found["assd/road"] != found["assd_marching_cubes/road"]


def test_a_group_of_one_class_equals_the_class():
    config = MetricsConfig(measures=(SurfaceConfig(),), groups={"cars": ("car",)})
    found = measured(config, case_of(*blobs(), class_spec(4)))
    assert found["masd/cars"] == found["masd/car"] > 0
