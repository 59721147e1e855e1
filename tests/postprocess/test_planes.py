"""How masks become label maps: the fill, the order of classes, planes."""

import numpy as np
import pytest
from scipy import ndimage

from segmeter.errors import ConfigError
from segmeter.postprocess.masks import apply_per_class, class_indices, fill_from_nearest

from .conftest import make_spec


def clear(mask):
    return np.zeros_like(mask)


def test_lost_pixels_take_the_nearest_label():
    labels = np.array([[1, 9, 9, 9, 9, 2]], np.uint8)
    fill_from_nearest(labels, labels == 9, of=labels == 9)
    np.testing.assert_array_equal(labels, [[1, 1, 1, 2, 2, 2]])


def test_equally_near_labels_are_decided_alike_wherever_they_lie():
    found = set()
    for top, left in ((0, 0), (3, 5), (7, 1)):
        labels = np.zeros((10, 10), np.uint8)
        labels[top : top + 3, left : left + 3] = [[0, 5, 0], [3, 9, 4], [0, 6, 0]]
        fill_from_nearest(labels, labels == 9, of=labels == 9)
        found.add(int(labels[top + 1, left + 1]))
    assert found in ({3}, {4}, {5}, {6})


def test_a_lost_pixel_never_gets_its_own_class_back():
    # Class 1 lies on both sides of the lost pixel, one step away; class 2 is two steps away and class 0 three.
    labels = np.array([[0, 1, 1, 1, 1, 2]], np.uint8)

    def lose_the_fourth(mask):
        return mask & (np.arange(6) != 3)

    result = apply_per_class(labels, lose_the_fourth, classes=(1,), multilabel=False)
    np.testing.assert_array_equal(result, [[0, 1, 1, 2, 1, 2]])


@pytest.mark.parametrize("share", [0.05, 0.5, 0.95])
@pytest.mark.parametrize("shape", [(30, 41), (1, 50), (50, 1)])
def test_labels_come_from_the_smallest_city_block_distance(rng, share, shape):
    labels = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)  # a label says where it came from
    of = rng.random(shape) < share
    of.flat[0] = False
    lost = of & (rng.random(shape) < 0.5)
    filled = labels.copy()
    fill_from_nearest(filled, lost, of=of)
    np.testing.assert_array_equal(filled[~lost], labels[~lost])
    rows, columns = np.nonzero(lost)
    source_rows, source_columns = np.divmod(filled[lost], shape[1])
    distance = ndimage.distance_transform_cdt(of, metric="taxicab")[lost]
    np.testing.assert_array_equal(abs(rows - source_rows) + abs(columns - source_columns), distance)
    assert not of[source_rows, source_columns].any()


def test_gained_pixels_are_taken_from_any_class_and_later_classes_see_it():
    labels = np.array([[1, 2, 3, 0]], np.uint8)
    for classes, expected in (((1, 3), [1, 3, 3, 3]), ((3, 1), [1, 1, 3, 3])):
        found = apply_per_class(labels, ndimage.binary_dilation, classes=classes, multilabel=False)
        assert found.tolist() == [expected]


@pytest.mark.parametrize("multilabel", [False, True])
def test_input_is_left_alone_and_keep_changes_nothing(blobs, multilabel):
    labels = np.stack([blobs == k for k in range(4)]).astype(np.uint8) if multilabel else blobs
    before = labels.copy()
    result = apply_per_class(labels, np.copy, classes=(0, 1, 2, 3), multilabel=multilabel)
    np.testing.assert_array_equal(result, labels)
    apply_per_class(labels, clear, classes=(1,), multilabel=multilabel)
    np.testing.assert_array_equal(labels, before)


def test_classes_default_to_all_but_the_first_and_to_every_plane():
    assert class_indices(None, make_spec(4), where="x") == (1, 2, 3)
    assert class_indices(None, make_spec(2, "multilabel"), where="x") == (0, 1)
    assert class_indices(("c", "a"), make_spec(4), where="x") == (2, 0)


def test_unknown_classes_are_refused_all_at_once():
    with pytest.raises(ConfigError, match=r"x: expected `classes` .* got 'x'\. Known: a, b") as caught:
        class_indices(("x", "a", "y"), make_spec(2), where="x")
    assert len(caught.value.problems) == 2
