"""Decides which tensors can cross to the host and in which dtype, and represents one that is packed on its device.

Checks must not make the host wait for the device, so they write a record of six integers beside the payload. It crosses
on the same stream, and the host reads it when it takes the result.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import DTypeLike
from torch import Tensor

from segmeter.checks import expected, shown
from segmeter.errors import InputError

# torch dtypes that NumPy has under the same name, and the arrays that carry them unchanged
NUMPY: dict[torch.dtype, np.dtype] = {
    getattr(torch, name): np.dtype(name)
    for name in (
        *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
        *("float16", "float32", "float64", "complex64", "complex128"),
    )
}
TORCH: dict[np.dtype, torch.dtype] = {numpy: ours for ours, numpy in NUMPY.items()}

# torch dtypes that NumPy lacks: they cross unchanged and are widened on the host, where every value is exact
_FLOAT8 = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")
WIDENED: dict[torch.dtype, torch.dtype] = {
    torch.bfloat16: torch.float32,
    torch.complex32: torch.complex64,
    **{getattr(torch, name): torch.float32 for name in _FLOAT8 if hasattr(torch, name)},
}

# torch has these, but almost no arithmetic on them
SIGNED: dict[torch.dtype, torch.dtype] = {torch.uint16: torch.int32, torch.uint32: torch.int64}


def check_tensor(where: str, argument: str, tensor: object) -> Tensor:
    """Return `tensor` as a plain strided torch.Tensor with values, detached; InputError with a remedy otherwise."""
    if not isinstance(tensor, Tensor):
        raise InputError(expected(where, argument, "to be a torch.Tensor", type(tensor).__name__))
    with torch._C.DisableTorchFunctionSubclass():
        kinds = (
            (tensor.is_nested, "a nested tensor", "Convert its parts one by one (tensor.unbind()) or pad it."),
            (tensor.is_quantized, "a quantised tensor", "Pass tensor.dequantize() or tensor.int_repr()."),
            (tensor.is_meta, "a meta tensor", "It has no values: run the model on a real device."),
            (tensor.layout is not torch.strided, f"a tensor of layout {tensor.layout}", "Pass tensor.to_dense()."),
            (
                type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__,
                f"a {type(tensor).__name__}",
                "A fake tensor has no values; a distributed one has full_tensor(); others: pass the tensor inside.",
            ),
            (
                tensor.dtype not in NUMPY and tensor.dtype not in WIDENED,
                f"a tensor of {tensor.dtype}",
                "Packed sub-byte values have no array; unpack them in torch first.",
            ),
        )
        for refused, got, remedy in kinds:
            if refused:
                raise InputError(expected(where, argument, "to be a dense tensor with values", got, remedy))
        return tensor.detach()


def check_device(where: str, device: str | torch.device) -> torch.device:
    """Return `device`, or raise an InputError that says what is installed and what to do."""
    try:
        wanted = torch.device(device)
    except (RuntimeError, TypeError, ValueError) as error:
        rule = 'to be a device such as "cpu" or "cuda:0"'
        raise InputError(expected(where, "device", rule, shown(device))) from error
    if wanted.type != "cuda":
        return wanted
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if (wanted.index or 0) < count:
        return wanted
    name = f"This torch ({torch.__version__})"
    remedy = f"Use cuda:0 to cuda:{count - 1}."
    if not count and torch.version.cuda is None and torch.version.hip is None:
        remedy = f"{name} is built without CUDA: install a CUDA build, or set device=cpu."
    elif not count:
        kind = f"CUDA {torch.version.cuda}" if torch.version.cuda else f"ROCm {torch.version.hip}"
        hint = "check the driver with nvidia-smi and CUDA_VISIBLE_DEVICES, or set device=cpu."
        remedy = f"{name} is built for {kind} but sees no GPU: {hint}"
    raise InputError(expected(where, "device", "to be here", f"{str(wanted)!r}, with {count} GPUs found", remedy))


def wanted_dtype(where: str, dtype: DTypeLike) -> np.dtype:
    """Read `dtype` as a native NumPy dtype that torch has too; InputError otherwise."""
    try:
        wanted = np.dtype(dtype)
    except (TypeError, ValueError):
        wanted = None
    if wanted is None or wanted not in TORCH:  # dtypes of another byte order aren't there either
        names = ", ".join(numpy.name for numpy in TORCH)
        raise InputError(expected(where, "dtype", f"to be one of {names}", shown(dtype)))
    return wanted


def cast(where: str, tensor: Tensor, target: torch.dtype) -> tuple[Tensor, Tensor | None]:
    """Convert on the tensor's own device, to a dtype that NumPy has.

    Integers and bools must arrive exactly, whatever the target; a float in a narrower float is rounded to nearest,
    but never to infinity.

    Returns
    -------
    The converted tensor, and a bool mask of what `target` can't hold, or None where the dtype holds every value.

    Raises
    ------
    InputError
        The conversion has no meaning: complex to real or back, or arithmetic that torch lacks.
    """
    source = WIDENED.get(tensor.dtype, tensor.dtype)
    tensor = tensor.to(source)
    if source == target:
        return tensor, None
    if source == torch.uint64 or source.is_complex or target.is_complex:
        rule = f"to be {source} for a {source} tensor"
        remedy = "Convert without dtype and continue in NumPy."
        raise InputError(expected(where, "dtype", rule, str(target), remedy))
    if np.can_cast(NUMPY[source], NUMPY[target]) and (source, target) != (torch.int64, torch.float64):
        return tensor.to(target), None
    tensor = tensor.to(SIGNED.get(source, source))
    converted = tensor.to(target)
    return converted, _lost(tensor, converted)


def _lost(tensor: Tensor, converted: Tensor) -> Tensor:
    """Mark where `converted` differs from `tensor` by more than a float's rounding."""
    source, target = tensor.dtype, converted.dtype
    if target == torch.bool:
        return (tensor != 0) & (tensor != 1)
    if source.is_floating_point and target.is_floating_point:
        return converted.isinf() & ~tensor.isinf()
    if source.is_floating_point:  # fractions, NaN and values out of range; the limits are exact in float32
        wide = tensor if source == torch.float64 else tensor.float()
        info = torch.iinfo(target)
        return ~((wide >= float(info.min)) & (wide < float(info.max + 1)) & (wide == wide.trunc()))
    if target.is_floating_point:  # 2**63 is excluded, as converting it back is undefined
        back = converted.to(torch.float64)
        inside = back.abs() < 2.0**63
        smallest = (tensor == torch.iinfo(source).min) & (back == -(2.0**63))
        return ~(inside & (torch.where(inside, back, 0.0).to(torch.int64) == tensor)) & ~smallest
    low, high = torch.iinfo(source).min, torch.iinfo(source).max
    return (tensor < max(low, torch.iinfo(target).min)) | (tensor > min(high, torch.iinfo(target).max))


