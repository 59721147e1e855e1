"""The fused kernels against NumPy on the device given.

It runs in a process of its own, as Triton reads TRITON_INTERPRET when it is imported.
"""

import itertools
import sys

import numpy as np
import torch

from segmeter.bridge import argmax
from segmeter.bridge.transfer import Rule, raise_if_bad
from segmeter.errors import InputError

SHAPES = [(1, 1, 5), (2, 2, 1), (3, 19, 333), (1, 5, 4100), (2, 150, 40), (1, 300, 9)]
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
LAYOUTS = ("contiguous", "channels_last", "cropped")
BAD = [(), (np.nan,), (np.inf,), (-np.inf,), (np.nan, np.inf), (-np.inf, np.inf, np.nan)]


def draw(shape, dtype, layout, bad, seed):
    """Small integers, so that ties are common, with `bad` values at random places; every second draw is above 0."""
    rng = np.random.default_rng(seed)
    values = rng.integers(-4, 5, shape).astype(np.float32) + 5 * (seed // len(BAD) % 2)
    for value in bad:
        values[tuple(rng.integers(0, size) for size in shape)] = value
    logits = torch.from_numpy(values).to(dtype)
    if layout == "channels_last":
        return values, logits.transpose(1, 2).contiguous().transpose(1, 2)
    if layout == "cropped":
        return values, torch.nn.functional.pad(logits, (3, 2))[..., 3:-2]
    return values, logits


def message(values, bad, shape):
    """What the error says, from NumPy alone: `bad` marks pixels, `values` are all logits."""
    low, high = (np.nan, np.nan) if np.isnan(values).any() else (values.min(), values.max())
    nans = np.isnan(values).any(1) if values.ndim > bad.ndim else np.isnan(values)
    first = tuple(int(place) for place in np.unravel_index(int(bad.argmax()), shape))
    counts = f"{bad.sum()} bad value(s) ({(bad & nans).sum()} NaN, {(bad & ~nans).sum()} infinite)"
    return f"min {float(low)!r} and max {float(high)!r}, {counts}, the first at index {first}"


def complaint(record, shape):
    """What reading the record raises, or None."""
    rule = Rule(where="f", argument="x", text="", remedy="", shape=shape, values=torch.float32, sortable=True)
    try:
        raise_if_bad(record.cpu().numpy(), rule, None)
    except InputError as error:
        return str(error)
    return None


def check_record(record, values, bad):
    said = complaint(record, bad.shape)
    assert (said is not None) == bad.any(), said
    assert said is None or message(values, bad, bad.shape) in said, said


def check_argmax(device):
    """Dtypes take turns, as the interpreter is slow."""
    cases = list(itertools.product(SHAPES, LAYOUTS, BAD))
    for number, (shape, layout, bad) in enumerate(cases):
        dtype = DTYPES[number % 3]
        values, logits = draw(shape, dtype, layout, bad, number)
        wanted = torch.uint16 if shape[1] > 256 else torch.uint8
        labels, record = argmax.argmax_labels(logits.to(device), wanted)
        odd = ~np.isfinite(values).all(1)
        assert labels.dtype == wanted
        np.testing.assert_array_equal(labels.cpu().numpy()[~odd], values.argmax(1)[~odd])
        check_record(record, values, odd)
    return len(cases)


def check_threshold(device):
    cases = list(itertools.product(BAD, (0.0, -1.5, np.inf, -np.inf)))
    for number, (bad, level) in enumerate(cases):
        values, logits = draw((2, 3, 1111), DTYPES[number % 3], "cropped", bad, number)
        labels, record = argmax.threshold_labels(logits.to(device), level, torch.uint8)
        odd = ~np.isfinite(values)
        np.testing.assert_array_equal(labels.cpu().numpy()[~odd], (values > level)[~odd])
        check_record(record, values, odd)
    return len(cases)


def check_wide_range(device):
    """Smallest and largest float32, subnormals and both zeros keep their order as integers."""
    values = np.array([-3.4e38, -1e-45, -0.0, 0.0, 1e-45, 3.4e38, np.inf], np.float32)
    _, record = argmax.threshold_labels(torch.from_numpy(values).to(device), 0.0, torch.uint8)
    assert f"min {float(values[0])!r} and max inf, 1 bad" in complaint(record, (7,))
    return 1


def check_far_channels(device):
    """Channels that lie more than 2^31 values apart, as those of a very large image do; little of the span is used."""
    apart, values = 2**31 - 64, np.array([[0, 2, 0, 1], [1, 0, 0, 2], [2, 1, 1, 0]], np.float32)
    span = torch.empty(2 * apart + 4, dtype=torch.float16, device=device)
    logits = span.as_strided((1, 3, 4), (0, apart, 1)).copy_(torch.from_numpy(values))
    labels, record = argmax.argmax_labels(logits, torch.uint8)
    np.testing.assert_array_equal(labels.cpu().numpy()[0], values.argmax(0))
    check_record(record, values, np.zeros(4, bool))
    return 1


def main(device):
    """Run everything; give the number of comparisons."""
    return check_argmax(device) + check_threshold(device) + check_wide_range(device) + check_far_channels(device)


if __name__ == "__main__":
    print(main(sys.argv[1]))
