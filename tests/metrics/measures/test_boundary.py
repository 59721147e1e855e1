"""The measure of boundary IoU: sums of bands, and the score of the data set from them."""

import numpy as np

from segmeter.metrics.config.measures import BoundaryConfig
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.measures.protocol import build_measures
from segmeter.metrics.shapes import boundary_iou
from tests.metrics.build import class_spec
from tests.metrics.measures.test_protocol import case_of, measured

SPEC = class_spec(2, "binary")
CONFIG = MetricsConfig(measures=(BoundaryConfig(width=1),))


def test_two_rings_by_hand():
    # 5 x 5 and 5 x 4 pixels: rings of 16 and 14 pixels; 11 are in both
    target, labels = np.zeros((7, 7), np.uint8), np.zeros((7, 7), np.uint8)
    target[1:6, 1:6], labels[1:6, 1:5] = 1, 1
    found = measured(CONFIG, case_of(target, labels, SPEC))
    assert found == {"boundary_iou/road": 11 / 19, "sum:boundary_common/road": 11, "sum:boundary_union/road": 19}


def test_the_score_of_the_data_set_is_that_of_the_summed_bands():
    (measure,) = build_measures(CONFIG, SPEC)
    sums = {("boundary_common", "road"): np.array([11.0, 0.0]), ("boundary_union", "road"): np.array([38.0, 0.0])}
    (score,) = measure.summarise(sums).items()
    assert score[0] == ("boundary_iou", "road")
    np.testing.assert_array_equal(score[1], [11 / 38, np.nan])


def test_a_volume_is_measured_with_the_width_of_its_diagonal():
    target, labels = np.zeros((2, 6, 9, 9), np.uint8)
    target[1:5, 2:7, 2:7], labels[1:5, 2:7, 3:8] = 1, 1
    found = measured(CONFIG, case_of(target, labels, SPEC))
    wanted = boundary_iou(target, labels, num_classes=SPEC.num_classes, width=1)
    assert found["boundary_iou/road"] == wanted.iou[1]
