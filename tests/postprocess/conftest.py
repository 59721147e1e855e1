"""Fixtures of the post-processing tests."""

import numpy as np
import pytest
from skimage.draw import polygon

from segmeter.classes import ClassSpec


def make_spec(count=4, task="multiclass"):
    return ClassSpec(task=task, names=tuple("abcdefgh"[:count]), colours=((1, 2, 3),) * count)


@pytest.fixture
def rng():
    return np.random.default_rng(20240917)


@pytest.fixture
def spec():
    return make_spec()


@pytest.fixture
def blobs(rng):
    """Label map (60, 70) uint8 of 4 classes with objects of many sizes, some at the edge."""
    coarse = rng.integers(0, 4, (15, 14))
    labels = np.kron(coarse, np.ones((4, 5), int)).astype(np.uint8)
    noise = rng.random(labels.shape) < 0.05
    labels[noise] = rng.integers(0, 4, noise.sum())
    return labels


def filled(rings, shape):
    """Pixel centres inside an odd number of the rings, by scikit-image's polygon test."""
    inside = np.zeros(shape, bool)
    for ring in rings:
        x, y = np.array(ring, float).T
        rows, columns = polygon(y - 0.5, x - 0.5, shape)
        inside[rows, columns] ^= True
    return inside
