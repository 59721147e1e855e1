"""Small compiled loops of the metrics; imported on first use, as numba takes a moment to load."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.jit import kernel


@kernel
def tally_draws(halves: Any, weights: Any) -> None:
    """Count how often each unit is drawn.

    Parameters
    ----------
    halves : (R, at least N) uint32
        A draw each: its product with N, without the low 32 bits, is the unit's index.
    weights : (R, N) float64
        Filled.
    """
    resamples, units = weights.shape
    for row in range(resamples):
        weights[row] = 0.0
        for k in range(units):
            drawn = (np.uint64(halves[row, k]) * np.uint64(units)) >> np.uint64(32)
            weights[row, drawn] += 1.0


@kernel
def add_named(drawn: Any, table: Any, sums: Any) -> None:
    """Add to each sum the table's entries that its bytes name.

    Parameters
    ----------
    drawn : (R, P) uint8
    table : (P, 256) float64
    sums : (R,) float64
        Changed.
    """
    resamples, places = drawn.shape
    for place in range(places):  # its row of the table stays in the first-level cache
        for row in range(resamples):
            sums[row] += table[place, drawn[row, place]]


@kernel
def find_band(labels: NDArray[Any], width: int) -> NDArray[Any]:
    """Mark the pixels (H, W) whose window, `width` pixels to each side, leaves the image or holds another value.

    For each value that is its mask without the mask's erosion, `width` times with 3 x 3. One pass serves all values: a
    window is uniform where its rows are uniform and agree.
    """
    height, length = labels.shape
    band = np.ones((height, length), np.bool_)
    depth = np.zeros(length, np.int64)  # uniform stretches of one value, one above the other, that end in this row
    for y in range(height):
        start = 0  # of the run of equal pixels that ends in x
        for x in range(length):
            if x > 0 and labels[y, x] != labels[y, x - 1]:
                start = x
            middle = x - width
            if middle < width:
                continue
            if x - 2 * width < start:
                depth[middle] = 0
            elif y > 0 and labels[y, middle] == labels[y - 1, middle]:
                depth[middle] += 1
            else:
                depth[middle] = 1
            if depth[middle] > 2 * width:
                band[y - width, middle] = False
    return band
