"""Represents a tensor that is packed on its device, ready to cross, with the record of the checks of its values.

Checks must not make the host wait for the device, so they write six integers beside the payload. These cross on the
same stream, and the host reads them when it takes the result.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from segmeter.bridge.dtypes import NUMPY, WIDENED
from segmeter.checks import expected
from segmeter.errors import InputError


class Rule(NamedTuple):
    """The rule that the values have to keep, in the words of the error."""

    where: str
    argument: str
    text: str
    remedy: str = ""


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
        The record of the checks, (6,) int64 on the same device; None where nothing can be wrong, or nothing is.
    rule
        For the message if the record counts bad values.
    shape, values
        Turn the record's flat index into a position; the dtype in which its min and max were measured.
    sortable
        Whether a kernel combined min and max as int32 that sort as floats do, but without NaN.
    """

    payload: Tensor
    private: bool
    record: Tensor | None
    rule: Rule
    shape: tuple[int, ...]
    values: torch.dtype
    sortable: bool = False

    @property
    def arrives(self) -> torch.dtype:
        """The dtype on the host, which differs from the payload's where NumPy lacks that one."""
        return WIDENED.get(self.payload.dtype, self.payload.dtype)

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
        given = f"min {low!r} and max {high!r}, {bad} bad value(s){kinds}, the first at index {position}"
        if case_id is not None:
            given += f" of case {case_id!r}"
        raise InputError(expected(self.rule.where, self.rule.argument, self.rule.text, given, self.rule.remedy))

    def good_rows(self, record: Tensor | None) -> int | None:
        """Return the number of rows of the first axis before the first bad value; None if all are good."""
        if record is None or int(record[0]) == 0:
            return None
        return int(record[3]) // math.prod(self.shape[1:])


def packed(tensor: Tensor, payload: Tensor, bad: Tensor | None, numbers: Tensor, rule: Rule) -> Transfer:
    """Describe a tensor that was packed as `payload`; `bad` marks the `numbers`, its values, that break the rule."""
    payload = payload.contiguous()
    return Transfer(
        payload=payload,
        private=payload.numel() > 0 and payload.data_ptr() != tensor.data_ptr(),
        record=None if bad is None else measure(bad, numbers, numbers),
        rule=rule,
        shape=tuple(tensor.shape),
        values=numbers.dtype,
    )


def measure(bad: Tensor, low: Tensor, high: Tensor) -> Tensor | None:
    """Write the record of a check on the device of `bad`, without waiting for it.

    It holds the number of bad values, of NaN and of infinities among them, the flat index of the first bad one, and the
    bits of the smallest and of the largest value.

    Parameters
    ----------
    bad
        bool, any shape: where a value breaks the rule.
    low, high
        Smallest and largest values, of the shape of `bad`; NaN and infinity are counted in both.

    Returns
    -------
    (6,) int64, or None without any value, and on the CPU if nothing is bad: asking costs no wait there.
    """
    if not bad.numel() or (bad.device.type == "cpu" and not bool(bad.any())):
        return None
    flat = bad.flatten()
    numbers = (
        flat.sum(),
        (bad & (low.isnan() | high.isnan())).sum(),
        (bad & (low.isinf() | high.isinf())).sum(),
        flat.to(torch.uint8).argmax(),
        _bits(low.amin()),
        _bits(high.amax()),
    )
    return torch.stack(numbers)


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
    return payload if payload.dtype in NUMPY else payload.to(transfer.arrives)
