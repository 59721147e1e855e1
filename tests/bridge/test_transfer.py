"""Which values a conversion keeps, what a record tells of those it does not, and how many bytes cross."""

import math
import warnings

import numpy as np
import pytest
import torch

from segmeter.bridge.host_copier import HostCopier
from segmeter.bridge.transfer import NUMPY, TORCH, cast, packed, wanted_dtype
from segmeter.errors import InputError
from tests.bridge.fake_stream import FakeTransport

SMALL = ["bool", "uint8", "int8", "int16", "uint16", "float16"]
TARGETS = [name.name for name in TORCH if name.kind != "c"]


def every_value(name):
    """All finite values of a dtype of at most 16 bits."""
    if name == "bool":
        return np.array([False, True])
    if name == "float16":
        values = np.arange(65536, dtype=np.uint16).view(np.float16)
        return values[np.isfinite(values)]
    info = np.iinfo(name)
    return np.arange(info.min, info.max + 1).astype(name)


def arrives(values, target):
    """Where NumPy's conversion gives the same numbers, compared in complex128, which holds all of these exactly."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return values.astype(target).astype(np.complex128) == values.astype(np.complex128)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", SMALL)
def test_cast_marks_what_does_not_arrive(source, target):
    """Floats in a narrower float may be rounded, which no pair here needs. All values of each source are tried."""
    values = every_value(source)
    converted, bad = cast("here", torch.from_numpy(values), TORCH[np.dtype(target)])
    good = arrives(values, target)
    assert (bad is None) == good.all(), "a dtype that holds every value needs no check"
    np.testing.assert_array_equal(np.zeros(values.shape, bool) if bad is None else bad.numpy(), ~good)
    np.testing.assert_array_equal(converted.numpy()[good], values[good].astype(target))


BIG = [0, 1, -1, 2**24, 2**24 + 1, 2**31 - 1, -(2**31), 2**53, 2**53 + 1, 2**62, 2**63 - 1, 2**63 - 1024, -(2**63)]


@pytest.mark.parametrize("target", ["float16", "float32", "float64", "int32", "uint32"])
def test_cast_of_large_integers_agrees_with_exact_integers(target):
    """Python's integers are exact."""
    values = np.array(BIG, np.int64)
    _, bad = cast("here", torch.from_numpy(values), TORCH[np.dtype(target)])
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        arrived = values.astype(target)
    exact = [np.isfinite(there) and int(there.real) == given for given, there in zip(BIG, arrived, strict=True)]
    assert bad.tolist() == [not good for good in exact]


@pytest.mark.parametrize("target", ["int8", "uint16", "int32", "int64"])
def test_cast_of_floats_to_integers_refuses_fractions_and_limits(target):
    info = np.iinfo(target)
    good = [0.0, -0.0, 1.0, float(info.min)]
    bad = [0.5, -1.0 if info.min == 0 else -1.5, float(info.max) + 1.0, np.inf, -np.inf, np.nan]
    for dtype in (torch.float64, torch.float32):
        _, lost = cast("here", torch.tensor([*good, *bad], dtype=dtype), TORCH[np.dtype(target)])
        assert lost.tolist() == [False] * len(good) + [True] * len(bad)


def test_wanted_dtype_knows_the_names_that_both_sides_have():
    assert wanted_dtype("here", np.float32) == np.float32
    assert wanted_dtype("here", "uint16") == np.uint16
    assert set(NUMPY.values()) == set(TORCH)
    for name in (">f4", "object", "M8[s]", "longdouble", "U3", "bfloat16"):
        with pytest.raises(InputError, match="here: expected `dtype` to be one of bool, uint8"):
            wanted_dtype("here", name)


def test_a_narrower_float_is_rounded_but_never_to_infinity():
    values = torch.tensor([0.1, 65504.0, 65519.0, 65520.0, 1e30, math.inf, math.nan], dtype=torch.float64)
    converted, bad = cast("test", values, torch.float16)
    assert bad.tolist() == [False, False, False, True, True, False, False]
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(converted.numpy(), values.numpy().astype(np.float16))


def test_a_conversion_without_meaning_is_refused():
    kinds = (("complex64", "float32"), ("uint8", "complex64"), ("uint64", "float32"))
    for source, target in kinds:
        with pytest.raises(InputError, match=rf"to be torch.{source} for a torch.{source} tensor"):
            cast("test", torch.ones(1, dtype=getattr(torch, source)), getattr(torch, target))


RULE = ("here", "tensor", "to be good", "Do it.")


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64, torch.int16, torch.int64])
def test_a_record_tells_count_range_and_first_position(dtype):
    """Bad are the values 5 and 7, at (0, 2) and (1, 1)."""
    values = torch.tensor([[1, 2, 5], [3, 7, -4]]).to(dtype)
    found = packed(values, values, values > 4, values, RULE)
    assert found.record.shape == (6,)
    low, high = (-4.0, 7.0) if dtype.is_floating_point else (-4, 7)
    message = f"here: expected `tensor` to be good, got min {low} and max {high}, 2 bad value(s), "
    with pytest.raises(InputError) as caught:
        found.check(found.record, "x/1")
    assert str(caught.value) == message + "the first at index (0, 2) of case 'x/1'. Do it."


ZEROS = torch.zeros(1, 19, 20, 20, dtype=torch.float16)
TASK = {"task": "multiclass", "case_id": "a"}


CROSSING = {
    "labels": (lambda copier: copier.submit_labels(ZEROS, num_classes=19, **TASK), 20 * 20),
    "probs as float32": (lambda copier: copier.submit_probs(ZEROS, dtype="float32", **TASK), 19 * 20 * 20 * 4),
    "probs as uint8": (lambda copier: copier.submit_probs(ZEROS, dtype="uint8", **TASK), 19 * 20 * 20),
    "bfloat16 as float32": (lambda copier: copier.submit(ZEROS.bfloat16(), case_id="a", dtype="float32"), 15200),
    "float8": (lambda copier: copier.submit(ZEROS.to(torch.float8_e5m2), case_id="a"), 19 * 20 * 20),
    "int64 as uint8": (lambda copier: copier.submit(ZEROS.long(), case_id="a", dtype="uint8"), 19 * 20 * 20),
    "a slice": (lambda copier: copier.submit(ZEROS[:, 10:15, ::2], case_id="a"), 5 * 10 * 20 * 2),
    "with a record": (lambda copier: copier.submit(torch.full((3,), 256), case_id="a", dtype="uint8"), 3 + 48),
}


@pytest.mark.parametrize(("submit", "nbytes"), CROSSING.values(), ids=CROSSING)
def test_only_what_is_needed_crosses(submit, nbytes):
    """Labels are a byte per pixel, and what is wider for NumPy is widened there."""
    copier = HostCopier(device="cpu", transport=FakeTransport())
    _pending = submit(copier)
    assert sum(map(sum, copier._transport.starts)) == nbytes
