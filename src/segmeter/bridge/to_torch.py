"""Turns arrays into tensors: any layout and byte order, always fresh memory, never a changed value."""

import numpy as np
import torch
from torch import Tensor

from segmeter.bridge.dtypes import TORCH, check_device
from segmeter.checks import expected
from segmeter.errors import InputError

_WHERE = "to_torch"


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
    where = check_device(_WHERE, device)
    rule = "to be a NumPy array of numbers or bools"
    if isinstance(array, np.ma.MaskedArray):
        remedy = "Its mask would be lost: pass array.filled(value)."
        raise InputError(expected(_WHERE, "array", rule, "a masked array", remedy))
    if not isinstance(array, (np.ndarray, np.generic)):
        raise InputError(expected(_WHERE, "array", rule, type(array).__name__, "Pass numpy.asarray(...)."))
    native = array.dtype.newbyteorder("=")
    if native not in TORCH:
        raise InputError(expected(_WHERE, "array", rule, f"dtype {array.dtype}"))
    if where.type != "cpu" and array.flags.c_contiguous and array.flags.writeable and array.dtype.isnative:
        return torch.from_numpy(np.asarray(array)).to(where)
    host = torch.empty(array.shape, dtype=TORCH[native])
    np.copyto(host.numpy(), array, casting="equiv")
    return host.to(where)