def comparable(tensor: Tensor) -> Tensor:
    """Return the tensor in a dtype that torch can compare."""
    tensor = tensor.to(WIDENED.get(tensor.dtype, tensor.dtype))
    return tensor.to(SIGNED.get(tensor.dtype, tensor.dtype))


Words = tuple[str, str, str, str]  # the arguments of `expected` but the fourth: where, argument, rule, remedy


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """A tensor that was packed on its device, ready to cross.

    Parameters
    ----------
    payload
        C-contiguous, without conj or neg bits, in the dtype that crosses.
    private
        Whether nobody else can reach the payload's memory.
    record
        The record of the checks, (6,) int64 on the same device; None if nothing can be wrong, or nothing is.
    words
        For the message if the record counts bad values.
    shape, values
        The shape that turns the record's flat index into a position, and the dtype of its min and max.
    sortable
        Whether a kernel combined min and max as int32 that sort as floats do, but without NaN.
    """

    payload: Tensor
    private: bool
    record: Tensor | None
    words: Words
    shape: tuple[int, ...]
    values: torch.dtype
    sortable: bool = False

    def check(self, record: Tensor | None, case_id: str | None = None) -> None:
        """Raise InputError if the record, now on the host, counts bad values."""
        if record is None or not record[0]:
            return
        bad, nan, inf, first, *limits = record.tolist()
        position = tuple(int(index) for index in np.unravel_index(first, self.shape))
        if self.sortable:  # the bits of a float32 from an int32 that sorts as it does
            limits = [bits ^ 0x7FFFFFFF if bits < 0 else bits for bits in limits]
        low, high = (math.nan,) * 2 if self.sortable and nan else (_number(bits, self.values) for bits in limits)
        kinds = f" ({nan} NaN, {inf} infinite)" if nan or inf else ""
        got = f"min {low!r} and max {high!r}, {bad} bad value(s){kinds}, the first at index {position}"
        if case_id is not None:
            got += f" of case {case_id!r}"
        where, argument, rule, remedy = self.words
        raise InputError(expected(where, argument, rule, got, remedy))


