"""Tensors -> arrays while the device computes on: submit now, take the result when it is needed."""

import os
import queue
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self, get_args

import numpy as np
import torch
from numpy.typing import DTypeLike
from torch import Tensor

from segmeter.bridge.decode import ProbsDtype, pack_labels, pack_probs
from segmeter.bridge.dtypes import LabelDtype, wanted_dtype
from segmeter.bridge.pinned_pool import PendingCopy, PinnedPool, check_process
from segmeter.bridge.tensor_checks import check_device, check_tensor
from segmeter.bridge.to_numpy import Check, pack
from segmeter.bridge.transfer import Transfer
from segmeter.bridge.transport import Transport, open_transport, warn_once
from segmeter.checks import expected, known_name, real_number, whole_number
from segmeter.classes import Task
from segmeter.errors import InputError, RunError, SegmeterError

Consume = Callable[[str, np.ndarray], None]
_WHERE = "HostCopier"


class PendingArray:
    """A result that is on its way.

    Parameters
    ----------
    case_id
        What was submitted; errors name it.
    """

    def __init__(self, case_id: str, copy: PendingCopy) -> None:
        self.case_id = case_id
        self._copy: PendingCopy | None = copy
        self._array: np.ndarray | None = None
        self._problems: tuple[str, ...] = ()
        self._lock = threading.Lock()

    def result(self) -> np.ndarray:
        """Wait for this result only, and return it.

        Returns
        -------
        Read-only, C-contiguous ndarray; the same one on every call. It stays valid as long as anyone holds it or a
        view of it, and occupies a slot of the copier until then.

        Raises
        ------
        InputError
            A check failed: the message names the case, min, max and the first bad index.
        RunError
            It was released.
        """
        with self._lock:
            if self._problems:
                raise InputError(self._problems)
            if self._array is not None:
                return self._array
            if self._copy is None:
                raise RunError(
                    f"PendingArray.result: expected one in use, got a released one of case {self.case_id!r}."
                )
            try:
                self._array = self._copy.array(self.case_id)
            except InputError as error:
                self._problems = error.problems
                raise
            finally:
                self._copy = None
            return self._array

    def rows(self) -> Iterator[np.ndarray]:
        """Wait for this result, free its slot, and yield the rows of its first axis, one per image of a batch.

        Yields
        ------
        Writeable ndarrays that the caller owns. For use once, and in place of `result`.

        Raises
        ------
        InputError
            A check failed: raised in the place of the first row with a bad value, after the good ones before it.
        RunError
            It was released, or its result taken.
        """
        with self._lock:
            copy, self._copy = self._copy, None
        if copy is None:
            raise RunError(f"PendingArray.rows: expected an array in use, got a released one of case {self.case_id!r}.")
        array, fault = copy.rows(self.case_id)
        del copy
        yield from array
        if fault is not None:
            raise fault

    def release(self) -> None:
        """Let go of the result; the slot is free again when its arrays are gone too."""
        with self._lock:
            self._copy = self._array = None


