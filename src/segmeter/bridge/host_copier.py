"""Copies results to the host, and arrays to the device, while the device continues with its work."""

import logging
import math
import threading
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from torch import Tensor

from segmeter.bridge.arrays import pack
from segmeter.bridge.decode import Decoding, ProbsDtype, pack_labels, pack_probs
from segmeter.bridge.transfer import TORCH, WIDENED, Transfer, check_device
from segmeter.checks import expected
from segmeter.classes import Task
from segmeter.errors import InputError

_LOG = logging.getLogger(__name__)


class Transport:
    """Makes copies that are done when they return: for the CPU, and for devices without streams.

    Only transports know streams and events, so tests can use their own.

    Parameters
    ----------
    device
        Where copies come from.
    """

    immediate = True
    """Whether `start` has copied when it returns, so that nothing overlaps."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def start(self, sources: Sequence[Tensor]) -> tuple[list[Tensor], Any]:
        """Queue copies to the host behind the work that the device has now.

        Returns
        -------
        The copies, or the sources themselves if they are on the host; and an event that marks the end of the copies.
        """
        return [source.cpu() for source in sources], None

    def wait(self, event: Any) -> None:
        """Return when everything before `event` has arrived."""


class CudaTransport(Transport):
    """Copies on a side stream of one CUDA device into pinned memory, while the next kernels run.

    torch keeps pinned memory and reuses it once the array in it is gone, so nothing is pinned twice.
    """

    immediate = False

    def __init__(self, device: torch.device) -> None:
        super().__init__(torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index))
        self._side = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]

    def start(self, sources: Sequence[Tensor]) -> tuple[list[Tensor], torch.cuda.Event]:
        hosts = [empty_pinned(tuple(source.shape), source.dtype) for source in sources]
        self._side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self._side):
            for host, source in zip(hosts, sources, strict=True):
                host.copy_(source, non_blocking=True)
                source.record_stream(self._side)  # a result that nobody takes must not free its source too early
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record(self._side)
        return hosts, event

    def wait(self, event: torch.cuda.Event) -> None:
        event.synchronize()


def open_transport(device: torch.device) -> Transport:
    """Return the transport of a device."""
    return CudaTransport(device) if device.type == "cuda" else Transport(device)


def empty_pinned(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Allocate pinned host memory for asynchronous copies, or pageable memory if none can be pinned."""
    try:
        return torch.empty(shape, dtype=dtype, pin_memory=True)
    except RuntimeError as error:
        _warn_once(f"host memory could not be pinned, copies are slower: {error}")
        return torch.empty(shape, dtype=dtype)


class PendingArray:
    """A result on its way to the host. The caller owns the array.

    Parameters
    ----------
    case_id
        Names the result in errors.
    """

    def __init__(self, case_id: str, transfer: Transfer, transport: Transport) -> None:
        device, expected_device = transfer.payload.device, transport.device
        if (device.type, device.index or 0) != (expected_device.type, expected_device.index or 0):
            rule = f"to be on {expected_device}, the copier's device"
            raise InputError(expected(transfer.words[0], "tensor", rule, device))
        self.case_id = case_id
        self._transfer = transfer
        self._transport = transport
        self._lock = threading.Lock()
        payload = transfer.payload if transfer.private else transfer.payload.clone()  # the caller may write to it
        self._sources = [payload] if transfer.record is None else [payload, transfer.record]
        copies, self._event = transport.start(self._sources)
        self._host = copies[0]
        self._record = copies[1] if len(copies) > 1 else None

    def result(self) -> np.ndarray:
        """Wait for this result only, and return it.

        Returns
        -------
        Writeable C-contiguous ndarray that the caller owns; the same one on every call.

        Raises
        ------
        InputError
            A check failed: the message names the case, min, max and the first bad index.
        """
        self._arrive()
        self._transfer.check(self._record, self.case_id)
        array: np.ndarray = self._host.numpy()
        return array

    def rows(self) -> Iterator[np.ndarray]:
        """Wait for this result, and yield the rows of its first axis, one per image of a batch.

        Raises
        ------
        InputError
            A check failed. It is raised instead of the first row with a bad value, after the good rows before it.
        """
        self._arrive()
        record = self._record
        good_rows = None  # all of them
        if record is not None and int(record[0]):
            good_rows = int(record[3]) // math.prod(self._transfer.shape[1:])  # the rows before the first bad value
        yield from self._host[:good_rows].numpy()
        self._transfer.check(self._record, self.case_id)

    def _arrive(self) -> None:
        with self._lock:
            if self._sources:
                self._transport.wait(self._event)
                self._sources = []  # until now their memory had to stay
            self._host = self._host.to(WIDENED.get(self._host.dtype, self._host.dtype))  # to a dtype that NumPy has