def packed(tensor: Tensor, payload: Tensor, bad: Tensor | None, numbers: Tensor, words: Words) -> Transfer:
    """Describe a tensor that was packed as `payload`; `bad` marks which of its `numbers` break the rule."""
    payload = payload.contiguous()
    return Transfer(
        payload=payload,
        private=payload.numel() > 0 and payload.data_ptr() != tensor.data_ptr(),
        record=None if bad is None else measure(bad, numbers, numbers),
        words=words,
        shape=tuple(tensor.shape),
        values=numbers.dtype,
    )


def measure(bad: Tensor, low: Tensor, high: Tensor) -> Tensor | None:
    """Write the record of a check on the device of `bad`, without waiting for it.

    It counts bad values, and NaN and infinities among them. Then come the flat index of the first bad value, and the
    bits of the smallest and of the largest value.

    Parameters
    ----------
    bad
        bool, any shape: where a value breaks the rule.
    low, high
        Smallest and largest values, of the shape of `bad`; NaN and infinity are counted in both.

    Returns
    -------
    (6,) int64; None without any value. On the CPU, where looking costs no wait, also None if nothing is bad.
    """
    if not bad.numel() or (bad.device.type == "cpu" and not bool(bad.any())):
        return None
    flat = bad.flatten()
    record = (
        flat.sum(),
        (bad & (low.isnan() | high.isnan())).sum(),
        (bad & (low.isinf() | high.isinf())).sum(),
        flat.to(torch.uint8).argmax(),
        _bits(low.amin()),
        _bits(high.amax()),
    )
    return torch.stack(record)


def _bits(value: Tensor) -> Tensor:
    """Return a 0-d integer, or the bits of a float, as int64, so that counts and values share one record."""
    if not value.is_floating_point():
        return value.to(torch.int64)
    if value.dtype == torch.float64:
        return value.view(torch.int64)
    return value.to(torch.float32).view(torch.int32).to(torch.int64)


def _number(bits: int, values: torch.dtype) -> float:
    """Reverse `_bits`."""
    if not values.is_floating_point:
        return bits
    kind, size = (np.float64, np.int64) if values == torch.float64 else (np.float32, np.int32)
    return float(np.array(bits, size).view(kind))


def fetch(transfer: Transfer) -> Tensor:
    """Bring a packed tensor to the host and wait for it; raise InputError if a check failed.

    Fresh memory is pageable, as pinning it for one use costs more than it saves.
    """
    transfer.check(None if transfer.record is None else transfer.record.cpu())
    payload = transfer.payload.cpu()
    return payload.to(WIDENED.get(payload.dtype, payload.dtype))
