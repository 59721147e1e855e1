"""The compiled loop behind `draws.map_weights`; imported for many draws only, as numba takes a moment to load."""

from typing import Any

import numpy as np

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
