import numpy as np
import pytest
import torch

from segmeter.bridge.arrays import to_numpy, to_torch
from segmeter.errors import InputError
from tests.bridge.tensors import NATIVE, values


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
    """Mutation seen to fail: torch.from_numpy(array) instead of the copy (strides, byte order, read-only warning)."""
    array = FORMS[form](values(name))
    tensor = to_torch(array)
    assert tensor.dtype == getattr(torch, name)
    assert tensor.is_contiguous()
    assert not np.shares_memory(tensor.numpy(), array)
    np.testing.assert_array_equal(to_numpy(tensor), array)


def test_to_torch_never_aliases():
    """Mutation seen to fail: torch.from_numpy(array) where the array is contiguous and writeable."""
    array = np.zeros(4, np.float32)
    tensor = to_torch(array)
    tensor += 1
    assert array.tolist() == [0, 0, 0, 0]


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
    """Mutation seen to fail: a mask is dropped."""
    with pytest.raises(InputError, match=message):
        to_torch(array)
