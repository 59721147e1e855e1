"""Turns arrays into tensors: any layout and byte order, always fresh memory, never a changed value."""

import numpy as np
import torch
from torch import Tensor

from segmeter.bridge.dtypes import TORCH, cast, comparable
from segmeter.bridge.tensor_checks import check_device
from segmeter.bridge.transfer import Rule, measure, raise_if_bad
from segmeter.checks import expected
from segmeter.errors import InputError

_WHERE = "to_torch"


def to_torch(
    array: np.ndarray, *, device: str | torch.device = "cpu", dtype: str | torch.dtype | None = None
) -> Tensor:
    """Copy an array into a new contiguous tensor.

    Parameters
    ----------
    array
        Any shape, strides (negative ones too), byte order; read-only or not. It is never aliased.
    device
        Where the tensor goes.
    dtype
        None keeps the array's. Otherwise a torch dtype or its name; integers must arrive exactly, floats are rounded
        to nearest in a narrower float, but never to infinity.

    Returns
    -------
    Tensor of the array's shape.

    Raises
    ------
    InputError
        Not an array of numbers (masked arrays, objects, strings, dates, long double), a value that `dtype` can't
        hold, or a device that is not there.

    Examples
    --------
    >>> import numpy as np
    >>> from segmeter import to_torch
    >>> to_torch(np.arange(3, dtype=">u2")[::-1])
    tensor([2, 1, 0], dtype=torch.uint16)
    """
    where = check_device(_WHERE, device)
    _check_array(array)
    native = array.dtype.newbyteorder("=")
    if where.type != "cpu" and array.flags.c_contiguous and array.flags.writeable and array.dtype.isnative:
        tensor = torch.from_numpy(np.asarray(array)).to(where)
    else:
        host = torch.empty(array.shape, dtype=TORCH[native])
        np.copyto(host.numpy(), array, casting="equiv")
        tensor = host.to(where)
    return tensor if dtype is None else _convert(tensor, _torch_dtype(dtype))


def _check_array(array: object) -> None:
    rule = "to be a NumPy array of numbers or bools"
    if isinstance(array, np.ma.MaskedArray):
        remedy = "Its mask would be lost: pass array.filled(value)."
        raise InputError(expected(_WHERE, "array", rule, "a masked array", remedy))
    if not isinstance(array, (np.ndarray, np.generic)):
        raise InputError(expected(_WHERE, "array", rule, type(array).__name__, "Pass numpy.asarray(...)."))
    if array.dtype.newbyteorder("=") not in TORCH:
        raise InputError(expected(_WHERE, "array", rule, f"dtype {array.dtype}"))


def _torch_dtype(dtype: str | torch.dtype) -> torch.dtype:
    found = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(found, torch.dtype):
        raise InputError(expected(_WHERE, "dtype", "to be a torch dtype", repr(dtype)))
    return found


def _convert(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Cast on the tensor's device and raise if a value was lost."""
    converted, bad = cast(_WHERE, tensor, dtype)
    if bad is None or not bad.numel():
        return converted
    numbers = comparable(tensor)
    record = measure(bad, numbers, numbers)
    if record is not None:
        text, shape = f"to fit {dtype}", tuple(tensor.shape)
        rule = Rule(where=_WHERE, argument="array", text=text, remedy="", shape=shape, values=numbers.dtype)
        raise_if_bad(record.cpu().numpy(), rule, None)
    return converted
