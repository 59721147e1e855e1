"""iIoU by hand; tests/differential/test_presets.py compares it with Cityscapes' own script."""

import numpy as np
import pytest

from segmeter.errors import ConfigError
from segmeter.metrics.config.measures import InstanceIouConfig
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.measures.protocol import build_measures
from tests.metrics.build import BINARY, class_spec, maps_of, measured

SPEC = class_spec(3)


def iiou(target, labels, spec=BINARY, groups=(), instances=None, **fields):
    maps = maps_of(target, labels, spec, target_instances=instances)
    return measured((InstanceIouConfig(**fields),), maps, groups=dict(groups), background=False)


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
