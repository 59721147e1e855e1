"""Sums over the pixels of single images -> sums over all images, without rounding: in any order the same."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from segmeter.metrics.arrays import FloatArray, IntArray

_UNIT_BITS = 1074  # float64 is a multiple of 2**-1074


@dataclass(frozen=True, kw_only=True, eq=False)
class CalibrationCounts:
    """Numbers of pixels, int64, of C channels and B bins: `tops` (2, B), `classes` (C, 2, B), `sweeps` (C, 2, STEPS).

    `impossible` (1,) counts probabilities of 0 for the target's class. Of two rows the second is that of the hits.
    """

    tops: IntArray
    classes: IntArray
    sweeps: IntArray
    impossible: IntArray


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageSums:
    """Sums over the pixels of one image, float64, in the order of the pixels: the same wherever it is measured."""

    top_confidence: FloatArray  # (B,)
    confidence: FloatArray  # (C, B)
    losses: FloatArray  # squared errors, negative logarithms

    @classmethod
    def of(cls, channels: int, bins: int, values: Iterable[float] = ()) -> "ImageSums":
        """Zeros, or what `values` gave."""
        flat = np.zeros((channels + 1) * bins + 2)
        for place, value in enumerate(values):
            flat[place] = value
        confidence = flat[bins:-2].reshape(channels, bins)
        return cls(top_confidence=flat[:bins], confidence=confidence, losses=flat[-2:])

    def values(self) -> list[float]:
        """All sums, in one order."""
        return [*self.top_confidence.tolist(), *self.confidence.reshape(-1).tolist(), *self.losses.tolist()]


def exact(value: float) -> int:
    """A finite number in units of 2**-1074, of which every float64 is a whole number.

    Examples
    --------
    >>> rounded(exact(0.1) + exact(0.2) + exact(0.3)), 0.1 + 0.2 + 0.3
    (0.6, 0.6000000000000001)
    """
    numerator, denominator = value.as_integer_ratio()
    return numerator << (_UNIT_BITS - denominator.bit_length() + 1)


def rounded(units: int) -> float:
    """The float64 that is nearest to a number of those units."""
    return units / (1 << _UNIT_BITS)
