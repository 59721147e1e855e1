"""tensor -> the same values in another dtype, with a mask of the values that the dtype can't hold."""

import torch
from torch import Tensor

from segmeter.bridge.dtypes import SIGNED, WIDENED, holds_every_value
from segmeter.checks import expected
from segmeter.errors import InputError


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
