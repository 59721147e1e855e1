"""What a case shows: the median size of its objects, whether they reach the edge, and its brightness."""

import math

import numpy as np
import pytest

from segmeter.metrics.config.measures import ContentConfig
from tests.metrics.build import BINARY, class_spec, maps_of, measured


def content(target, *, spec=BINARY, groups=None, image=None, instances=None, **options):
    target = np.array(target, np.uint8)
    maps = maps_of(target, np.ones_like(target), spec, target_instances=instances, image=image)  # of no prediction
    return measured((ContentConfig(**options),), maps, groups=groups or {}, background=False)


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


def test_groups_are_measured_as_one_class():
    spec = class_spec(3)
    found = content([[0, 1, 2, 0, 0, 2]], spec=spec, groups={"both": ("road", "car")})
    assert [found[f"object_size/{name}"] for name in ("road", "car", "both")] == [1, 1, 1.5]
    assert [found[f"touches_border/{name}"] for name in ("road", "car", "both")] == [1, 1, 1]


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
