"""The numba kernels behind `argmax`; imported on the first large map, as numba takes a moment to load.

Both find the first largest channel of each pixel, and whether all values were finite. 0 times a value is 0, but NaN
for NaN and infinity, so the sum of these products shows it without overflow.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.jit import kernel

Values = NDArray[Any]

BLOCK = 1024  # the highs, labels and sums of this many pixels stay in the first-level cache


@kernel
def along_pixels(values: Values, stride: int, channels: int, labels: Values) -> bool:
    """Decode pixels that are adjacent in memory: channel c of pixel p is values[c * stride + p].

    It goes channel by channel, so that a vector register holds neighbouring pixels.
    """
    zero = values.dtype.type(0)
    high, total, label = np.empty(BLOCK, values.dtype), np.empty(BLOCK, values.dtype), np.empty(BLOCK, np.int32)
    finite = True
    for start in range(0, labels.size, BLOCK):
        size = min(BLOCK, labels.size - start)
        row = values[start : start + size]
        for p in range(size):
            high[p], total[p], label[p] = row[p], row[p] * zero, 0
        for channel in range(1, channels):
            row = values[channel * stride + start : channel * stride + start + size]
            winner = np.int32(channel)
            for p in range(size):
                value = row[p]
                total[p] += value * zero
                label[p] = winner if value > high[p] else label[p]
                high[p] = value if value > high[p] else high[p]
        for p in range(size):
            labels[start + p] = label[p]
            finite &= total[p] == zero
    return finite


@kernel
def along_channels(values: Values, stride: int, channels: int, labels: Values) -> bool:
    """Decode channels that are adjacent in memory (channels_last): channel c of pixel p is values[p * stride + c]."""
    zero = values.dtype.type(0)
    finite = True
    for p in range(labels.size):
        pixel = values[p * stride : p * stride + channels]
        high, total, label = pixel[0], pixel[0] * zero, 0
        for channel in range(1, channels):
            value = pixel[channel]
            total += value * zero
            if value > high:
                high, label = value, channel
        labels[p] = label
        finite &= total == zero
    return finite
