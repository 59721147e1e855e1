"""A few host buffers that are allocated once and used in turn, each of them by one result at a time."""

import os
import queue
import threading
import weakref
from typing import Any

import numpy as np
import torch
from torch import Tensor

from segmeter.bridge.dtypes import NUMPY
from segmeter.bridge.parcel import Parcel, read_only
from segmeter.bridge.record import RECORD_SIZE, judge
from segmeter.bridge.transport import Copy, Transport, say_once
from segmeter.errors import InputError, RunError

ALIGNMENT = 64  # bytes
_RECORD_BYTES = RECORD_SIZE * 8


class Slot:
    """One host buffer, its event, and what is on its way into it.

    The record has memory of its own: torch pins whole powers of two, so a few bytes more could double a buffer.
    """

    def __init__(self, transport: Transport, nbytes: int) -> None:
        self.capacity = -(-nbytes // ALIGNMENT) * ALIGNMENT
        self.transport = transport
        with torch.inference_mode(False):  # a tensor made in inference mode could not be written to outside of it
            self.buffer = transport.allocate(self.capacity)
            self.record = transport.allocate(_RECORD_BYTES).view(torch.int64)
        self.event = transport.event()
        self._pid = os.getpid()
        self._sources: tuple[Tensor, ...] = ()
        self._lock = threading.Lock()  # one thread may drain while another takes a result and a third submits
        self.holder = ""

    def load(self, parcel: Parcel) -> Tensor:
        """Start the copies; return the host tensor that will hold the payload, and must not be read before `wait`."""
        payload, record = parcel.payload, parcel.record
        if not parcel.private and not self.transport.immediate:
            payload = payload.clone()  # the caller may write to his tensor while the copy runs
        buffer = self.buffer if parcel.nbytes <= self.capacity else self._larger(parcel.nbytes)
        host = buffer[: parcel.nbytes].view(payload.dtype).view(payload.shape)
        copies: list[Copy] = [(host, payload)]
        if record is not None:
            copies.append((self.record, record))
        with self._lock:
            self._sources = tuple(source for _, source in copies)
            self.transport.start(copies, self.event)
        return host

    def wait(self) -> None:
        """Wait for what `load` started; only now may the sources go."""
        check_process(self._pid)
        with self._lock:
            if self._sources:
                self.transport.wait(self.event)
                self._sources = ()

    def _larger(self, nbytes: int) -> Tensor:
        """Memory for one payload that does not fit; it goes with the result, and the slot stays taken meanwhile."""
        say_once(f"Exporter: {nbytes} bytes do not fit a slot of {self.capacity}; give slot_bytes for the largest")
        with torch.inference_mode(False):
            return torch.empty(nbytes, dtype=torch.uint8)


class Landing:
    """A payload on its way into a slot. The slot is free again when this object and all arrays on it are gone."""

    def __init__(self, slot: Slot, parcel: Parcel, free: "queue.SimpleQueue[Slot]") -> None:
        self._slot = slot
        self._rule, self._arrives = parcel.rule, parcel.arrives
        self._recorded = parcel.record is not None
        self._leave = weakref.finalize(self, free.put, slot)
        self._leave.atexit = False
        self._host = slot.load(parcel)

    def array(self, case_id: str) -> np.ndarray:
        """Wait, check the record, and give the read-only array; InputError if a check failed."""
        self._slot.wait()
        if self._recorded and self._rule is not None:
            try:
                judge(self._slot.record.numpy(), self._rule, case_id)
            except InputError:
                self._leave()  # whoever keeps the error, and with it this frame, must not keep the slot
                raise
        if self._host.dtype in NUMPY:
            return np.asarray(_Held(self, self._host))
        widened: np.ndarray = self._host.to(self._arrives).numpy()
        self._leave()
        return read_only(widened)


class _Held:
    """What NumPy asks for the memory; the array refers to it, and through it to the landing."""

    def __init__(self, landing: Landing, host: Tensor) -> None:
        self._landing = landing
        described = host.numpy().__array_interface__
        self.__array_interface__: dict[str, Any] = {**described, "data": (host.data_ptr(), True)}


class Ring:
    """Two or more slots of the same size."""

    def __init__(self, transport: Transport, *, slots: int, slot_bytes: int) -> None:
        self.slots = [Slot(transport, slot_bytes) for _ in range(slots)]
        self._free: queue.SimpleQueue[Slot] = queue.SimpleQueue()  # its put is safe in a finalizer
        for slot in self.slots:
            self._free.put(slot)

    def take(self, timeout_s: float | None) -> Slot:
        """Wait for a free slot; RunError after `timeout_s`."""
        try:
            slot = self._free.get(timeout=timeout_s)
        except queue.Empty:
            held = ", ".join(repr(slot.holder) for slot in self.slots)
            message = f"Exporter: expected a slot to get free within {timeout_s:g} s, got none. The results of {held}"
            raise RunError(f"{message} are still held: call ticket.release() and drop their arrays.") from None
        slot.wait()  # a result that nobody asked for may still be on its way
        return slot

    def give_back(self, slot: Slot) -> None:
        self._free.put(slot)

    def land(self, slot: Slot, parcel: Parcel, case_id: str) -> Landing:
        slot.holder = case_id
        return Landing(slot, parcel, self._free)


def check_process(pid: int) -> None:
    """Refuse to work in a forked child, where neither CUDA nor the parent's threads exist."""
    if os.getpid() != pid:
        raise RunError("Exporter: expected the process that made it, got a forked child. Make one in the child.")
