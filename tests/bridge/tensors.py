"""Tensors of every dtype and layout that the tests of the bridge share, with the arrays that they stand for."""

import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
NATIVE = ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"]
NATIVE += ["float16", "float32", "float64", "complex64", "complex128"]
WIDE = {
    "bfloat16": "float32",
    "float8_e4m3fn": "float32",
    "float8_e4m3fnuz": "float32",
    "float8_e5m2": "float32",
    "float8_e5m2fnuz": "float32",
    "float8_e8m0fnu": "float32",
    "complex32": "complex64",
}


class Labelled(torch.Tensor):
    """A subclass such as torchvision's Mask: ordinary values, its own type."""


def values(name: str) -> np.ndarray:
    """(2, 3, 4, 5): distinct small values that every dtype above holds exactly, in the NumPy dtype that arrives."""
    dtype = np.dtype(WIDE.get(name, name))
    numbers = np.arange(120).reshape(2, 3, 4, 5)
    if name == "bool":
        return numbers % 3 == 0
    if name.startswith("float8"):
        return (2.0 ** (numbers % 4)).astype(dtype)
    array = numbers.astype(dtype)
    return array + 2j * array if dtype.kind == "c" else array


def tensor(name: str) -> Tensor:
    array = values(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch calls making a complex32 experimental
        return torch.from_numpy(array).clone().to(getattr(torch, name))


def inference(source: Tensor) -> Tensor:
    with torch.inference_mode():
        return source.clone()


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda t: t,
    "transposed": lambda t: t.transpose(0, 3),
    "channels_last": lambda t: t.contiguous(memory_format=torch.channels_last),
    "expanded": lambda t: t[:1].expand(3, -1, -1, -1),
    "strided": lambda t: t[:, :, ::2, 1:],
    "slice": lambda t: t[1],
    "zero_d": lambda t: t[1, 2, 3, 4],
    "empty": lambda t: t[:0],
    "subclass": lambda t: t.as_subclass(Labelled),
    "parameter": lambda t: torch.nn.Parameter(t, requires_grad=t.is_floating_point() and t.element_size() > 1),
    "inference": inference,
}
IN_NUMPY: dict[str, Callable[[np.ndarray], np.ndarray]] = {  # those that don't keep shape and values
    "transposed": lambda a: a.transpose(3, 1, 2, 0),
    "expanded": lambda a: np.broadcast_to(a[:1], (3, *a.shape[1:])),
    "strided": lambda a: a[:, :, ::2, 1:],
    "slice": lambda a: a[1],
    "zero_d": lambda a: a[1, 2, 3, 4],
    "empty": lambda a: a[:0],
}


def laid_out(array: np.ndarray, layout: str) -> np.ndarray:
    """What `LAYOUTS[layout]` means, in NumPy."""
    return IN_NUMPY[layout](array) if layout in IN_NUMPY else array
