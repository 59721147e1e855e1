"""0-d tensors -> floats, in one transfer for all of them."""

import struct
from collections.abc import Sequence

import torch
from torch import Tensor

from segmeter.bridge.to_numpy import to_numpy
from segmeter.checks import expected
from segmeter.errors import InputError


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
    >>> from segmeter.bridge.scalars import read_scalars
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
    bits = torch.stack([_bits(scalar) for scalar in here])
    row = to_numpy(bits)
    return [_read(int(number), scalar.is_floating_point()) for number, scalar in zip(row, scalars, strict=True)]


def _bits(scalar: Tensor) -> Tensor:
    return scalar.to(torch.float64).view(torch.int64) if scalar.is_floating_point() else scalar.to(torch.int64)


def _read(bits: int, floating: bool) -> float:
    if floating:
        return float(struct.unpack("<d", struct.pack("<q", bits))[0])
    if int(float(bits)) != bits:
        raise InputError(expected("read_scalars", "scalars", "to be integers that a float holds exactly", bits))
    return float(bits)
