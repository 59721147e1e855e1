"""Turns tensors into arrays: complete on return, exact, and clear about who owns the memory."""

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import DTypeLike
from torch import Tensor

from segmeter.bridge.dtypes import NUMPY, TORCH, WIDENED, cast, comparable, wanted_dtype
from segmeter.bridge.tensor_checks import check_tensor
from segmeter.bridge.transfer import Rule, Transfer, fetch, measure
from segmeter.checks import expected, known_name
from segmeter.errors import InputError

Check = Literal["raise", "finite"]
_WHERE = "to_numpy"
_ORDINARY = (Tensor, torch.nn.Parameter)


def to_numpy(
    tensor: Tensor,
    *,
    dtype: DTypeLike | None = None,
    copy: bool | None = None,
    check: Check = "raise",
    out: np.ndarray | None = None,
) -> np.ndarray:
    """Give the values of a tensor as a C-contiguous array, finished when this returns.

    Parameters
    ----------
    tensor
        Any shape, on any device; gradients are left behind. Slice before calling: only what is passed crosses.
    dtype
        NumPy dtype of the result. None keeps the tensor's; bfloat16 and float8, which NumPy lacks, widen to float32
        and complex32 to complex64, exactly. Integers must arrive exactly; floats are rounded to nearest in a
        narrower float, but never to infinity.
    copy
        None: a read-only view of a CPU tensor where one is possible, else a fresh writeable array.
        True: always a fresh writeable array, owned by the caller. False: the view, or an error.
    check
        "raise" refuses values that `dtype` can't hold; "finite" also refuses NaN and infinity.
    out
        Filled and returned instead of a fresh array: writeable, C-contiguous, native, of the tensor's shape and of
        `dtype`. On an error from a check its content is unspecified.

    Returns
    -------
    ndarray of the tensor's shape, C-contiguous. Device input: the caller owns it.

    Raises
    ------
    InputError
        The tensor has no dense values (sparse, nested, quantised, meta, fake); a value breaks `dtype` or `check`
        (with min, max and the first bad index); a copy is needed but `copy=False`; `out` does not fit.

    Examples
    --------
    >>> import torch
    >>> from segmeter import to_numpy
    >>> to_numpy(torch.tensor([1.5, 2.0], requires_grad=True))
    array([1.5, 2. ], dtype=float32)
    >>> to_numpy(torch.tensor([0, 256]), dtype="uint8")
    Traceback (most recent call last):
    ...
    segmeter.errors.InputError: to_numpy: expected `tensor` to fit uint8, got min 0 and max 256, 1 bad value(s), \
the first at index (1,). Pass a wider dtype.
    """
    if dtype is None and out is None and check == "raise":
        view = _view(tensor)
        if view is not None:
            return view.copy() if copy else view
    known_name(_WHERE, "check", check, get_args(Check))
    source = check_tensor(_WHERE, "tensor", tensor)
    wanted = None if dtype is None else wanted_dtype(_WHERE, dtype)
    if out is not None:
        wanted = _check_out(out, source, wanted, copy)
    transfer = pack(_WHERE, source, wanted, check)
    fresh = transfer.private or source.device.type != "cpu" or transfer.payload.dtype not in NUMPY
    if copy is False and fresh:
        raise InputError(_needs_copy(source, wanted))
    if out is not None:
        fetch(transfer, out=torch.from_numpy(out))
        return out
    array: np.ndarray = fetch(transfer).numpy()
    if fresh:
        return array
    array = array.copy() if copy else array
    array.flags.writeable = bool(copy)
    return array


def read_scalars(scalars: Sequence[Tensor]) -> list[float]:
    """Read numbers that were left on the device, such as the losses since the last log line.

    Parameters
    ----------
    scalars
        0-d, real, all on one device. NaN and infinity are read as they are.

    Returns
    -------
    One float per tensor; integers are exact up to 2**53, and refused beyond.

    Raises
    ------
    InputError
        A tensor has axes or is complex, the devices differ, or an integer has no float.

    Examples
    --------
    >>> import torch
    >>> from segmeter.bridge import read_scalars
    >>> read_scalars([torch.tensor(0.5), torch.tensor(3)])
    [0.5, 3.0]
    """
    if not scalars:
        return []
    for index, scalar in enumerate(scalars):
        if scalar.ndim or scalar.is_complex() or scalar.device != scalars[0].device:
            given = f"{scalar.dtype} of shape {tuple(scalar.shape)} on {scalar.device} at position {index}"
            raise InputError(expected("read_scalars", "scalars", "to be real and 0-d, on one device", given))
    here = [scalar.detach() for scalar in scalars]
    if here[0].device.type == "mps":
        here = [scalar.cpu() for scalar in here]  # one by one, as an Apple GPU has no float64
    # one int64 row for both kinds: floats travel as the bits of their float64
    floating = [scalar.is_floating_point() for scalar in here]
    row = to_numpy(
        torch.stack(
            [
                each.to(torch.float64).view(torch.int64) if inexact else each.to(torch.int64)
                for each, inexact in zip(here, floating, strict=True)
            ]
        )
    )
    for value, inexact in zip(row.tolist(), floating, strict=True):
        if not inexact and int(float(value)) != value:
            raise InputError(expected("read_scalars", "scalars", "to be integers that a float holds exactly", value))
    return [float(bits.view(np.float64) if inexact else bits) for bits, inexact in zip(row, floating, strict=True)]


