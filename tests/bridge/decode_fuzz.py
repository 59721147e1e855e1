"""Argmax and threshold by every kernel over random layouts, types and sizes, against NumPy.

It runs in a process of its own, as Triton reads TRITON_INTERPRET when it is imported.
"""

import json
import re
import sys
from contextlib import nullcontext
from unittest import mock

import numpy as np
import pytest
import torch

from segmeter.bridge import argmax
from segmeter.bridge.decode import labels_to_numpy
from segmeter.bridge.transfer import Transfer
from segmeter.errors import InputError
from tests.views import GuardZones, laid_out

CHANNELS = (1, 2, 3, 5, 11, 19, 33, 64, 150, 256, 257, 300)
SPACES = ((), (1,), (5,), (997,), (1, 1), (3, 7), (13, 37), (40, 24), (120, 96), (17, 1), (2, 3, 5))
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
BAD = ((), (), (), (np.nan,), (np.inf,), (-np.inf,), (np.nan, np.inf, -np.inf))


def message(values, bad, shape):
    """What the error says, from NumPy alone: `bad` marks pixels, `values` are all logits."""
    low, high = (np.nan, np.nan) if np.isnan(values).any() else (values.min(), values.max())
    nans = np.isnan(values).any(1) if values.ndim > bad.ndim else np.isnan(values)
    first = tuple(int(place) for place in np.unravel_index(int(bad.argmax()), shape))
    counts = f"{bad.sum()} bad value(s) ({(bad & nans).sum()} NaN, {(bad & ~nans).sum()} infinite)"
    return f"min {float(low)!r} and max {float(high)!r}, {counts}, the first at index {first}"


def draw(rng, device):
    """A task and its logits, small integers, so that ties are common; some are not finite. Around the view lies NaN."""
    task = str(rng.choice(["binary", "multiclass", "multilabel"], p=[0.2, 0.6, 0.2]))
    channels = 1 if task == "binary" else int(rng.choice(CHANNELS))
    spaces = [space for space in SPACES if channels * np.prod(space) <= 60_000]
    shape = (int(rng.integers(1, 4)), channels, *spaces[rng.integers(len(spaces))])
    bad, dtype = BAD[rng.integers(len(BAD))], DTYPES[rng.integers(3)]

    def values(count):
        drawn = rng.integers(-4, 5, count) + float(rng.choice([0, 5]))
        drawn[rng.integers(0, count, len(bad))] = bad
        return torch.from_numpy(drawn).to(dtype)

    return task, laid_out(shape, rng, np.nan, values, device)


def check(task, logits):
    """Compare labels, or the message, and find the memory around all outputs untouched; give their number."""
    classes = 2 if task == "binary" else logits.shape[1]
    more = {"task": task, "num_classes": classes, "threshold": 0.9}
    values, zones = logits.double().cpu().numpy(), GuardZones()
    if task == "binary":
        values = values[:, 0]
    odd = ~(np.isfinite(values).all(1) if task == "multiclass" else np.isfinite(values))
    if odd.any():
        with zones, pytest.raises(InputError) as error:
            labels_to_numpy(logits, **more)
        assert message(values.astype(np.float32), odd, odd.shape) in str(error.value), error.value
        return zones.check()
    with zones:
        labels = labels_to_numpy(logits, **more)
    expected = values.argmax(1) if task == "multiclass" else values > np.log(9)
    assert labels.dtype == (np.uint16 if classes > 256 and task == "multiclass" else labels.dtype)
    np.testing.assert_array_equal(labels, expected)
    return zones.check()


def check_far_channels(device):
    """Channels that lie more than 2^31 values apart, as those of a very large image do; little of the span is used."""
    apart, values = 2**31 - 64, np.array([[0, 2, 0, 1], [1, 0, 0, 2], [2, 1, 1, 0]], np.float32)
    span = torch.empty(2 * apart + 4, dtype=torch.float16, device=device)
    logits = span.as_strided((1, 3, 4), (0, apart, 1)).copy_(torch.from_numpy(values))
    labels, record = argmax.argmax_labels(logits, torch.uint8)
    np.testing.assert_array_equal(labels.cpu().numpy()[0], values.argmax(0))
    assert not record[0]


def check_wide_range(device):
    """Smallest and largest float32, subnormals and both zeros keep their order as integers."""
    values = np.array([-3.4e38, -1e-45, -0.0, 0.0, 1e-45, 3.4e38, np.inf], np.float32)
    _, record = argmax.argmax_labels(torch.from_numpy(values).to(device).view(1, 1, 7), torch.uint8)
    kept = {"payload": record, "private": True, "record": record, "words": ("f", "x", "", "")}
    found = Transfer(**kept, shape=(7,), values=torch.float32, sortable=True)
    with pytest.raises(InputError, match=re.escape(f"min {float(values[0])!r} and max inf, 1 bad")):
        found.check(record.cpu())


def main(device, rounds, seed):
    check_far_channels(device)
    check_wide_range(device)
    triton = nullcontext() if device != "cpu" else mock.patch.object(argmax, "fused_takes", return_value=True)
    ways = {"triton": triton} if device != "cpu" else {"triton": triton, "cpu": mock.patch.object(argmax, "SMALL", 0)}
    done, guarded = dict.fromkeys(ways, 0), 0
    for number in range(rounds):
        task, logits = draw(np.random.default_rng([seed, number]), device)
        for way, patched in ways.items():
            try:
                with patched:
                    guarded += check(task, logits)
            except (AssertionError, pytest.fail.Exception) as error:
                view = (task, logits.dtype, logits.shape, logits.stride())
                raise AssertionError(f"case {number}, {way}, {view}: {error}") from error
            done[way] += 1
    return {"seed": seed, "compared": done, "guarded": guarded}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
