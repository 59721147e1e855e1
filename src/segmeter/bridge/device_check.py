"""The small record that checks leave on the device, and the error that it becomes on the host.

Checks must not make the host wait for the device, so they write six integers beside the payload, which cross on the
same stream; the host reads them when it takes the result.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from segmeter.checks import expected
from segmeter.errors import InputError

RECORD_SIZE = 6  # bad values, NaN among them, infinities among them, first bad flat index, bits of min, bits of max
FIRST_BAD = 3


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What the values had to be, in the words of the error.

    `shape` turns the flat index into a position; `values` is the dtype in which min and max were measured. `sortable`
    says that a kernel combined them as int32 of the same order, which knows no NaN.
    """

    where: str
    argument: str
    text: str
    remedy: str
    shape: tuple[int, ...]
    values: torch.dtype
    sortable: bool = False


def measure(bad: Tensor, low: Tensor, high: Tensor) -> Tensor | None:
    """Write the record of a check on the device of `bad`, without waiting for it.

    Parameters
    ----------
    bad
        bool, any shape: where a value breaks the rule.
    low, high
        Smallest and largest values, of the shape of `bad`; NaN and infinity are counted in both.

    Returns
    -------
    (6,) int64, or None on the CPU where nothing is bad: there the answer costs no wait.
    """
    if bad.device.type == "cpu" and not bool(bad.any()):
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


def raise_if_bad(record: np.ndarray, rule: Rule, case_id: str | None) -> None:
    """Raise the InputError that a (6,) int64 `record` stands for; a record without bad values passes."""
    bad, nan, inf, first = (int(value) for value in record[:4])
    if bad == 0:
        return
    position = tuple(int(index) for index in np.unravel_index(first, rule.shape))
    low, high = (_number(_unsorted(int(bits)) if rule.sortable else int(bits), rule.values) for bits in record[4:])
    if rule.sortable and nan:
        low = high = math.nan
    kinds = f" ({nan} NaN, {inf} infinite)" if nan or inf else ""
    given = f"min {low!r} and max {high!r}, {bad} bad value(s){kinds}, the first at index {position}"
    if case_id is not None:
        given += f" of case {case_id!r}"
    raise InputError(expected(rule.where, rule.argument, rule.text, given, rule.remedy))


def _bits(value: Tensor) -> Tensor:
    """A 0-d number as int64: itself or, of a float, its bits; so that counts and values share one record."""
    if not value.is_floating_point():
        return value.to(torch.int64)
    if value.dtype == torch.float64:
        return value.view(torch.int64)
    return value.to(torch.float32).view(torch.int32).to(torch.int64)


def _unsorted(number: int) -> int:
    """Give the bits of a float32 whose int32 of the same order is `number`."""
    return number ^ 0x7FFFFFFF if number < 0 else number


def _number(bits: int, values: torch.dtype) -> float:
    """Read back what `_bits` wrote."""
    if not values.is_floating_point:
        return bits
    kind, size = (np.float64, np.int64) if values == torch.float64 else (np.float32, np.int32)
    return float(np.array(bits, size).view(kind))
