"""Intensities are measured some rows at a time, in little memory."""

import tracemalloc
import weakref

import numpy as np
import pytest

from segmeter.data.verification.intensity import (
    measure_image,
    measure_rows,
)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_counting_some_rows_at_a_time_changes_no_bit(monkeypatch, dtype):
    image = np.sort(np.random.default_rng(0).integers(0, np.iinfo(dtype).max, (37, 23, 3)).astype(dtype), axis=0)
    whole = measure_image(image)
    np.testing.assert_allclose(whole[0], image.mean((0, 1)), rtol=1e-12)
    monkeypatch.setattr("segmeter.data.sample._AT_ONCE", 100)
    for one, other in zip(whole, measure_image(image), strict=True):
        np.testing.assert_array_equal(one, other)


def test_measuring_an_image_takes_little_more_memory_than_the_image():
    image = np.zeros((4096, 4096, 3), np.uint8)
    tracemalloc.start()
    measure_image(image)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < image.nbytes / 3


def test_bands_of_floats_are_dropped_once_they_are_measured():
    alive, most = [], []

    def bands():
        for number in range(40):
            band = np.full((32, 8, 1), number, np.float32)
            alive.append(weakref.ref(band))
            yield band
            del band
            most.append(sum(each() is not None for each in alive))

    measure_rows(bands(), np.dtype(np.float32))
    assert max(most) <= 2