class HostCopier:
    """Brings results to the host while the device continues.

    A submitted tensor is packed and checked on its device and copied on a side stream. Nothing waits until a result is
    taken, and then only for that result. A result has the values that the tensor held when it was submitted. It takes
    memory on the host until its array is dropped, so take results as you go. On the CPU the same code makes plain
    copies. A copier can be used from several threads.

    Parameters
    ----------
    device
        Where the tensors are.
    transport
        How copies are made; None takes the transport of the device.

    Raises
    ------
    InputError
        `device` is not there.

    Examples
    --------
    >>> import torch
    >>> from segmeter import HostCopier
    >>> copier = HostCopier(device="cpu")
    >>> pending = copier.submit(torch.tensor([1, 2]), case_id="a", dtype="uint8")
    >>> pending.result()
    array([1, 2], dtype=uint8)
    """

    def __init__(self, *, device: str | torch.device, transport: Transport | None = None) -> None:
        self._transport = transport or open_transport(check_device("HostCopier", device))
        if transport is None and self._transport.immediate:
            _warn_once(f"results from {device} are copied at once: nothing overlaps, the values are the same")

    def submit(self, tensor: Tensor, *, case_id: str, dtype: DTypeLike | None = None) -> PendingArray:
        """Send the values of a tensor; `dtype` is as for `to_numpy`."""
        where = "HostCopier.submit"
        return PendingArray(case_id, pack(where, tensor, dtype), self._transport)

    def submit_labels(
        self,
        logits_or_labels: Tensor,
        *,
        case_id: str,
        task: Task,
        num_classes: int,
        ignore_index: int | None = None,
        threshold: float = 0.5,
        class_map: Tensor | None = None,
    ) -> PendingArray:
        """Decode on the device and send one or two bytes per pixel; the arguments are those of `labels_to_numpy`.

        If the logits or labels are of other classes, `class_map` holds the label of each of these classes.
        """
        where = "HostCopier.submit_labels"
        decoding = Decoding(task, num_classes, ignore_index, threshold)
        return PendingArray(case_id, pack_labels(where, logits_or_labels, decoding, class_map), self._transport)

    def submit_probs(self, logits: Tensor, *, case_id: str, task: Task, dtype: ProbsDtype = "float32") -> PendingArray:
        """Compute and send probabilities; the arguments are those of `probs_to_numpy`."""
        where = "HostCopier.submit_probs"
        return PendingArray(case_id, pack_probs(where, logits, task=task, dtype=dtype), self._transport)


@cache
def _warn_once(message: str) -> None:
    _LOG.warning(message)


def upload(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a small CPU tensor to a device without waiting for the device's earlier work."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


class Uploader:
    """Stacks arrays of one shape and dtype into a tensor on a device.

    On CUDA the arrays are stacked in pinned memory and copied on a side stream, so neither the host nor the copy waits
    for the device's earlier work. The current stream waits for the copy. torch reuses pinned memory only when the copy
    out of it is complete. Elsewhere it is a plain copy.

    Parameters
    ----------
    device
        Where the tensors go.

    Raises
    ------
    InputError
        `device` is not there.
    """

    def __init__(self, device: str | torch.device) -> None:
        self.device = check_device("Uploader", device)
        self._side = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def __call__(self, arrays: Sequence[NDArray[Any]]) -> Tensor:
        """Upload arrays of one shape and dtype; return a new tensor (len(arrays), *shape) of that dtype."""
        shape, dtype = arrays[0].shape, TORCH[arrays[0].dtype.newbyteorder("=")]
        stacked = (len(arrays), *shape)
        host = empty_pinned(stacked, dtype) if self._side else torch.empty(stacked, dtype=dtype)
        np.stack(arrays, out=host.numpy())
        return self.move([host])[0]

    def move(self, hosts: Sequence[Tensor]) -> list[Tensor]:
        """Move CPU tensors to the device. On CUDA they must be pinned, or the host waits for the copy."""
        if self._side is None:
            return [host.to(self.device) for host in hosts]
        current = torch.cuda.current_stream(self.device)
        with torch.cuda.stream(self._side):
            moved = [host.to(self.device, non_blocking=True) for host in hosts]
        current.wait_stream(self._side)
        for tensor in moved:
            tensor.record_stream(current)  # its memory belongs to the side stream, which must not reuse it too early
        return moved
