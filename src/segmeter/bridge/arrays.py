"""Turns tensors into arrays and arrays into tensors: complete on return, exact, and clear about who owns the memory."""

import numpy as np
import torch
from numpy.typing import DTypeLike
from torch import Tensor

from segmeter.bridge.transfer import (
    NUMPY,
    TORCH,
    WIDENED,
    Transfer,
    cast,
    check_device,
    check_tensor,
    comparable,
    fetch,
    packed,
    wanted_dtype,
)
from segmeter.checks import expected
from segmeter.errors import InputError


def to_numpy(tensor: Tensor, *, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
    """Return the values of a tensor as a C-contiguous array, which is complete when this returns.

    Parameters
    ----------
    tensor
        Any shape, on any device; its gradient is left behind. Slice before calling, as the whole tensor crosses.
    dtype
        NumPy dtype of the result. None keeps the tensor's; bfloat16 and float8, which NumPy lacks, widen to float32
        and complex32 to complex64, exactly. Integers must arrive exactly; floats are rounded to nearest in a
        narrower float, but never to infinity. Complex numbers are not converted.
    copy
        None: a read-only view of a CPU tensor where one is possible, else a fresh writeable array.
        True: always a fresh writeable array, owned by the caller. False: the view, or an error.

    Returns
    -------
    ndarray of the tensor's shape, C-contiguous. For a tensor on a device the caller owns it.

    Raises
    ------
    InputError
        The tensor has no dense values (sparse, nested, quantised, meta, fake); `dtype` can't hold a value (with min,
        max and the first bad index); a copy is needed but `copy=False`.

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
    array = _view(tensor) if dtype is None else None
    fresh = False
    if array is None:
        transfer = pack("to_numpy", tensor, dtype)
        fresh = transfer.private or tensor.device.type != "cpu" or transfer.payload.dtype not in NUMPY
        if copy is False and fresh:
            got = f"{tensor.dtype} on {tensor.device}, strides {tensor.stride()}"
            got += "" if dtype is None else f", for {np.dtype(dtype)}"
            rule = "to be a contiguous CPU tensor of the same dtype for copy=False"
            raise InputError(expected("to_numpy", "tensor", rule, got, "Pass copy=None or copy=True."))
        array = fetch(transfer).numpy()
    if not fresh:
        array = array.copy() if copy else array
        array.flags.writeable = bool(copy)
    return array


def _view(tensor: Tensor) -> np.ndarray | None:
    """Return a view of an ordinary contiguous CPU tensor, or None for any other.

    Trying is quick: checking first whether torch can make the view would take ten times as long.
    """
    if type(tensor) not in (Tensor, torch.nn.Parameter):
        return None
    try:
        array: np.ndarray = tensor.detach().numpy()
    except (RuntimeError, TypeError):
        return None
    return array if array.flags.c_contiguous else None


def pack(where: str, tensor: Tensor, dtype: DTypeLike | None) -> Transfer:
    """Check a tensor and pack it on its device, in the dtype that crosses, together with the record of its checks."""
    tensor = check_tensor(where, "tensor", tensor)
    plain = tensor.resolve_conj().resolve_neg()
    host_dtype = WIDENED.get(tensor.dtype, tensor.dtype) if dtype is None else TORCH[wanted_dtype(where, dtype)]
    payload = plain
    bad = None
    if dtype is not None and WIDENED.get(tensor.dtype) != host_dtype:
        payload, bad = cast(where, plain, host_dtype)
    words = (where, "tensor", f"to fit {NUMPY[host_dtype]}", "Pass a wider dtype.")
    return packed(tensor, payload, bad, plain if bad is None else comparable(plain), words)


def to_torch(array: np.ndarray, *, device: str | torch.device = "cpu") -> Tensor:
    """Copy an array into a new contiguous tensor.

    Parameters
    ----------
    array
        Any shape, strides (negative ones too), byte order; read-only or not. It is never aliased.
    device
        Where the tensor goes.

    Returns
    -------
    Tensor of the array's shape and dtype.

    Raises
    ------
    InputError
        Not an array of numbers (masked arrays, objects, strings, dates, long double), or a device that is not there.

    Examples
    --------
    >>> import numpy as np
    >>> from segmeter import to_torch
    >>> to_torch(np.arange(3, dtype=">u2")[::-1])
    tensor([2, 1, 0], dtype=torch.uint16)
    """
    target_device = check_device("to_torch", device)
    rule = "to be a NumPy array of numbers or bools"
    if isinstance(array, np.ma.MaskedArray):
        remedy = "Its mask would be lost: pass array.filled(value)."
        raise InputError(expected("to_torch", "array", rule, "a masked array", remedy))
    if not isinstance(array, (np.ndarray, np.generic)):
        raise InputError(expected("to_torch", "array", rule, type(array).__name__, "Pass numpy.asarray(...)."))
    native = array.dtype.newbyteorder("=")
    if native not in TORCH:
        raise InputError(expected("to_torch", "array", rule, f"dtype {array.dtype}"))
    host = torch.empty(array.shape, dtype=TORCH[native])
    np.copyto(host.numpy(), array, casting="equiv")
    return host.to(target_device)


def indexable(target: np.ndarray) -> np.ndarray:
    """Return a target in a dtype that torch can compare and index, which uint16 is not."""
    return target.astype(np.int32) if target.dtype == np.uint16 else target
