"""Compiled loops of statistics and calibration. Import them on first use: numba loads slowly."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.jit import kernel

Array = NDArray[Any]

_BYTE, _EIGHT = np.uint64(255), np.uint64(8)


@kernel
def tally_draws(halves: Any, weights: Any) -> None:
    """Count how often each unit is drawn.

    Parameters
    ----------
    halves : (R, at least N) uint32
        Random numbers, one for each draw: the high 32 bits of its product with N are the unit's index.
    weights : (R, N) float64
        Filled with the counts.
    """
    resamples, units = weights.shape
    for row in range(resamples):
        weights[row] = 0.0
        for k in range(units):
            drawn = (np.uint64(halves[row, k]) * np.uint64(units)) >> np.uint64(32)
            weights[row, drawn] += 1.0


@kernel
def add_named(drawn: Any, table: Any, sums: Any) -> None:
    """Add up, for each resample, the table's entries that its bytes select.

    Parameters
    ----------
    drawn : (R, W) uint64
        Each word has eight bytes, the lowest first. A byte selects the column in its row of the table.
    table : (8 W, 256) float64
    sums : (R,) float64
        The entries are added to these.
    """
    resamples, words = drawn.shape
    for word in range(words):  # its rows of the table stay in the first-level cache
        for row in range(resamples):
            rest, part = drawn[row, word], 0.0
            for byte in range(8):
                part += table[8 * word + byte, rest & _BYTE]
                rest >>= _EIGHT
            sums[row] += part


# A step is given by the first bits of a probability's mantissa: 10 bits (1024 steps in an octave) from 2**-24 on, and 6
# bits (64 steps) below.
FINE, COARSE = 10, 6
FINE_FROM = np.float32(2.0**-24).view(np.uint32)
FINE_CODE = int(FINE_FROM >> np.uint32(23 - FINE))
FINE_STEP = int(FINE_FROM >> np.uint32(23 - COARSE)) + 1  # the first fine step; step 0 is 0, step 1 goes up to 2**-132
MIDDLE = FINE_STEP + 23 * 2**FINE  # the step of 0.5
UNUSED = 74 * 2**COARSE  # This many steps are never used, as 1 - p is 0 or at least 2**-53.
STEPS = 2 * MIDDLE + 1 - UNUSED

BLOCK = 4096  # Handle this many probabilities at a time, so that they stay in the first-level cache.

NEAR = 1e-9  # A product this close to a whole number of bins may have been rounded across it.


@kernel
def find_steps(probs: Array, steps: Array) -> None:
    """Write the step (0 to STEPS - 1) of each probability. Steps are fine near 0 and near 1, where most of a model's
    values are.

    A float64 probability below 0.5 is rounded up. Above 0.5, its distance from 1 is rounded down. So a probability
    stays on the same side of every step's end.
    """
    near = np.empty(BLOCK, np.float32)
    bits = near.view(np.uint32)
    for start in range(0, probs.size, BLOCK):
        count = min(BLOCK, probs.size - start)
        for i in range(count):
            p = probs[start + i]
            near[i] = np.float32(p) if p < 0.5 else np.float32(1.0 - p)
        if probs.itemsize > 4:
            for i in range(count):
                p, q = np.float64(probs[start + i]), np.float64(near[i])
                if p < 0.5:
                    bits[i] += np.uint32(q < p)
                else:
                    bits[i] -= np.uint32(q > 1.0 - p)
        for i in range(count):
            fine = np.int64(bits[i] >> np.uint32(23 - FINE)) - FINE_CODE + FINE_STEP
            coarse = np.int64(bits[i] >> np.uint32(23 - COARSE)) + np.int64(bits[i] > 0)
            code = fine if bits[i] >= FINE_FROM else coarse
            steps[start + i] = code if probs[start + i] < 0.5 else STEPS - 1 - max(code - UNUSED, 0)


def lower_ends() -> Array:
    """Return the value that a probability of each step exceeds. For the lowest step, which contains only 0, it is
    negative.

    Below 0.5, a step starts with a float32 number, so its probabilities exceed the float32 before it. From 0.5 on, they
    exceed 1 - q for a float32 number q.
    """
    coarse = np.arange(FINE_STEP - 1, dtype=np.uint32) << np.uint32(23 - COARSE)
    coarse[0] = 1
    fine = FINE_FROM + (np.arange(MIDDLE - FINE_STEP + 1, dtype=np.uint32) << np.uint32(23 - FINE))
    starts = np.concatenate([coarse, fine]).view(np.float32)  # of steps 1 to MIDDLE
    below = np.nextafter(starts, np.float32(0)).astype(np.float64)
    cuts = starts[UNUSED:].astype(np.float64)
    above = 1.0 - cuts
    above = np.where(1.0 - above < cuts, np.nextafter(above, 0.0), above)
    return np.concatenate([[-1.0], below, above[::-1]])


@kernel
def _find_bin(p: Any, edges: Array) -> int:
    """Return the first bin whose upper edge is not below p. Near an edge, p is compared with it, as the product is
    rounded.
    """
    product = p * np.float64(edges.size - 1)
    edge = int(math.ceil(product))  # noqa: RUF046 - an Any to mypy
    if not NEAR < edge - product < 1 - NEAR:
        if edge > 0 and p <= edges[edge - 1]:
            edge -= 1
        elif p > edges[edge]:
            edge += 1
    return max(edge - 1, 0)


@kernel
def tally_plane(
    target: Array, probs: Array, steps: Array, value: int, void: int, counts: Array, confidence: Array, sweep: Array
) -> None:
    """Add one class against the rest: `counts` (2, B), `confidence` (B,) and `sweep` (2, STEPS); row 1 is the class."""
    edges = np.arange(confidence.size + 1) / confidence.size
    for i in range(target.size):
        if target[i] == void:
            continue
        hit = 1 if target[i] == value else 0
        bin_index = _find_bin(probs[i], edges)
        counts[hit, bin_index] += 1
        confidence[bin_index] += probs[i]
        sweep[hit, steps[i]] += 1


@kernel
def tally_all(target: Array, probs: Array, void: int, counts: Array, confidence: Array, sums: Array) -> int:
    """Add the winners of probs (K, N) to `counts` (2, B), whose row 1 has the right ones, and to `confidence` (B,).

    `sums` (2,) gets the squared errors over all classes and the negative logarithms of the target class's
    probabilities. Probabilities of 0 are left out; their number is returned.
    """
    edges, impossible = np.arange(confidence.size + 1) / confidence.size, 0
    for i in range(target.size):
        if target[i] == void:
            continue
        best, square = 0, 0.0
        for k in range(probs.shape[0]):
            p = np.float64(probs[k, i])
            square += p * p
            if probs[k, i] > probs[best, i]:
                best = k
        target_prob = np.float64(probs[target[i], i])
        sums[0] += square - 2 * target_prob + 1
        if target_prob > 0:
            sums[1] -= math.log(target_prob)
        else:
            impossible += 1
        hit = 1 if target[i] == best else 0
        bin_index = _find_bin(probs[best, i], edges)
        counts[hit, bin_index] += 1
        confidence[bin_index] += probs[best, i]
    return impossible
