"""What the array types promise is what the functions give."""

from typing import get_args

import numpy as np

from segmeter.metrics.arrays import BoolArray, FloatArray, IntArray, plain, say
from segmeter.metrics.distances import find_surface
from segmeter.metrics.pixels.confusion import confusion_matrix
from segmeter.metrics.surfaces import surface_metrics


def dtype_of(annotation):
    while not isinstance(annotation, type):  # NDArray[int64] of NumPy 2.5, or ndarray[shape, dtype[int64]]
        annotation = get_args(annotation)[-1]
    return np.dtype(annotation)


def test_functions_give_the_dtypes_that_they_are_annotated_with():
    mask = np.eye(4, dtype=bool)
    counts = confusion_matrix(mask.astype(np.uint8), mask.astype(np.uint8), num_classes=2)
    assert counts.dtype == dtype_of(IntArray)
    assert find_surface(mask).dtype == dtype_of(BoolArray)
    assert surface_metrics(mask, mask, spacing=(1, 1)).nsd.dtype == dtype_of(FloatArray)


def test_values_become_python_floats():
    for value in (np.float32(0.5), np.int64(2), np.array(0.25)):
        assert type(plain(value)) is type(say(value)) is float
    assert (plain(np.nan), say(np.nan)) == (None, None)
    assert [say(value) for value in (np.inf, -np.inf)] == ["inf", "-inf"]
