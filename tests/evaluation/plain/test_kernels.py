"""The compiled loop of the row counter by hand, and with its bounds checked; `test_pairs` compares whole files."""

import os
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from segmeter.evaluation.plain._kernels import count_rows


def count(first: list[int], second: list[int], *, ignore: int = 0) -> tuple[bool, int, list[list[int]]]:
    """Two rows of three pixels and two classes, each led by its filter."""
    counts = np.zeros((2, 2), np.int64)
    done, checksum = count_rows(np.array(first, np.uint8), np.array(second, np.uint8), 3, ignore, counts)
    return done, checksum, counts.tolist()


def test_rows_that_lean_on_the_row_above_by_hand():
    """Target 0 1 1 twice (Up, no residual); labels 0 0 1, then 1 + 0, 0, 0 to the left's sum: 1 1 1 (Sub)."""
    done, checksum, counts = count([0, 0, 1, 1, 2, 0, 0, 0], [0, 0, 0, 1, 1, 1, 0, 0])
    assert done
    assert checksum == zlib.crc32(bytes([0, 1, 1, 0, 1, 1]))
    assert counts == [[1, 1], [1, 3]]  # target 0: labels 0, 1; target 1: labels 0 1, 1 1


@pytest.mark.parametrize("second", [[5, 0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 2, 0, 0]], ids=["filter", "value"])
def test_an_unknown_filter_or_value_is_told(second):
    assert not count([0] * 8, second)[0]


def test_the_kernels_stay_inside_their_arrays(tmp_path):
    """The counts of `test_pairs` with every index checked by numba."""
    chosen = ["-q", "-p", "no:cacheprovider", "-k", "counts_are and 19", str(Path(__file__).with_name("test_pairs.py"))]
    code = f"import pytest; raise SystemExit(pytest.main({chosen}))"
    environment = os.environ | {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[3],
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:]
