"""Casts between dtypes, and the mask of what was lost, against Python's own numbers."""

import math

import numpy as np
import pytest
import torch

from segmeter.bridge.dtypes import cast, comparable
from segmeter.errors import InputError

EDGES = [0, 1, 2, 127, 128, 255, 256, 2**15, 2**16, 2**24, 2**24 + 1, 2**31, 2**53 + 1, 2**63 - 1]
INTEGERS = ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "int64"]
FLOATS = ["float16", "float32", "float64"]


def lost(found):
    return [] if found is None else found.tolist()


@pytest.mark.parametrize("target", INTEGERS + FLOATS)
@pytest.mark.parametrize("source", INTEGERS[1:])
def test_an_integer_arrives_exactly_or_is_marked(source, target):
    info = np.iinfo(source)
    numbers = [n for edge in EDGES for n in (edge, -edge, -edge - 1) if info.min <= n <= info.max]
    converted, bad = cast("test", torch.from_numpy(np.array(numbers, source)), getattr(torch, target))
    fits = [exact(n, target) for n in numbers]
    assert (lost(bad) or [False] * len(numbers)) == [not fit for fit in fits]
    arrived = [int(n) for n, fit in zip(converted.tolist(), fits, strict=True) if fit]
    assert arrived == [n for n, fit in zip(numbers, fits, strict=True) if fit]


def exact(number, target):
    """Whether a dtype holds an integer, by Python's arithmetic and NumPy's scalars."""
    if target == "bool":
        return number in (0, 1)
    if target in INTEGERS:
        return np.iinfo(target).min <= number <= np.iinfo(target).max
    with np.errstate(over="ignore"):
        rounded = float(np.dtype(target).type(number))
    return math.isfinite(rounded) and int(rounded) == number


@pytest.mark.parametrize("target", INTEGERS)
def test_a_float_that_is_no_integer_of_the_target_is_marked(target):
    numbers = [
        0.0,
        1.0,
        -1.0,
        0.5,
        127.0,
        128.0,
        255.0,
        256.0,
        2.0**31,
        2.0**32,
        2.0**63,
        math.nan,
        math.inf,
        -math.inf,
    ]
    converted, bad = cast("test", torch.tensor(numbers, dtype=torch.float64), getattr(torch, target))
    fits = [math.isfinite(n) and n == int(n) and exact(int(n), target) for n in numbers]
    assert lost(bad) == [not fit for fit in fits]
    assert [n for n, fit in zip(converted.tolist(), fits, strict=True) if fit] == [
        n for n, fit in zip(numbers, fits, strict=True) if fit
    ]


def test_a_narrower_float_is_rounded_but_never_to_infinity():
    values = torch.tensor([0.1, 65504.0, 65519.0, 65520.0, 1e30, math.inf, math.nan], dtype=torch.float64)
    converted, bad = cast("test", values, torch.float16)
    assert lost(bad) == [False, False, False, True, True, False, False]
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(converted.numpy(), values.numpy().astype(np.float16))


def test_where_every_value_fits_nothing_is_checked():
    for source, target in (("uint8", "int16"), ("bool", "float16"), ("float16", "float32"), ("int16", "float32")):
        assert cast("test", torch.ones(2, dtype=getattr(torch, source)), getattr(torch, target))[1] is None


def test_a_conversion_without_meaning_is_refused():
    with pytest.raises(InputError, match=r"complex for a torch.complex64 tensor.*tensor.abs\(\)"):
        cast("test", torch.ones(1, dtype=torch.complex64), torch.float32)
    with pytest.raises(InputError, match="no arithmetic for uint64"):
        cast("test", torch.ones(1, dtype=torch.uint64), torch.float32)


def test_what_torch_cannot_compare_is_made_comparable():
    assert comparable(torch.tensor([3 + 4j])).tolist() == [5.0]
    assert comparable(torch.tensor([65535], dtype=torch.uint16)).tolist() == [65535]
    assert comparable(torch.tensor([1.5], dtype=torch.bfloat16)).dtype == torch.float32
