"""The compiled loops load late, and do without a folder for their cache."""

import subprocess
import sys

import numba
import numpy as np

from segmeter.metrics.pixels import _confusion_kernels as kernels


def test_numba_is_not_imported_before_something_is_counted():
    code = (
        "import sys; import segmeter; segmeter.confusion_matrix; import segmeter.metrics.summary.summary;"
        "print('numba' in sys.modules, 'torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["False", "False"]


def test_without_a_writable_cache_folder_the_loop_is_compiled_in_memory(monkeypatch):
    plain = numba.njit

    def refuse_caching(function, *, cache=False, **options):
        if cache:
            raise RuntimeError("cannot cache function: no locator available")  # what numba says
        return plain(function, **options)

    monkeypatch.setattr(numba, "njit", refuse_caching)
    double = kernels.compiled(lambda value: 2 * value)
    assert double(21) == 42


def test_numba_says_runtime_error_when_no_cache_folder_can_be_written(monkeypatch):
    # the sentence that the fallback rests on, from numba itself
    from numba.core import caching

    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])
    double = kernels.compiled(lambda value: 2 * value)
    assert double(21) == 42


def test_a_full_sub_histogram_table_fits_the_pairs_dtype():
    largest = kernels.MOST_CLASSES
    assert (largest + 2) * (largest + 1) <= np.iinfo(np.uint16).max < (largest + 3) * (largest + 2)
