"""A packed tensor with the record of its checks, and the blocking way to bring it to the host."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from segmeter.bridge.device_check import Rule, raise_if_bad
from segmeter.bridge.dtypes import NUMPY


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """Something packed on the device, ready to cross.

    Parameters
    ----------
    payload
        C-contiguous, without conj or neg bits, in the dtype that crosses.
    arrives
        The torch dtype on the host; differs from the payload's where NumPy lacks that one.
    record, rule
        The record of the checks, (6,) int64 on the same device, and the rule that it belongs to. None where nothing can
        be wrong.
    private
        Whether nobody else can reach the payload's memory.
    """

    payload: Tensor
    arrives: torch.dtype
    record: Tensor | None
    rule: Rule | None
    private: bool

    @property
    def nbytes(self) -> int:
        return self.payload.numel() * self.payload.element_size()


def fetch(transfer: Transfer, *, out: Tensor | None = None) -> Tensor:
    """Bring a packed tensor to the host and wait for it; return `out`, or else a CPU tensor of dtype `arrives`.

    The payload and its record are queued on the same stream, and the host waits once for both.
    """
    payload, record = transfer.payload, transfer.record
    if payload.device.type == "cuda":
        payload, record = _fetch_cuda(payload, record, out)
    elif payload.device.type != "cpu":
        payload, record = payload.cpu(), None if record is None else record.cpu()
    if record is not None and transfer.rule is not None:
        raise_if_bad(record.numpy(), transfer.rule, None)
    if out is not None:
        return out if payload is out else out.copy_(payload)
    return payload if payload.dtype in NUMPY else payload.to(transfer.arrives)


def read_only(array: np.ndarray) -> np.ndarray:
    """Forbid writing to `array`, and return it."""
    array.flags.writeable = False
    return array


def _fetch_cuda(payload: Tensor, record: Tensor | None, out: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Queue both copies, then wait on one event; fresh memory is pageable, as pinning it for one use costs more."""
    direct = out is not None and out.dtype == payload.dtype
    with torch.cuda.device(payload.device):
        host = out if direct and out is not None else torch.empty_like(payload, device="cpu")
        host.copy_(payload, non_blocking=True)
        arriving = None if record is None else torch.empty_like(record, device="cpu").copy_(record, non_blocking=True)
        done = torch.cuda.Event()  # type: ignore[no-untyped-call]
        done.record()
        done.synchronize()
    return host, arriving