def pack(where: str, tensor: Tensor, dtype: np.dtype | None, check: Check) -> Transfer:
    """Pack a checked tensor on its device, in the dtype that crosses, with the record of its checks."""
    arrives = WIDENED.get(tensor.dtype, tensor.dtype) if dtype is None else TORCH[dtype]
    plain = tensor.resolve_conj().resolve_neg()
    packed, bad = plain, None
    if WIDENED.get(tensor.dtype) != arrives:
        packed, bad = cast(where, plain, arrives)
    text, remedy = f"to fit {NUMPY[arrives]}", "Pass a wider dtype."
    if check == "finite" and (tensor.is_floating_point() or tensor.is_complex()):
        infinite = ~plain.to(WIDENED.get(plain.dtype, plain.dtype)).isfinite()
        bad = infinite if bad is None else bad | infinite
        text, remedy = f"to be finite and {text}", 'Pass check="raise" to let NaN and infinity through.'
    record, values = None, torch.int64
    if bad is not None and bad.numel():
        numbers = comparable(plain)
        record, values = measure(bad, numbers, numbers), numbers.dtype
    packed = packed.contiguous()
    shape = tuple(tensor.shape)
    rule = Rule(where=where, argument="tensor", text=text, remedy=remedy, shape=shape, values=values)
    private = packed.numel() > 0 and packed.data_ptr() != tensor.data_ptr()
    return Transfer(payload=packed, arrives=arrives, record=record, rule=rule, private=private)


def _view(tensor: Tensor) -> np.ndarray | None:
    """The read-only view of an ordinary contiguous CPU tensor; None sends all others the long way.

    torch refuses by itself what has no such view; asking first would cost more than the call.
    """
    if type(tensor) not in _ORDINARY:
        return None
    try:
        array: np.ndarray = (tensor.detach() if tensor.requires_grad else tensor).numpy()
    except (RuntimeError, TypeError):
        return None
    flags = array.flags
    if not flags.c_contiguous:
        return None
    flags.writeable = False
    return array


def _check_out(out: np.ndarray, source: Tensor, wanted: np.dtype | None, copy: bool | None) -> np.dtype:
    """Return the dtype of `out`, or refuse it."""
    fits = isinstance(out, np.ndarray) and out.flags.writeable and out.flags.c_contiguous
    if not fits or out.shape != tuple(source.shape) or (wanted is not None and out.dtype != wanted):
        given = f"{out.dtype} of shape {out.shape}" if isinstance(out, np.ndarray) else type(out).__name__
        rule = f"to be a writeable C-contiguous array of shape {tuple(source.shape)}"
        raise InputError(expected(_WHERE, "out", rule + (f" and dtype {wanted}" if wanted else ""), given))
    if copy is False:
        raise InputError(expected(_WHERE, "copy", "not to be False together with `out`", copy))
    if source.device.type == "cpu" and np.may_share_memory(out, _span(source)):
        raise InputError(expected(_WHERE, "out", "to share no memory with `tensor`", "an overlapping array"))
    return wanted_dtype(_WHERE, out.dtype)


def _span(tensor: Tensor) -> np.ndarray:
    """The bytes of the tensor's whole storage, for a comparison of addresses only."""
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage()).numpy()


def _needs_copy(source: Tensor, wanted: np.dtype | None) -> str:
    given = f"{source.dtype} on {source.device}, strides {source.stride()}"
    given += "" if wanted is None else f", for {wanted}"
    remedy = "Pass copy=None or copy=True."
    return expected(_WHERE, "tensor", "to be a contiguous CPU tensor of the same dtype for copy=False", given, remedy)
