import math
import timeit

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from segmeter.bridge.arrays import to_numpy, to_torch
from segmeter.bridge.host_copier import HostCopier
from segmeter.bridge.transfer import check_device
from segmeter.errors import InputError
from tests.bridge.fake_stream import FakeTransport
from tests.bridge.tensors import DEVICES, LAYOUTS, NATIVE, WIDE, laid_out, tensor, values


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", [*NATIVE, *WIDE])
@pytest.mark.parametrize("transport", [None, FakeTransport()], ids=["plain", "fake stream"])
def test_a_copier_keeps_value_dtype_and_layout(name, layout, transport):
    copier = HostCopier(device="cpu", transport=transport)
    array = copier.submit(LAYOUTS[layout](tensor(name)), case_id="a").result()
    assert (array.dtype, array.flags.c_contiguous) == (np.dtype(WIDE.get(name, name)), True)
    np.testing.assert_array_equal(array, laid_out(values(name), layout))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", [*NATIVE, *WIDE])
@pytest.mark.parametrize("device", DEVICES)
def test_to_numpy_keeps_value_dtype_and_layout(name, layout, device):
    """Mutations seen to fail: no .contiguous() in pack; WIDENED maps bfloat16 to float64."""
    source = LAYOUTS[layout](tensor(name).to(device))
    array = to_numpy(source)
    assert array.dtype == np.dtype(WIDE.get(name, name))
    np.testing.assert_array_equal(array, laid_out(values(name), layout))
    assert array.flags.c_contiguous
    if device == "cuda":
        assert array.flags.writeable
        with pytest.raises(ValueError, match="copy=False"):
            to_numpy(source, copy=False)
    elif array.size and not array.flags.writeable:
        assert np.shares_memory(array, source.detach().numpy())


PACKED = ("transposed", "channels_last", "expanded", "strided")


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "empty"])
def test_to_numpy_gives_a_read_only_view_where_one_is_possible_and_memory_of_its_own_elsewhere(layout):
    """So gradients stay right: nothing is written behind autograd's back."""
    source = LAYOUTS[layout](tensor("float32"))
    before, array = source.detach().clone(), to_numpy(source)
    assert np.shares_memory(array, source.detach().numpy()) == (not array.flags.writeable) == (layout not in PACKED)
    to_numpy(source, copy=True)[...] = -1
    assert torch.equal(source.detach().as_subclass(torch.Tensor), before.as_subclass(torch.Tensor))
    if layout in PACKED:
        with pytest.raises(ValueError, match=r"to be a contiguous CPU tensor of the same dtype for copy=False"):
            to_numpy(source, copy=False)
    else:
        assert np.shares_memory(to_numpy(source, copy=False), source.detach().numpy())


def test_to_numpy_of_one_element_takes_less_than_ten_microseconds_on_the_cpu():
    one, calls = torch.ones(1), 100
    assert min(timeit.repeat(lambda: to_numpy(one), number=calls, repeat=50)) < calls * 10e-6


@pytest.mark.parametrize(("source", "dtype"), [("int32", "float64"), ("int32", "uint8"), ("bfloat16", "float32")])
def test_to_numpy_without_copy_refuses_to_convert(source, dtype):
    with pytest.raises(ValueError, match="Pass copy=None or copy=True"):
        to_numpy(tensor(source), dtype=dtype, copy=False)


def test_to_numpy_resolves_conj_and_neg_bits():
    source = torch.tensor([1 + 2j, 3 - 4j])
    assert to_numpy(source.conj()).tolist() == [1 - 2j, 3 + 4j]
    negative = source.conj().imag
    assert negative.is_neg()
    assert to_numpy(negative).tolist() == [-2.0, 4.0]
    with pytest.raises(ValueError, match="copy=False"):
        to_numpy(negative, copy=False)


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        (torch.tensor([2**24], dtype=torch.int32), "float32"),
        (torch.tensor([-(2**63), 2**62]), "float64"),
        (torch.tensor([1.5], dtype=torch.bfloat16), "float16"),
        (torch.tensor([1e300], dtype=torch.float64), "float64"),
    ],
)
def test_to_numpy_converts_what_the_dtype_holds(given, dtype):
    array = to_numpy(given, dtype=dtype)
    assert array.dtype == np.dtype(dtype)
    assert [complex(value) for value in array.tolist()] == [complex(value) for value in given.tolist()]


@pytest.mark.parametrize(
    ("given", "dtype", "message"),
    [
        ([0, 256], "uint8", r"fit uint8, got min 0 and max 256, 1 bad value\(s\), the first at index \(1,\)"),
        ([[5, 6], [-1, 300]], "uint8", r"min -1 and max 300, 2 bad value\(s\), the first at index \(1, 0\)"),
        ([2**24 + 1], "float32", "max 16777217"),
        ([math.nan], "int32", r"1 bad value\(s\) \(1 NaN, 0 infinite\)"),
        ([-math.inf], "int16", r"\(0 NaN, 1 infinite\)"),
        ([1e39], "float32", "fit float32"),
    ],
)
def test_to_numpy_refuses_what_the_dtype_does_not_hold(given, dtype, message):
    wide = torch.tensor(given)
    wide = torch.tensor(given, dtype=torch.float64) if wide.is_floating_point() else wide
    with pytest.raises(InputError, match=message):
        to_numpy(wide, dtype=dtype)


