import math

import numpy as np
import pytest
import torch

from segmeter.bridge.arrays import to_numpy
from segmeter.errors import InputError
from tests.bridge.tensors import LAYOUTS, NATIVE, WIDE, laid_out, tensor, values


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", [*NATIVE, *WIDE])
def test_to_numpy_keeps_value_dtype_and_layout(name, layout):
    """Mutations seen to fail: no .contiguous() in pack; WIDENED maps bfloat16 to float64."""
    source = LAYOUTS[layout](tensor(name))
    array = to_numpy(source)
    assert array.dtype == np.dtype(WIDE.get(name, name))
    np.testing.assert_array_equal(array, laid_out(values(name), layout))
    assert array.flags.c_contiguous
    if array.size and not array.flags.writeable:
        assert np.shares_memory(array, source.detach().numpy())


@pytest.mark.parametrize("layout", ["contiguous", "slice", "zero_d", "subclass", "parameter", "inference"])
def test_to_numpy_gives_a_read_only_view_where_one_is_possible(layout):
    """Mutation seen to fail: read_only leaves the array writeable."""
    source = LAYOUTS[layout](tensor("float32"))
    array = to_numpy(source)
    assert np.shares_memory(array, source.detach().numpy())
    with pytest.raises(ValueError, match="read-only"):
        array[...] = 1


@pytest.mark.parametrize("layout", ["transposed", "channels_last", "expanded", "strided"])
def test_to_numpy_packs_what_is_not_contiguous_into_memory_of_its_own(layout):
    """Mutation seen to fail: a strided view is handed out."""
    source = LAYOUTS[layout](tensor("float32"))
    array = to_numpy(source)
    assert array.flags.writeable
    assert not np.shares_memory(array, source.numpy())
    array.flat[0] = 777
    assert not (source == 777).any(), "writing to the array must not reach the tensor"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_to_numpy_with_copy_owns_its_memory(layout):
    """Mutation seen to fail: the view is returned whatever `copy` says."""
    source = LAYOUTS[layout](tensor("float32"))
    before = source.detach().clone()
    array = to_numpy(source, copy=True)
    assert array.flags.writeable
    array[...] = -1
    assert torch.equal(source.detach().as_subclass(torch.Tensor), before.as_subclass(torch.Tensor))


@pytest.mark.parametrize("layout", ["transposed", "channels_last", "expanded", "strided"])
def test_to_numpy_without_copy_refuses_to_pack(layout):
    """Mutation seen to fail: copy=False copies."""
    with pytest.raises(ValueError, match=r"to be a contiguous CPU tensor of the same dtype for copy=False"):
        to_numpy(LAYOUTS[layout](tensor("float32")), copy=False)


@pytest.mark.parametrize("dtype", ["float64", "uint8"])
def test_to_numpy_without_copy_refuses_to_convert(dtype):
    """Mutation seen to fail: copy=False copies."""
    with pytest.raises(ValueError, match="Pass copy=None or copy=True"):
        to_numpy(tensor("int32"), dtype=dtype, copy=False)


def test_to_numpy_without_copy_refuses_to_widen():
    """Mutation seen to fail: widening counts as no copy."""
    with pytest.raises(ValueError, match=r"got torch\.bfloat16 on cpu"):
        to_numpy(tensor("bfloat16"), copy=False)


def test_to_numpy_without_copy_gives_the_view():
    """Mutation seen to fail: any `copy` copies."""
    source = tensor("int16")
    assert np.shares_memory(to_numpy(source, copy=False), source.numpy())


def test_to_numpy_resolves_conj_and_neg_bits():
    """Mutation seen to fail: pack leaves out resolve_conj().resolve_neg() (torch itself would then raise)."""
    source = torch.tensor([1 + 2j, 3 - 4j])
    assert to_numpy(source.conj()).tolist() == [1 - 2j, 3 + 4j]
    negative = source.conj().imag
    assert negative.is_neg()
    assert to_numpy(negative).tolist() == [-2.0, 4.0]
    with pytest.raises(ValueError, match="copy=False"):
        to_numpy(negative, copy=False)