class HostCopier:
    """Brings results to the host through a pool of pinned buffers while the device computes on.

    What is submitted is packed and checked on its device and copied on a side stream; nothing waits until a result
    is taken, and that wait is for this result alone. What a tensor held when it was submitted is what arrives. On
    the CPU the same code makes plain copies. A context manager; used from one thread or several.

    Parameters
    ----------
    device
        Where the tensors are.
    slots
        How many results may be on their way or held at once, >= 2. Submitting blocks while all are taken.
    slot_bytes
        Size of one buffer. A larger payload gets unpinned memory of its own. None begins with the size of the first
        payload, and makes a buffer anew, of the next power of two, where a larger one comes.
    consume
        Called with (case_id, array) for each result, in order, in a thread of the copier; the array may be kept,
        at the price of its slot, but the pending array is released. Its exception is raised by the next submit and by
        `drain`. None: the caller takes the results from the pending arrays.
    patience_s
        Without `consume`: how many seconds a submit waits for a slot before it raises, > 0.
    transport
        How copies are made; None takes the one of the device.

    Raises
    ------
    InputError
        `device` is not there, or a number is out of range.

    Examples
    --------
    >>> import torch
    >>> from segmeter import HostCopier
    >>> with HostCopier(device="cpu") as copier:
    ...     pending = copier.submit(torch.tensor([1, 2]), case_id="a", dtype="uint8")
    ...     pending.result()
    array([1, 2], dtype=uint8)
    """

    def __init__(
        self,
        *,
        device: str | torch.device,
        slots: int = 3,
        slot_bytes: int | None = None,
        consume: Consume | None = None,
        patience_s: float = 60.0,
        transport: Transport | None = None,
    ) -> None:
        slots = whole_number(_WHERE, "slots", slots)
        slot_bytes = None if slot_bytes is None else whole_number(_WHERE, "slot_bytes", slot_bytes)
        for argument, value, least in (("slots", slots, 2), ("slot_bytes", slot_bytes, 1)):
            if value is not None and value < least:
                raise InputError(expected(_WHERE, argument, f">= {least}", value))
        if not real_number(_WHERE, "patience_s", patience_s) > 0:
            raise InputError(expected(_WHERE, "patience_s", "> 0", patience_s))
        self._transport = transport or _open(check_device(_WHERE, device))
        self._slots = slots
        self._pool = None if slot_bytes is None else self._make_pool(slot_bytes, grows=False)
        self._pid = os.getpid()
        self._open = True
        self._lock = threading.Lock()
        self._patience_s = patience_s if consume is None else None
        self._consumer = None if consume is None else _Consumer(consume)

    def submit(
        self, tensor: Tensor, *, case_id: str, dtype: DTypeLike | None = None, check: Check = "raise"
    ) -> PendingArray:
        """Send the values of a tensor; `dtype` and `check` are those of `to_numpy`."""
        where = "HostCopier.submit"
        known_name(where, "check", check, get_args(Check))
        wanted = None if dtype is None else wanted_dtype(where, dtype)
        source = check_tensor(where, "tensor", tensor)
        return self._send(where, source, lambda: pack(where, source, wanted, check), case_id)

    def submit_labels(
        self,
        logits_or_labels: Tensor,
        *,
        case_id: str,
        task: Task,
        num_classes: int,
        ignore_index: int | None = None,
        threshold: float = 0.5,
        dtype: LabelDtype = "auto",
    ) -> PendingArray:
        """Decode on the device and send one or two bytes per pixel; the arguments are those of `labels_to_numpy`."""
        where = "HostCopier.submit_labels"
        return self._send(
            where,
            logits_or_labels,
            lambda: pack_labels(
                where,
                logits_or_labels,
                task=task,
                num_classes=num_classes,
                ignore_index=ignore_index,
                threshold=threshold,
                dtype=dtype,
            ),
            case_id,
        )

    def submit_probs(self, logits: Tensor, *, case_id: str, task: Task, dtype: ProbsDtype = "float32") -> PendingArray:
        """Compute and send probabilities; the arguments are those of `probs_to_numpy`."""
        where = "HostCopier.submit_probs"
        return self._send(where, logits, lambda: pack_probs(where, logits, task=task, dtype=dtype), case_id)

    def drain(self) -> None:
        """Wait until everything submitted has arrived and been consumed; raise what the consumer raised."""
        self._check_process()
        if self._pool is not None:
            for slot in self._pool.slots:
                slot.wait()
        if self._consumer is not None:
            self._consumer.join()
        self._surface()

    def close(self) -> None:
        """Drain, then stop; calling it again does nothing. Arrays that were handed out stay valid."""
        if not self._open:
            return
        try:
            self.drain()
        finally:
            self._stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        elif self._open:
            self._stop()

    def _send(self, where: str, tensor: Tensor, make: Callable[[], Transfer], case_id: str) -> PendingArray:
        """Check what can be checked without a slot, then load one."""
        self._check_process()
        if not self._open:
            raise RunError(f"{where}: expected an open copier, got a closed one.")
        device, home = check_tensor(where, "tensor", tensor).device, self._transport.device
        if (device.type, device.index or 0) != (home.type, home.index or 0):
            raise InputError(expected(where, "tensor", f"to be on {home}, the copier's device", device))
        with self._lock:
            pending = self._load(make, case_id)
            if self._consumer is not None:
                self._consumer.put(pending)
        return pending

    def _load(self, make: Callable[[], Transfer], case_id: str) -> PendingArray:
        """Take a slot before packing, so that payloads on the device are bounded as those on the host are."""
        first = None
        if self._pool is None:
            first = make()
            self._pool = self._make_pool(max(first.nbytes, 1), grows=True)
        self._surface()
        slot = self._pool.take(self._patience_s)
        try:
            transfer = first or make()
        except BaseException:
            self._pool.give_back(slot)
            raise
        return PendingArray(case_id, self._pool.start_copy(slot, transfer, case_id))

    def _make_pool(self, slot_bytes: int, *, grows: bool) -> PinnedPool:
        return PinnedPool(self._transport, slots=self._slots, slot_bytes=slot_bytes, grows=grows)

    def _surface(self) -> None:
        if self._consumer is not None:
            self._consumer.surface()

    def _stop(self) -> None:
        self._open = False
        if self._consumer is not None:
            self._consumer.stop()
        if self._pool is not None:
            for slot in self._pool.slots:
                slot.wait()

    def _check_process(self) -> None:
        check_process(self._pid)


def _open(device: torch.device) -> Transport:
    transport = open_transport(device)
    if transport.immediate:
        warn_once(f"results from {device} are copied at once: nothing overlaps, the values are the same")
    return transport


class _Consumer:
    """The thread that hands results to `consume`, in the order of submission, until one of them fails."""

    def __init__(self, consume: Consume) -> None:
        self._consume = consume
        self._waiting: queue.Queue[PendingArray | None] = queue.Queue()  # bounded by the slots
        self._fault: BaseException | None = None
        self._abandoned = False
        # a daemon, so that a copier that was never closed does not keep the process alive
        self._thread = threading.Thread(target=self._run, name="segmeter-host-copier", daemon=True)
        self._thread.start()

    def put(self, pending: PendingArray) -> None:
        self._waiting.put(pending)

    def join(self) -> None:
        self._waiting.join()

    def surface(self) -> None:
        """Raise what the consumer raised; a foreign exception becomes the cause of a RunError."""
        if isinstance(self._fault, Exception) and not isinstance(self._fault, SegmeterError):
            raise RunError(f"HostCopier: the consumer failed: {self._fault!r}.") from self._fault
        if self._fault is not None:
            raise self._fault

    def stop(self) -> None:
        self._abandoned = True
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (pending := self._waiting.get()) is not None:
            try:
                if self._fault is None and not self._abandoned:
                    self._consume(pending.case_id, pending.result())
            except BaseException as error:  # the thread that submits raises it
                self._fault = error
            finally:
                pending.release()
                self._waiting.task_done()
