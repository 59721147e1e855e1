"""Which objects are matched, missed and false, against a loop over all pairs."""

import numpy as np
import pytest

from segmeter.classes import ClassSpec
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.report.pictures.objects import Objects, find_kinds, measured_objects

CELLS = ClassSpec(task="binary", names=("background", "cell"), colours=((0, 0, 0), (230, 57, 57)), ignore_index=255)


VEHICLES = ClassSpec(task="multiclass", names=("none", "car", "bus"), colours=((0, 0, 0), (1, 1, 1), (2, 2, 2)))


def scene(rng, shape=(40, 50), count=12):
    objects = np.zeros(shape, np.int64)
    for number in range(1, count + 1):
        row, column = rng.integers(0, shape[0] - 8), rng.integers(0, shape[1] - 8)
        objects[row : row + rng.integers(3, 9), column : column + rng.integers(3, 9)] = 3 * number
    return objects


@pytest.mark.parametrize("seed", range(2))
def test_kinds_agree_with_a_loop_over_all_pairs(seed):
    rng = np.random.default_rng(seed)
    target = scene(rng)
    prediction = np.where(rng.random(target.shape) < 0.85, np.roll(target, rng.integers(0, 3), axis=1) * 2, 0)
    matched, missed, false = np.zeros_like(target), target.copy(), prediction.copy()
    for first in np.unique(target[target > 0]):
        for second in np.unique(prediction[prediction > 0]):
            one, other = target == first, prediction == second
            if (one & other).sum() > 0.5 * (one | other).sum():
                matched[other], missed[one], false[other] = second, 0, 0
    masks = [(each > 0).astype(np.uint8) for each in (target, prediction)]
    found = find_kinds(Objects(target=target, prediction=prediction), *masks, CELLS)
    np.testing.assert_array_equal(found.matched, matched)
    np.testing.assert_array_equal(found.missed, missed)
    np.testing.assert_array_equal(found.spurious, false)
    assert found.counts() == tuple(len(np.unique(each[each > 0])) for each in (matched, missed, false))


def test_ignored_pixels_belong_to_no_object():
    numbers = Objects(target=np.array([[1, 1, 0, 0]]), prediction=np.array([[4, 4, 5, 5]]))
    found = find_kinds(numbers, np.array([[1, 255, 255, 255]]), np.array([[1, 1, 1, 1]]), CELLS)
    np.testing.assert_array_equal(found.matched, [[4, 0, 0, 0]])
    assert found.counts() == (1, 0, 0)


def test_an_object_of_another_class_is_missed_and_false_as_in_the_measures():
    target, labels = np.array([[1, 1, 0, 2, 2]]), np.array([[2, 2, 0, 2, 2]])
    found = find_kinds(Objects(target=target, prediction=target), target, labels, VEHICLES)
    assert found.counts() == (1, 1, 1)
    np.testing.assert_array_equal(found.missed > 0, [[True, True, False, False, False]])
    np.testing.assert_array_equal(found.spurious > 0, [[True, True, False, False, False]])
    np.testing.assert_array_equal(found.found > 0, [[False, False, False, True, True]])


@pytest.mark.parametrize(("connectivity", "counts"), [(8, (1, 0, 0)), (4, (2, 0, 0))])
def test_without_numbers_the_parts_of_a_class_are_its_objects_as_the_measure_says(connectivity, counts):
    config = MetricsConfig(measures=({"name": "instances", "connectivity": connectivity, "threshold": 0.6},))
    labels = np.array([[1, 0], [0, 1]])
    objects = measured_objects(config, None, None)
    assert (objects.matched, objects.threshold) == (True, 0.6)
    assert find_kinds(objects, labels, labels, CELLS).counts() == counts
    assert not measured_objects(MetricsConfig(), None, None).matched
    assert not measured_objects(MetricsConfig(), labels, None).matched


@pytest.mark.parametrize(
    ("measures", "threshold"),
    [
        (({"name": "aji", "connectivity": 8}, {"name": "instances", "connectivity": 4, "threshold": 0.3}), 0.3),
        (({"name": "aji"}, {"name": "events", "connectivity": 4, "threshold": 0.2}), 0.2),
        (({"name": "sizes", "connectivity": 4, "threshold": 0.4},), 0.4),
        (({"name": "average_precision", "connectivity": 4, "thresholds": (0.7, 0.8)},), 0.7),
        (({"name": "aji", "connectivity": 4},), 0.5),
    ],
    ids=lambda value: "+".join(one["name"] for one in value) if isinstance(value, tuple) else "",
)
def test_objects_are_those_of_the_measure_that_matches_them(measures, threshold):
    objects = measured_objects(MetricsConfig(measures=measures), None, None)
    assert (objects.threshold, objects.connectivity) == (threshold, 4)


def test_the_measure_says_which_classes_count_and_whether_their_parts_are_the_objects():
    labels = np.array([[1, 1, 0, 2, 2]])
    config = MetricsConfig(measures=({"name": "instances", "classes": ("bus",)},))
    found = find_kinds(measured_objects(config, None, None), labels, labels, VEHICLES)
    np.testing.assert_array_equal(found.matched > 0, labels == 2)
    assert found.counts() == (1, 0, 0)
    numbers, cell = np.array([[1, 2]]), np.array([[1, 1]])  # one part, whatever its numbers
    config = MetricsConfig(measures=({"name": "instances", "objects": "components"},))
    assert find_kinds(measured_objects(config, numbers, numbers), cell, cell, CELLS).counts() == (1, 0, 0)
