"""Fixtures of the export tests."""

import numpy as np
import pytest

from segmeter.classes import ClassSpec


@pytest.fixture
def rng():
    return np.random.default_rng(20240917)


@pytest.fixture
def spec():
    return ClassSpec(
        task="multiclass",
        names=("sky", "road", "car"),
        colours=((0, 0, 0), (90, 90, 90), (0, 0, 255)),
        ignore_index=255,
    )


@pytest.fixture
def planes_spec():
    return ClassSpec(task="multilabel", names=("liver", "left lung"), colours=((255, 0, 0), (0, 255, 0)))