def test_to_numpy_keeps_nan_infinity_and_negative_zero():
    array = to_numpy(torch.tensor([math.nan, math.inf, -math.inf, -0.0], dtype=torch.bfloat16))
    assert np.isnan(array[0])
    assert array[1:3].tolist() == [math.inf, -math.inf]
    assert np.signbit(array[3])


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


FORMS = {
    "contiguous": lambda a: a,
    "reversed": lambda a: a[::-1, :, ::-1],
    "fortran": np.asfortranarray,
    "strided": lambda a: a[:, ::2, :, 1:],
    "big_endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "read_only": read_only,
    "broadcast": lambda a: np.broadcast_to(a[:1], a.shape),
    "zero_d": lambda a: np.asarray(a[1, 2, 3, 4]),
    "scalar": lambda a: a[1, 2, 3, 4],
    "empty": lambda a: a[:0],
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", NATIVE)
def test_to_torch_takes_every_array_and_comes_back(name, form):
    array = FORMS[form](values(name))
    tensor = to_torch(array)
    assert tensor.dtype == getattr(torch, name)
    assert tensor.is_contiguous()
    assert not np.shares_memory(tensor.numpy(), array)
    np.testing.assert_array_equal(to_numpy(tensor), array)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        ([1, 2], r"got list. Pass numpy.asarray"),
        (np.ma.masked_less(np.arange(3), 1), r"got a masked array. Its mask would be lost"),
        (np.array(["a"]), "got dtype <U1"),
        (np.array([None]), "got dtype object"),
        (np.array(["2020-01-01"], "datetime64[D]"), "got dtype datetime64"),
        (np.zeros(2, np.longdouble), "got dtype"),
        (np.zeros(2, [("a", "f4")]), "got dtype"),
    ],
)
def test_to_torch_refuses_what_is_no_array_of_numbers(array, message):
    with pytest.raises(InputError, match=message):
        to_torch(array)


def fake():
    with FakeTensorMode():
        return torch.zeros(2)


def nested(layout):
    return lambda: torch.nested.nested_tensor([torch.zeros(1), torch.zeros(2)], layout=layout)


REFUSED = {
    "sparse": (lambda: torch.eye(2).to_sparse(), r"layout torch.sparse_coo. Pass tensor.to_dense"),
    "nested": (nested(torch.strided), r"a nested tensor. .*unbind"),
    "jagged": (nested(torch.jagged), "a nested tensor"),
    "quantised": (
        lambda: torch.quantize_per_tensor(torch.zeros(2), 0.1, 0, torch.qint8),
        r"a quantised tensor. Pass tensor.dequantize",
    ),
    "meta": (lambda: torch.zeros(2, device="meta"), "a meta tensor. It has no values"),
    "fake": (fake, "a FakeTensor. A fake tensor has no values"),
    "list": (lambda: [1, 2], "to be a torch.Tensor, got list"),
    "packed": (
        lambda: torch.zeros(4, dtype=torch.uint8).view(torch.float4_e2m1fn_x2),
        r"got a tensor of torch\.float4_e2m1fn_x2\. Packed sub-byte values",
    ),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype")
@pytest.mark.filterwarnings("ignore:.*quant.*")
@pytest.mark.parametrize(("make", "message"), REFUSED.values(), ids=REFUSED)
def test_to_numpy_refuses_what_has_no_dense_values(make, message):
    with pytest.raises(InputError, match=message):
        to_numpy(make())


@pytest.mark.parametrize(
    ("count", "build", "device", "message"),
    [
        (0, "13.2", "cuda", "'cuda', with 0 GPUs found.* is built for CUDA 13.2 but sees no GPU"),
        (0, None, "cuda:1", "is built without CUDA: install a CUDA build, or set device=cpu"),
        (2, "13.2", "cuda:2", "got 'cuda:2', with 2 GPUs found. Use cuda:0 to cuda:1"),
    ],
)
def test_a_device_that_is_not_there_is_refused_with_the_reason(monkeypatch, count, build, device, message):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.version, "cuda", build)
    monkeypatch.setattr(torch.version, "hip", None)
    asked = [
        lambda: check_device("here", device),
        lambda: to_torch(torch.zeros(2).numpy(), device=device),
        lambda: HostCopier(device=device),
    ]
    for ask in asked:
        with pytest.raises(InputError, match=message):
            ask()
    if count:
        assert check_device("here", "cuda:1") == torch.device("cuda:1")
