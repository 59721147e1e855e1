import numpy as np
import pytest

from segmeter.data.sample import count_classes, count_decided
from tests.models.parts import make_spec


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_classes_are_counted_and_ignored_pixels_are_in_none(dtype):
    rng = np.random.default_rng(0)
    target = rng.choice([0, 1, 2, 255], (17, 23)).astype(dtype)
    spec = make_spec(3)
    assert count_classes(target, spec).tolist() == [(target == k).sum() for k in range(3)]
    assert count_decided(target, spec).tolist() == [(target != 255).sum()] * 3


def test_a_class_without_pixels_counts_zero():
    assert count_classes(np.zeros((2, 2), np.uint8), make_spec(4)).tolist() == [4, 0, 0, 0]


def test_each_plane_of_multilabel_has_its_own_ignored_pixels():
    target = np.array([[[1, 0, 255]], [[255, 255, 1]]], np.uint8)
    spec = make_spec(2, "multilabel")
    assert count_classes(target, spec).tolist() == [1, 1]
    assert count_decided(target, spec).tolist() == [2, 1]
