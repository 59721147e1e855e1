"""Images that are made visible, index maps by hand, and objects and kinds of error against loops."""

import itertools

import numpy as np
import pytest
from scipy.ndimage import label

from segmeter.classes import ClassSpec
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.report.pictures import maps
from segmeter.report.pictures.layers import reduce_labels
from segmeter.report.pictures.objects import Objects, find_kinds, measured_objects

from ..conftest import SPEC


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
def test_any_number_of_channels_and_dtype_gives_rgb(rng, channels, dtype):
    image = (rng.random((6, 7, channels)) * 200).astype(dtype)
    shown = maps.display_image(image)
    assert shown.shape == (6, 7, 3)
    assert shown.dtype == np.uint8
    if channels == 1:
        assert (shown == shown[..., :1]).all()
    if channels == 2:
        assert (shown[..., 2] == 0).all()
    if channels == 3 and dtype == np.uint8:
        np.testing.assert_array_equal(shown, image)  # as it is


def test_wide_values_are_stretched_between_percentiles_and_constant_or_infinite_ones_are_black():
    ramp = np.linspace(1000, 3000, 1001, dtype=np.float32).reshape(7, 143, 1)
    shown = maps.display_image(ramp)[..., 0]
    assert shown.min() == 0
    assert shown.max() == 255
    assert shown.ravel()[500] in (127, 128)
    ramp[0, :3, 0] = np.nan, np.inf, -np.inf
    assert (maps.display_image(ramp)[0, :3] == 0).all()
    for value in (0.0, 5.0, np.nan):
        assert (maps.display_image(np.full((3, 3, 1), value, np.float32)) == 0).all()


def test_contours_lie_on_both_sides_of_a_border():
    labels = np.array([[0, 0, 1, 1], [0, 0, 1, 1], [2, 2, 2, 2]])
    np.testing.assert_array_equal(maps.contours(labels), [[0, 1, 1, 0], [1, 1, 1, 1], [1, 1, 1, 1]])
    assert not maps.contours(np.zeros((3, 3))).any()


def test_dim_images_are_stretched_and_others_are_not(rng):
    dim = rng.integers(5, 40, (30, 30, 3)).astype(np.uint8)
    light = maps.lighten(dim)
    assert light.min() == 0
    assert light.max() == 255
    bright = rng.integers(0, 200, (30, 30, 3)).astype(np.uint8)
    assert maps.lighten(bright) is bright
    assert (maps.lighten(np.zeros((3, 3, 3), np.uint8)) == 0).all()


@pytest.mark.parametrize(("shape", "edge"), [((300, 500), 120), ((97, 61), 40), ((50, 50), 60)])
def test_a_reduced_map_has_no_broken_line_and_no_other_values(rng, shape, edge):
    """Lines of one pixel's width: as many connected parts as before, where no block joins two of them."""
    lines = np.zeros(shape, np.uint8)
    lines[np.arange(40), np.arange(40) + 3] = 1
    lines[45] = 2
    share = min(1, edge / max(shape))
    small = maps.reduce_ranks(lines, tuple(round(side * share) for side in shape))
    assert max(small.shape) == min(edge, max(shape))
    for value in (1, 2):
        assert label(small == value, np.ones((3, 3)))[1] == label(lines == value, np.ones((3, 3)))[1] == 1
    blocks = [np.arange(new) * old // new for new, old in zip(small.shape, shape, strict=True)]
    whole = [[lines[y:y2, x:x2].max() for x, x2 in itertools.pairwise([*blocks[1], shape[1]])]
             for y, y2 in itertools.pairwise([*blocks[0], shape[0]])]  # fmt: skip
    np.testing.assert_array_equal(small, whole)


SKY = ClassSpec(task="multiclass", names=("sky", "road"), colours=((128, 128, 128), (128, 64, 128)))
PLANES = ClassSpec(task="multilabel", names=("a", "b"), colours=((1, 1, 1),) * 2, ignore_index=9)


@pytest.mark.parametrize(
    ("target", "labels", "kinds", "spec"),
    [
        ([0, 1, 1, 0, 1, 255], [0, 1, 0, 2, 2, 1], [0, 0, 1, 2, 3, maps.IGNORED], SPEC),
        ([0, 1, 0], [1, 0, 0], [3, 3, 0], SKY),
        ([[1, 1, 0, 1, 9], [0, 1, 0, 0, 9]], [[1, 0, 1, 0, 1], [0, 1, 0, 1, 0]], [0, 1, 2, 3, maps.IGNORED], PLANES),
    ],
    ids=["classes", "class 0 is no background", "planes"],
)
def test_error_kinds_by_hand(target, labels, kinds, spec):
    target, labels = (np.array(each)[..., None, :] for each in (target, labels))
    assert maps.classify_errors(target, labels, spec).tolist() == [kinds]


def test_a_legend_leaves_out_errors_that_no_pixel_has(spec):
    found = maps.error_map(np.array([[0, 2, 4]], np.uint8), spec)
    assert [entry.get("absent", False) for entry in found.entries] == [False, True, False, True, False]


@pytest.mark.parametrize("first", [(0, 0, 0), (9, 9, 9)], ids=["background", "sky"])
def test_each_block_has_its_rarest_label_and_background_and_ignored_only_where_nothing_else_is(first, rng):
    colours = (first, (1, 1, 1), (2, 2, 2))
    spec = ClassSpec(task="multiclass", names=("z", "a", "b"), colours=colours, ignore_index=9)
    labels = rng.choice(np.array([0, 1, 2, 9], np.uint8), (30, 45), p=[0.8, 0.13, 0.02, 0.05])
    counts = np.bincount(labels.ravel(), minlength=10)
    behind = {9: 1} | ({0: 2} if spec.has_background else {})

    def most_important(block):
        return min(np.unique(block).tolist(), key=lambda value: (behind.get(value, 0), counts[value]))

    blocks = labels.reshape(10, 3, 9, 5).swapaxes(1, 2)
    expected = [[most_important(block) for block in row] for row in blocks]
    np.testing.assert_array_equal(reduce_labels(labels, (10, 9), spec), expected)


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
