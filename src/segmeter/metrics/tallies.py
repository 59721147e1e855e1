"""The compiled loops behind `calibration`; imported on the first update, as numba takes a moment to load."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.metrics.kernels import compiled

BLOCK = 4096  # probabilities whose bits are looked at at a time: they stay in the first-level cache
MANTISSA = 10  # bits kept of a probability: 1024 steps in every octave below 0.5, and as many above, seen from 1
LOWEST = np.uint32(np.float32(2.0**-24).view(np.uint32) >> np.uint32(23 - MANTISSA))  # code of the least told from 0
MIDDLE = 23 * 2**MANTISSA + 1  # the step of 0.5
STEPS = 2 * MIDDLE + 1

Array = NDArray[Any]


@compiled
def find_steps(probs: Array, steps: Array) -> None:
    """Write the step (0 to STEPS - 1) of each probability: fine near 0 and near 1, where those of a model crowd."""
    near = np.empty(BLOCK, np.float32)
    bits = near.view(np.uint32)
    for start in range(0, probs.size, BLOCK):
        count = min(BLOCK, probs.size - start)
        for i in range(count):
            p = probs[start + i]
            near[i] = np.float32(p) if p < 0.5 else np.float32(1.0 - p)
        for i in range(count):
            code = np.int64(bits[i] >> np.uint32(23 - MANTISSA)) - np.int64(LOWEST) + 1
            code = max(code, np.int64(0))
            steps[start + i] = code if probs[start + i] < 0.5 else STEPS - 1 - code


@compiled
def tally_plane(
    target: Array, probs: Array, steps: Array, value: int, void: int, counts: Array, confidence: Array, sweep: Array
) -> None:
    """Add one class against the rest: `counts` (2, B), `confidence` (B,) and `sweep` (2, STEPS); row 1 is the class."""
    bins = confidence.size
    for i in range(target.size):
        if target[i] == void:
            continue
        hit = 1 if target[i] == value else 0
        place = max(math.ceil(probs[i] * np.float64(bins)) - 1, 0)
        counts[hit, place] += 1
        confidence[place] += probs[i]
        sweep[hit, steps[i]] += 1


@compiled
def tally_all(target: Array, probs: Array, void: int, counts: Array, confidence: Array, sums: Array) -> int:
    """Add the winners of probs (K, N) to `counts` (2, B), row 1 right, and `confidence` (B,).

    `sums` (2,) gets the squared errors over all classes and the negative logarithms of what the target's class was
    given; the result is how many of those were 0 and left out.
    """
    bins, impossible = confidence.size, 0
    for i in range(target.size):
        if target[i] == void:
            continue
        best, square = 0, 0.0
        for k in range(probs.shape[0]):
            p = np.float64(probs[k, i])
            square += p * p
            if probs[k, i] > probs[best, i]:
                best = k
        given = np.float64(probs[target[i], i])
        sums[0] += square - 2 * given + 1
        if given > 0:
            sums[1] -= math.log(given)
        else:
            impossible += 1
        hit = 1 if target[i] == best else 0
        place = max(math.ceil(probs[best, i] * np.float64(bins)) - 1, 0)
        counts[hit, place] += 1
        confidence[place] += probs[best, i]
    return impossible
