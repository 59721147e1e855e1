"""The counting kernels load late, and their pairs fit their dtype."""

import subprocess
import sys

import numpy as np

from segmeter.metrics.pixels import _kernels as kernels


def test_numba_is_not_imported_before_something_is_counted():
    code = (
        "import sys; import segmeter; segmeter.confusion_matrix; import segmeter.metrics.summary.summarise;"
        "print('numba' in sys.modules, 'torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["False", "False"]


def test_a_full_sub_histogram_table_fits_the_pairs_dtype():
    largest = kernels.MOST_CLASSES
    assert (largest + 2) * (largest + 1) <= np.iinfo(np.uint16).max < (largest + 3) * (largest + 2)