def test_to_numpy_leaves_gradients_correct():
    """Mutation seen to fail: the view is writeable, and writing goes behind autograd's back."""
    weight = torch.tensor([2.0, 3.0], requires_grad=True)
    square = weight * weight
    with pytest.raises(ValueError, match="read-only"):
        to_numpy(square)[0] = 0.0
    (square * square).sum().backward()
    assert weight.grad.tolist() == [4 * 2.0**3, 4 * 3.0**3]


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        (torch.tensor([0, 255]), "uint8"),
        (torch.tensor([0, 65535], dtype=torch.int32), "uint16"),
        (torch.tensor([-128.0, 127.0]), "int8"),
        (torch.tensor([2**24], dtype=torch.int32), "float32"),
        (torch.tensor([-(2**63), 2**62]), "float64"),
        (torch.tensor([0, 1]), "bool"),
        (torch.tensor([300], dtype=torch.uint16), "int16"),
        (torch.tensor([1.5], dtype=torch.bfloat16), "float16"),
        (torch.tensor([2048], dtype=torch.int16), "float16"),
        (torch.tensor([1e300], dtype=torch.float64), "float64"),
    ],
)
def test_to_numpy_converts_what_the_dtype_holds(given, dtype):
    """Mutation seen to fail: -2**63 counts as lost."""
    array = to_numpy(given, dtype=dtype)
    assert array.dtype == np.dtype(dtype)
    assert [complex(value) for value in array.tolist()] == [complex(value) for value in given.tolist()]


@pytest.mark.parametrize(
    ("given", "dtype", "message"),
    [
        ([0, 256], "uint8", r"fit uint8, got min 0 and max 256, 1 bad value\(s\), the first at index \(1,\)"),
        ([[5, 6], [-1, 300]], "uint8", r"min -1 and max 300, 2 bad value\(s\), the first at index \(1, 0\)"),
        ([70000], "uint16", "max 70000"),
        ([2**24 + 1], "float32", "max 16777217"),
        ([2**63 - 1], "float64", "fit float64"),
        ([1.5], "int64", "fit int64"),
        ([math.nan], "int32", r"1 bad value\(s\) \(1 NaN, 0 infinite\)"),
        ([-math.inf], "int16", r"\(0 NaN, 1 infinite\)"),
        ([2.0**63], "int64", "fit int64"),
        ([1e39], "float32", "fit float32"),
        ([65520.0], "float16", "fit float16"),
        ([2, 0], "bool", "fit bool"),
    ],
)
def test_to_numpy_refuses_what_the_dtype_does_not_hold(given, dtype, message):
    """Mutations seen to fail: `measure` returns None; _lost_to_integer without trunc; _lost without the upper limit."""
    wide = torch.tensor(given)
    wide = torch.tensor(given, dtype=torch.float64) if wide.is_floating_point() else wide
    with pytest.raises(InputError, match=message):
        to_numpy(wide, dtype=dtype)


def test_to_numpy_keeps_nan_infinity_and_negative_zero():
    """Mutation seen to fail: something is added."""
    array = to_numpy(torch.tensor([math.nan, math.inf, -math.inf, -0.0], dtype=torch.bfloat16))
    assert np.isnan(array[0])
    assert array[1:3].tolist() == [math.inf, -math.inf]
    assert np.signbit(array[3])


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"dtype": "bfloat16"}, "`dtype` to name a NumPy dtype, got 'bfloat16'"),
        ({"dtype": "U3"}, "`dtype` to be one of bool, uint8"),
    ],
)
def test_to_numpy_refuses_unknown_options(more, message):
    """Mutation seen to fail: any `check` passes."""
    with pytest.raises(InputError, match=message):
        to_numpy(torch.zeros(2), **more)
