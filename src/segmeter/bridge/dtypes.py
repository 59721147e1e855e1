"""Which dtype crosses and which one arrives, which values a dtype holds, and the conversion that loses none."""

import math
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import DTypeLike
from torch import Tensor

from segmeter.checks import expected, known_name, shown
from segmeter.classes import label_dtype
from segmeter.errors import InputError

LabelDtype = Literal["auto", "uint8", "uint16"]

# torch dtypes that NumPy has under the same name, and the arrays that carry them without a change
NUMPY: dict[torch.dtype, np.dtype] = {
    getattr(torch, name): np.dtype(name)
    for name in (
        *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
        *("float16", "float32", "float64", "complex64", "complex128"),
    )
}
TORCH: dict[np.dtype, torch.dtype] = {numpy: ours for ours, numpy in NUMPY.items()}

# torch dtypes that NumPy lacks: they cross as they are and are widened on the host, where every value is exact
_FLOAT8 = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")
WIDENED: dict[torch.dtype, torch.dtype] = {
    torch.bfloat16: torch.float32,
    torch.complex32: torch.complex64,
    **{getattr(torch, name): torch.float32 for name in _FLOAT8 if hasattr(torch, name)},
}

# torch has these, but almost no arithmetic on them
SIGNED: dict[torch.dtype, torch.dtype] = {torch.uint16: torch.int32, torch.uint32: torch.int64}


def wanted_dtype(where: str, dtype: DTypeLike) -> np.dtype:
    """Read `dtype` as a native NumPy dtype that torch has too; InputError otherwise."""
    try:
        wanted = np.dtype(dtype)
    except (TypeError, ValueError) as error:
        raise InputError(expected(where, "dtype", "to name a NumPy dtype", shown(dtype))) from error
    if wanted.isbuiltin == 2:  # a dtype that another package registered, such as ml_dtypes' bfloat16
        raise InputError(expected(where, "dtype", "to name a NumPy dtype", shown(dtype)))
    if wanted not in TORCH:  # nor is one of another byte order
        names = ", ".join(numpy.name for numpy in TORCH)
        raise InputError(expected(where, "dtype", f"to be one of {names}", repr(dtype)))
    return wanted


def wanted_label_dtype(where: str, *, num_classes: int, ignore_index: int | None, dtype: LabelDtype) -> np.dtype:
    """uint8 where every class and the ignore value fit, else uint16; InputError where `dtype` is too small."""
    for argument, value, least in (("num_classes", num_classes, 1), ("ignore_index", ignore_index, 0)):
        if value is not None and not least <= value <= 65535 + least:
            remedy = "Labels are unsigned: map the value first." if value < least else "A uint16 holds 65536 values."
            raise InputError(expected(where, argument, f">= {least} and <= {65535 + least}", value, remedy))
    largest = max(num_classes - 1, -1 if ignore_index is None else ignore_index)
    known_name(where, "dtype", dtype, get_args(LabelDtype))
    wanted = label_dtype(largest) if dtype == "auto" else np.dtype(dtype)
    if largest > np.iinfo(wanted).max:
        rule = f"to hold the label values 0 to {largest}"
        raise InputError(expected(where, "dtype", rule, dtype, 'Pass dtype="auto".'))
    return wanted


def holds_every_value(source: torch.dtype, target: torch.dtype) -> bool:
    """Whether `target` holds each value of `source` exactly, so that no value needs to be checked."""
    if source == target or source == torch.bool:
        return True
    if target == torch.bool or (source.is_complex and not target.is_complex):
        return False
    if source.is_complex or source.is_floating_point:
        inexact = target.is_floating_point or target.is_complex
        return inexact and _digits(source) <= _digits(target) and torch.finfo(source).max <= torch.finfo(target).max
    low, high = torch.iinfo(source).min, torch.iinfo(source).max
    if target.is_floating_point or target.is_complex:
        return max(high, -low).bit_length() <= _digits(target)
    return torch.iinfo(target).min <= low and high <= torch.iinfo(target).max


def _digits(dtype: torch.dtype) -> int:
    return 1 - round(math.log2(torch.finfo(dtype).eps))


def cast(where: str, tensor: Tensor, target: torch.dtype) -> tuple[Tensor, Tensor | None]:
    """Convert on the tensor's own device.

    Integers and bools must arrive exactly, whatever the target; a float in a narrower float is rounded to nearest,
    but never to infinity.

    Returns
    -------
    The converted tensor, and a bool mask of what `target` can't hold, or None where the dtype holds every value.

    Raises
    ------
    InputError
        The conversion has no meaning: complex to real, or arithmetic that torch lacks.
    """
    source = tensor.dtype
    if source in WIDENED and target != source:
        tensor = tensor.to(WIDENED[source])
        source = tensor.dtype
    if source == torch.uint64 and target != torch.uint64:
        remedy = "torch has no arithmetic for uint64: convert without dtype and go on in NumPy."
        raise InputError(expected(where, "dtype", "to be uint64 for a uint64 tensor", str(target), remedy))
    if source.is_complex and not target.is_complex:
        remedy = "Pass tensor.real, tensor.imag or tensor.abs()."
        raise InputError(expected(where, "dtype", f"to be complex for a {source} tensor", str(target), remedy))
    if holds_every_value(source, target):
        return tensor.to(target), None
    if source in SIGNED:
        tensor = tensor.to(SIGNED[source])
    converted = tensor.to(target)
    return converted, _lost(tensor, converted)


def comparable(tensor: Tensor) -> Tensor:
    """The tensor in a real dtype that torch can compare; complex numbers by their absolute value."""
    if tensor.dtype in WIDENED:
        tensor = tensor.to(WIDENED[tensor.dtype])
    if tensor.is_complex():
        return tensor.abs()
    return tensor.to(SIGNED.get(tensor.dtype, tensor.dtype))


def _lost(tensor: Tensor, converted: Tensor) -> Tensor:
    """Where `converted` is not what `tensor` was."""
    source, target = tensor.dtype, converted.dtype
    if target == torch.bool:
        return (tensor != 0) & (tensor != 1)
    if source.is_complex:
        return converted.isinf() & ~tensor.isinf()
    if source.is_floating_point and not target.is_floating_point and not target.is_complex:
        return _lost_to_integer(tensor if source == torch.float64 else tensor.float(), target)
    if source.is_floating_point:
        return converted.isinf() & ~tensor.isinf()
    if target.is_floating_point or target.is_complex:
        return _lost_to_float(tensor, converted)
    low, high = (torch.iinfo(source).min, torch.iinfo(source).max)
    return (tensor < max(low, torch.iinfo(target).min)) | (tensor > min(high, torch.iinfo(target).max))


def _lost_to_integer(tensor: Tensor, target: torch.dtype) -> Tensor:
    """Fractions, NaN and what is out of range; the limits are powers of two, which float32 holds exactly."""
    info = torch.iinfo(target)
    return ~((tensor >= float(info.min)) & (tensor < float(info.max + 1)) & (tensor == tensor.trunc()))


def _lost_to_float(tensor: Tensor, converted: Tensor) -> Tensor:
    """Integers that come back different; 2**63 is excluded, as converting it back is undefined."""
    back = (converted.real if converted.is_complex() else converted).to(torch.float64)
    inside = back.abs() < 2.0**63
    smallest = tensor == torch.iinfo(tensor.dtype).min
    return ~(inside & (torch.where(inside, back, 0.0).to(torch.int64) == tensor)) & ~(smallest & (back == -(2.0**63)))
