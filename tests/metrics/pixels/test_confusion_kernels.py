"""The compiled loop that counts loads late, counts as NumPy does, and its pairs fit their dtype."""

import subprocess
import sys

import numpy as np
import pytest

from segmeter.metrics.pixels import confusion
from segmeter.metrics.pixels._kernels import count_pairs


def test_numba_is_not_imported_before_much_is_counted():
    code = (
        "import sys; import numpy, segmeter; import segmeter.metrics.summary.summarise;"
        "few, many = (numpy.zeros(size, numpy.uint8) for size in (9, 2 * 10**7));"
        "segmeter.confusion_matrix(few, few, num_classes=2); print('numba' in sys.modules, 'torch' in sys.modules);"
        "segmeter.confusion_matrix(many, many, num_classes=2); print('numba' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["False", "False", "True"]


def test_a_full_sub_histogram_table_fits_the_pairs_dtype():
    largest = confusion.MOST_COMPILED
    assert (largest + 2) * (largest + 1) <= np.iinfo(np.uint16).max < (largest + 3) * (largest + 2)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("length", [1, 8, 40], ids=["noise", "words", "runs"])
@pytest.mark.parametrize("classes", [1, 2, 19, 253, 254])
def test_both_ways_of_counting_agree(classes, length, dtype):
    """Mutation seen to fail: the last run of equal pairs is not added."""
    rng = np.random.default_rng(classes)
    most = min(classes + 3, np.iinfo(dtype).max + 1)
    for size in (1, 4095, 4096, 70_000):
        target, labels = (np.repeat(rng.integers(0, most, size), length)[:size].astype(dtype) for _ in range(2))
        for ignore in (0, classes):
            found = count_pairs(target, labels, classes, ignore)
            np.testing.assert_array_equal(found, confusion._count_plainly(target, labels, classes, ignore))
