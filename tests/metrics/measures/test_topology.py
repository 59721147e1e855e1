"""Errors of the topology as columns: by hand, and differences of what scikit-image counts."""

import math

import numpy as np
import pytest
from scipy import ndimage
from skimage.measure import euler_number, label

from segmeter.metrics.config.measures import TopologyConfig
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.measures.protocol import CaseMaps, build_measures, measure_case
from tests.metrics.build import class_spec, named

RING = np.array([[0, 0, 0, 0, 0], [0, 1, 1, 1, 0], [0, 1, 0, 1, 0], [0, 1, 1, 1, 0], [0, 0, 0, 0, 0]], np.uint8)
FULL = np.pad(np.ones((3, 3), np.uint8), 1)


def errors(target, labels, *, spec=None, **options):
    spec = spec or class_spec(2, "binary")
    config = MetricsConfig(measures=(TopologyConfig(**options),), background=False)
    maps = CaseMaps(case_id="a", target=target, labels=labels, spacing=(1.0,) * target.ndim, spec=spec)
    return named(measure_case(maps, build_measures(config, spec)))


def test_a_closed_hole_and_a_further_object_by_hand():
    assert errors(RING, FULL) == {"betti0_error/road": 0, "betti1_error/road": 1, "euler_error/road": 1}
    more = RING.copy()
    more[0, 4] = 1  # joined through a corner
    assert errors(RING, more) == dict.fromkeys(errors(RING, RING), 0)
    assert errors(RING, more, connectivity=4) == {
        "betti0_error/road": 1, "betti1_error/road": 0, "euler_error/road": 1
    }  # fmt: skip


def test_a_hole_less_and_an_object_less_are_two_errors_and_none_of_the_euler_number():
    target = np.pad(RING, ((0, 0), (0, 4)))
    target[2, 7] = 1
    labels = np.pad(FULL, ((0, 0), (0, 4)))
    assert errors(target, labels) == {"betti0_error/road": 1, "betti1_error/road": 1, "euler_error/road": 0}


def test_a_cavity_of_a_volume_has_a_number_of_its_own():
    solid = np.pad(np.ones((3, 3, 3), np.uint8), 1)
    hollow = solid.copy()
    hollow[2, 2, 2] = 0
    found = errors(solid, hollow)
    assert found == {f"{name}_error/road": value for name, value in
                     {"betti0": 0, "betti1": 0, "betti2": 1, "euler": 1}.items()}  # fmt: skip


def test_what_is_missed_or_made_up_is_infinite_and_nothing_on_both_sides_undefined():
    nothing = np.zeros_like(RING)
    for pair in ((RING, nothing), (nothing, RING), (np.where(RING, 1, 255).astype(np.uint8), nothing)):
        assert set(errors(*pair).values()) == {math.inf}
    assert all(math.isnan(value) for value in errors(nothing, nothing).values())
    ignored = np.full_like(RING, 255)
    assert all(math.isnan(value) for value in errors(ignored, RING).values())


@pytest.mark.parametrize("seed", range(12))
def test_errors_are_differences_of_what_scikit_image_counts(seed):
    """Far from the edge and in a corner alike. Mutation seen to fail: each side cut to a box of its own, without it."""
    rng = np.random.default_rng(seed)
    spec = class_spec(3)
    target, labels = (
        np.digitize(ndimage.gaussian_filter(rng.normal(size=(24, 26)), 1.2), (-0.1, 0.1)).astype(np.uint8)
        for _ in range(2)
    )
    found = errors(target, labels, spec=spec)
    for k in (1, 2):
        one, other = (np.pad(maps == k, 1) for maps in (target, labels))
        euler = [euler_number(mask, connectivity=2) for mask in (one, other)]
        objects = [label(mask, connectivity=2).max() for mask in (one, other)]
        holes = [count - number for count, number in zip(objects, euler, strict=True)]
        expected = [abs(pair[0] - pair[1]) for pair in (objects, holes, euler)]
        assert [found[f"{name}_error/{spec.names[k]}"] for name in ("betti0", "betti1", "euler")] == expected
