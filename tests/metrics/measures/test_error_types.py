"""The measure of error types: shares of a case, and shares and gains of the data set from sums."""

import numpy as np
import pytest

from segmeter.errors import InputError
from segmeter.metrics.config.measures import ErrorTypesConfig
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.measures.protocol import build_measures
from tests.metrics.build import class_spec
from tests.metrics.measures.test_protocol import blobs, case_of, measured

SPEC = class_spec(2, "binary")
CONFIG = MetricsConfig(measures=(ErrorTypesConfig(width=1),))


def test_a_case_by_hand():
    target, labels = np.zeros((2, 60, 60), np.uint8)
    target[10:30, 10:30], labels[10:30, 11:30], labels[40:50, 40:50] = 1, 1, 1
    found = measured(CONFIG, case_of(target, labels, SPEC))
    shares = {"boundary_errors/road": 20 / 500, "extent_errors/road": 0.0, "segment_errors/road": 100 / 500}
    assert {name: value for name, value in found.items() if not name.startswith("sum:")} == shares
    sums = {name: value for name, value in found.items() if name.startswith("sum:") and value}
    assert sums == {"sum:errors_fn_boundary/road": 20, "sum:errors_fp_segment/road": 100, "sum:errors_tp/road": 380}


def test_scores_of_the_data_set_come_from_the_summed_pixels():
    (measure,) = build_measures(CONFIG, SPEC)
    kinds = [(f"errors_{side}_{kind}", "road") for side in ("fp", "fn") for kind in ("boundary", "extent", "segment")]
    sums = dict.fromkeys(kinds, np.zeros(2))
    sums |= {("errors_fn_boundary", "road"): np.array([20.0, 0]), ("errors_fp_segment", "road"): np.array([100.0, 0])}
    found = measure.summarise(sums | {("errors_tp", "road"): np.array([380.0, 0.0])})
    np.testing.assert_allclose(found["boundary_errors", "road"], [20 / 500, np.nan])
    np.testing.assert_allclose(found["segment_gain", "road"], [380 / 400 - 380 / 500, np.nan])
    np.testing.assert_allclose(found["extent_gain", "road"], [0, np.nan])


def test_a_class_alone_or_with_others_or_as_a_group_is_the_same():
    spec = class_spec(4, ignore_index=255)
    target, labels = blobs(4)
    maps = case_of(target, labels, spec)
    together = measured(CONFIG, maps)
    config = MetricsConfig(measures=(ErrorTypesConfig(width=1),), groups={"g": (spec.names[1],)})
    grouped = measured(config, maps)
    for name, value in together.items():
        if name.endswith(f"/{spec.names[1]}"):
            np.testing.assert_equal(grouped[name.replace(f"/{spec.names[1]}", "/g")], value)


@pytest.mark.parametrize(("depth", "remedy"), [(2, "Leave out this measure"), (1, "Set data.flat=true")])
def test_a_volume_is_refused(depth, remedy):
    maps = case_of(np.zeros((depth, 3, 4), np.uint8), np.zeros((depth, 3, 4), np.uint8), SPEC)
    with pytest.raises(InputError, match=rf"to have two spatial axes for error types, got .*\. {remedy}"):
        measured(CONFIG, maps)
