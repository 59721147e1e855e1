"""A few host buffers that are allocated once and used in turn, each of them by one result at a time."""

import math
import os
import queue
import threading
import weakref
from typing import Any

import numpy as np
import torch
from torch import Tensor

from segmeter.bridge.device_check import FIRST_BAD, RECORD_SIZE, raise_if_bad
from segmeter.bridge.dtypes import NUMPY
from segmeter.bridge.transfer import Transfer, read_only
from segmeter.bridge.transport import Copy, Transport, warn_once
from segmeter.errors import InputError, RunError

ALIGNMENT = 64  # bytes
_RECORD_BYTES = RECORD_SIZE * 8


class Slot:
    """One host buffer, its event, and what is on its way into it.

    The record has memory of its own: torch pins whole powers of two, so a few bytes more could double a buffer.
    """

    def __init__(self, transport: Transport, nbytes: int, *, grows: bool) -> None:
        self.transport = transport
        self.grows = grows
        self._allocate(-(-nbytes // ALIGNMENT) * ALIGNMENT)
        with torch.inference_mode(False):
            self.record = transport.allocate(_RECORD_BYTES).view(torch.int64)
        self.event = transport.event()
        self._pid = os.getpid()
        self._sources: tuple[Tensor, ...] = ()
        self._lock = threading.Lock()  # one thread may drain while another takes a result and a third submits
        self.holder = ""

    def load(self, transfer: Transfer) -> tuple[Tensor, Tensor | None]:
        """Start the copies; return where payload and record will be, which must not be read before `wait`.

        What is private host memory already stays where it is.
        """
        payload, record = transfer.payload, transfer.record
        if self.transport.immediate and transfer.private and payload.device.type == "cpu":
            return payload, record
        if not transfer.private and not self.transport.immediate:
            payload = payload.clone()  # the caller may write to his tensor while the copy runs
        host = self._room(transfer.nbytes)[: transfer.nbytes].view(payload.dtype).view(payload.shape)
        copies: list[Copy] = [(host, payload)]
        if record is not None:
            copies.append((self.record, record))
        with self._lock:
            self._sources = tuple(source for _, source in copies)
            self.transport.start(copies, self.event)
        return host, None if record is None else self.record

    def wait(self) -> None:
        """Wait for what `load` started; only now may the sources go."""
        check_process(self._pid)
        with self._lock:
            if self._sources:
                self.transport.wait(self.event)
                self._sources = ()

    def holds(self, host: Tensor) -> bool:
        """Whether a tensor lies in the buffer, where the next result will be written."""
        return host.untyped_storage().data_ptr() == self.buffer.untyped_storage().data_ptr()

    def _room(self, nbytes: int) -> Tensor:
        """The buffer if the payload fits, else a larger one, or memory that goes with this one result."""
        if nbytes <= self.capacity:
            return self.buffer
        if self.grows:  # to a power of two, which torch pins anyway: few of them are ever made
            self._allocate(1 << (nbytes - 1).bit_length())
            return self.buffer
        warn_once(f"HostCopier: {nbytes} bytes do not fit a slot of {self.capacity}; give slot_bytes for the largest")
        with torch.inference_mode(False):
            return torch.empty(nbytes, dtype=torch.uint8)

    def _allocate(self, nbytes: int) -> None:
        with torch.inference_mode(False):  # a tensor made in inference mode could not be written to outside of it
            self.buffer = self.transport.allocate(nbytes)
        self.capacity = nbytes  # last: where memory ran out, the old buffer stays


class PendingCopy:
    """A payload on its way into a slot. The slot is free again when this object and all arrays on it are gone."""

    def __init__(self, slot: Slot, transfer: Transfer, free: "queue.SimpleQueue[Slot]") -> None:
        self._slot = slot
        self._rule, self._arrives = transfer.rule, transfer.arrives
        self._leave = weakref.finalize(self, free.put, slot)
        self._leave.atexit = False
        self._host, self._record = slot.load(transfer)

    def array(self, case_id: str) -> np.ndarray:
        """Wait, check the record, and give the read-only array; InputError if a check failed."""
        self._slot.wait()
        try:
            self._raise_if_bad(case_id)
        except InputError:
            self._leave()  # whoever keeps the error, and with it this frame, must not keep the slot
            raise
        if self._host.dtype in NUMPY:
            return np.asarray(_Held(self, self._host))
        return read_only(self._own())

    def rows(self, case_id: str) -> tuple[np.ndarray, InputError | None]:
        """Wait, and give an array that the caller owns: all rows, or those before the first bad one and the error."""
        self._slot.wait()
        try:
            self._raise_if_bad(case_id)
        except InputError as error:
            good = self._first_bad_row()
            return self._own()[:good], error.with_traceback(None)
        return self._own(), None

    def _raise_if_bad(self, case_id: str) -> None:
        if self._record is not None and self._rule is not None:
            raise_if_bad(self._record.numpy(), self._rule, case_id)

    def _first_bad_row(self) -> int:
        if self._record is None or self._rule is None:
            raise RuntimeError("first bad row: no record")
        return int(self._record.numpy()[FIRST_BAD]) // math.prod(self._rule.shape[1:])

    def _own(self) -> np.ndarray:
        """The values in memory outside of the slot."""
        widened = self._host.to(self._arrives)
        array: np.ndarray = widened.numpy()
        return array.copy() if self._slot.holds(widened) else array


class _Held:
    """What NumPy asks for the memory; the array refers to it, and through it to the copy."""

    def __init__(self, copy: PendingCopy, host: Tensor) -> None:
        self._copy = copy
        described = host.numpy().__array_interface__
        self.__array_interface__: dict[str, Any] = {**described, "data": (host.data_ptr(), True)}


class PinnedPool:
    """Two or more slots of the same size; with `grows`, each is made anew for the first payload beyond its size."""

    def __init__(self, transport: Transport, *, slots: int, slot_bytes: int, grows: bool) -> None:
        self.slots = [Slot(transport, slot_bytes, grows=grows) for _ in range(slots)]
        self._free: queue.SimpleQueue[Slot] = queue.SimpleQueue()  # its put is safe in a finalizer
        for slot in self.slots:
            self._free.put(slot)

    def take(self, timeout_s: float | None) -> Slot:
        """Wait for a free slot; RunError after `timeout_s`."""
        try:
            slot = self._free.get(timeout=timeout_s)
        except queue.Empty:
            held = ", ".join(repr(slot.holder) for slot in self.slots)
            message = f"HostCopier: expected a slot to get free within {timeout_s:g} s, got none. The results of {held}"
            raise RunError(f"{message} are still held: call release() on them and drop their arrays.") from None
        slot.wait()  # a result that nobody asked for may still be on its way
        return slot

    def give_back(self, slot: Slot) -> None:
        self._free.put(slot)

    def start_copy(self, slot: Slot, transfer: Transfer, case_id: str) -> PendingCopy:
        slot.holder = case_id
        return PendingCopy(slot, transfer, self._free)


def check_process(pid: int) -> None:
    """Refuse to work in a forked child, where neither CUDA nor the parent's threads exist."""
    if os.getpid() != pid:
        raise RunError("HostCopier: expected the process that made it, got a forked child. Make one in the child.")
