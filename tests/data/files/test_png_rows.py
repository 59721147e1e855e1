"""The compiled loops of the PNG reader by hand; `test_png` compares whole files with Pillow."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from segmeter.data.files.png_rows import undo_filters

ABOVE = [10, 20, 30]
ROWS = {  # filter -> residuals under a row of 10, 20, 30, and what they stand for (PNG specification, section 9.2)
    0: ([1, 2, 3], [1, 2, 3]),
    1: ([1, 2, 255], [1, 3, 2]),  # + left: 1, 1 + 2, 3 + 255 - 256
    2: ([1, 2, 255], [11, 22, 29]),  # + above
    3: ([1, 2, 3], [6, 15, 25]),  # + floor of the mean: 5 + 1, (6 + 20) // 2 + 2, (15 + 30) // 2 + 3
    4: ([1, 2, 3], [11, 22, 33]),  # + nearest of left, above, above left to left + above - above left
}


@pytest.mark.parametrize("kind", ROWS)
def test_each_filter_by_hand(kind):
    residuals, expected = ROWS[kind]
    found = np.zeros(6, np.uint8)
    assert undo_filters(np.array([0, *ABOVE, kind, *residuals], np.uint8), found, 2, 3, 1)
    assert found.tolist() == [*ABOVE, *expected]


def test_samples_of_two_bytes_lean_on_the_byte_two_before():
    found = np.zeros(4, np.uint8)
    assert undo_filters(np.array([1, 5, 6, 1, 250], np.uint8), found, 1, 4, 2)
    assert found.tolist() == [5, 6, 6, 0]


def test_an_unknown_filter_is_told():
    assert not undo_filters(np.array([5, 1], np.uint8), np.zeros(1, np.uint8), 1, 1, 1)


@pytest.mark.slow
def test_the_kernels_stay_inside_their_arrays(tmp_path):
    """The same files with every index checked by numba."""
    code = "import pytest; raise SystemExit(pytest.main(['-q', '-p', 'no:cacheprovider', '-k', 'every_kind', PATH]))"
    environment = os.environ | {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    here = repr(str(Path(__file__).with_name("test_png.py")))
    done = subprocess.run(
        [sys.executable, "-c", code.replace("PATH", here)],
        env=environment,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[3],
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:]
