"""Arrays -> files beside the running evaluation: bounded in bytes, atomic per file, first error said at once."""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected
from segmeter.errors import ConfigError, InputError, RunError
from segmeter.export import formats
from segmeter.export.config import ExportConfig
from segmeter.export.labels import encode_labels_png
from segmeter.files import safe_id, write_bytes
from segmeter.vocabulary import ClassSpec

MIB = 2**20
_PROBS: dict[str, tuple[str, Callable[[Path, NDArray[Any]], None]]] = {
    "npy": (".npy", formats.write_npy),
    "npz": (".npz", formats.write_npz),
    "tiff": (".tif", formats.write_tiff),
    "zarr": (".zarr", formats.write_zarr),
}


@dataclass(frozen=True, kw_only=True)
class _Task:
    case_id: str
    path: Path
    array: NDArray[Any]
    write: Callable[[Path, NDArray[Any]], None]


class Writer:
    """Writes label maps, probabilities and instances in threads; use it as a context manager.

    Arrays are copied on entry, so the caller may reuse his. A `write_` call waits while the queue is full. After the
    first fault nothing more is written: that fault is raised by the next call and by `close`, naming the case.
    Leaving the block by an exception (Ctrl-C too) finishes the files being written and drops those that wait.

    Parameters
    ----------
    folder
        The predictions folder; labels/, probs/ and instances/ are made in it when first needed.
    config
        Formats, threads and the queue's size.
    spec
        Gives label maps their range and colours.

    Raises
    ------
    ConfigError
        ``export.dtype`` can't hold every class and the ignored value.
    """

    def __init__(self, folder: Path, config: ExportConfig, spec: ClassSpec) -> None:
        self.folder = folder
        self.config = config
        self.spec = spec
        self.dtype = labels_dtype(config, spec)
        self._limit = config.queue_mb * MIB
        self._waiting: deque[_Task] = deque()
        self._taken: set[Path] = set()
        self._bytes = 0
        self._finished = 0
        self._closing = False
        self._fault: RunError | None = None
        self._changed = threading.Condition()
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(config.workers)]
        for thread in self._threads:
            thread.start()

    @property
    def finished(self) -> int:
        """How many files are complete."""
        with self._changed:
            return self._finished

    def write_labels(self, case_id: str, labels: NDArray[Any]) -> Path:
        """Queue a label map, (H, W) or for multilabel (K, H, W), of any integer dtype.

        Returns
        -------
        The path it gets: labels/<case>.png or .tif; multilabel is always TIFF, one page per class.

        Raises
        ------
        InputError
            Shape or dtype is wrong, a value is neither a class nor the ignored one, or the case was written before.
        RunError
            An earlier file could not be written.
        """
        self._check_labels(case_id, labels)
        content = labels.astype(self.dtype, order="C")
        if self.config.labels_format == "tiff" or content.ndim == 3:
            return self._put(case_id, "labels", ".tif", content, formats.write_tiff)
        return self._put(case_id, "labels", ".png", content, self._write_png)

    def write_probs(self, case_id: str, probs: NDArray[np.float32]) -> Path:
        """Queue probabilities, (C, H, W) float32, finite and in [0, 1]; raises as `write_labels` does."""
        if probs.dtype != np.float32 or probs.ndim != 3 or not probs.size:
            given = f"{probs.dtype} {probs.shape} for case {case_id!r}"
            raise InputError(expected("write_probs", "probs", "(C, H, W) float32", given))
        if not (probs.min() >= 0 and probs.max() <= 1):  # NaN fails both
            given = f"{probs.min()} to {probs.max()} for case {case_id!r}"
            raise InputError(expected("write_probs", "probs", "to be in [0, 1]", given, "Logits are no probabilities."))
        suffix, write = _PROBS[self.config.probs_format]
        return self._put(case_id, "probs", suffix, probs.astype(np.float32, order="C"), write)

    def write_instances(self, case_id: str, instances: NDArray[Any]) -> Path:
        """Queue an instance map of any integer dtype, 0 = background; raises as `write_labels` does.

        (H, W) up to 65535 objects is a uint16 PNG; more, or (K, H, W), an int32 TIFF.
        """
        if instances.dtype.kind not in "iu" or instances.ndim not in (2, 3) or not instances.size:
            given = f"{instances.dtype} {instances.shape} for case {case_id!r}"
            raise InputError(expected("write_instances", "instances", "(H, W) or (K, H, W), integer", given))
        low, high = int(instances.min()), int(instances.max())
        if low < 0 or high > np.iinfo(np.int32).max:
            given = f"{low} to {high} for case {case_id!r}"
            raise InputError(expected("write_instances", "instances", "to be in 0 .. 2**31 - 1", given))
        if instances.ndim == 2 and high <= np.iinfo(np.uint16).max:
            return self._put(case_id, "instances", ".png", instances.astype(np.uint16, order="C"), formats.write_png16)
        return self._put(case_id, "instances", ".tif", instances.astype(np.int32, order="C"), formats.write_tiff)

    def close(self) -> int:
        """Wait for every queued file; returns how many were written in all, or raises the first fault (RunError)."""
        try:
            self._join(drop=False)
        except BaseException:
            self._join(drop=True)
            raise
        if self._fault is not None:
            raise self._fault
        return self._finished

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._join(drop=True)

    def _check_labels(self, case_id: str, labels: NDArray[Any]) -> None:
        multilabel = self.spec.task == "multilabel"
        axes = f"({self.spec.num_classes}, H, W)" if multilabel else "(H, W)"
        shaped = labels.ndim == 3 and len(labels) == self.spec.num_classes if multilabel else labels.ndim == 2
        if labels.dtype.kind not in "iu" or not shaped or not labels.size:
            given = f"{labels.dtype} {labels.shape} for case {case_id!r}"
            raise InputError(expected("write_labels", "labels", f"{axes}, integer", given))
        highest = 1 if multilabel else self.spec.num_classes - 1
        low, high = int(labels.min()), int(labels.max())
        if low >= 0 and high <= highest:
            return
        ignored = self.spec.ignore_index
        strange = np.setdiff1d(np.unique(labels), [*range(highest + 1), *([] if ignored is None else [ignored])])
        if strange.size:
            given = f"{strange[:5].tolist()} in case {case_id!r}"
            raise InputError(expected("write_labels", "labels", f"to be in 0 .. {highest}", given))

    def _write_png(self, path: Path, labels: NDArray[Any]) -> None:
        write_bytes(path, encode_labels_png(labels, self.spec.colours, ignore_index=self.spec.ignore_index))

    def _put(
        self,
        case_id: str,
        kind: str,
        suffix: str,
        array: NDArray[Any],
        write: Callable[[Path, NDArray[Any]], None],
    ) -> Path:
        path = self.folder / kind / f"{safe_id(case_id)}{suffix}"
        with self._changed:
            if path in self._taken:
                raise InputError(expected("Writer", "case_id", f"to be new among {kind}", repr(case_id)))
            self._changed.wait_for(lambda: self._fault or self._closing or self._fits(array.nbytes))
            if self._fault is not None:
                raise self._fault
            if self._closing:
                raise RunError(f"Writer: expected to be open, but it was closed before case {case_id!r}.")
            self._taken.add(path)
            self._bytes += array.nbytes
            self._waiting.append(_Task(case_id=case_id, path=path, array=array, write=write))
            self._changed.notify_all()
        return path

    def _fits(self, size: int) -> bool:
        return self._bytes == 0 or self._bytes + size <= self._limit

    def _work(self) -> None:
        while (task := self._next()) is not None:
            try:
                task.path.parent.mkdir(parents=True, exist_ok=True)
                task.write(task.path, task.array)
            except Exception as error:  # any fault of a thread must reach the caller
                self._fail(task, error)
            else:
                with self._changed:
                    self._finished += 1
            with self._changed:
                self._bytes -= task.array.nbytes
                self._changed.notify_all()

    def _next(self) -> _Task | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            return self._waiting.popleft() if self._waiting else None

    def _fail(self, task: _Task, error: Exception) -> None:
        with self._changed:
            self._drop()
            if self._fault is None:
                cause = f"{type(error).__name__}: {error}"
                self._fault = RunError(
                    f"Writer: case {task.case_id!r} could not be written to {task.path} ({cause}). "
                    f"{self._finished} files are complete; nothing half-written stays. Resume once the cause is gone."
                )
                self._fault.__cause__ = error

    def _drop(self) -> None:
        self._bytes -= sum(task.array.nbytes for task in self._waiting)
        self._waiting.clear()

    def _join(self, *, drop: bool) -> None:
        with self._changed:
            self._closing = True
            if drop:
                self._drop()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()


def labels_dtype(config: ExportConfig, spec: ClassSpec) -> np.dtype[Any]:
    """The dtype of exported label maps: uint8 unless a class or the ignored value is above 255.

    Raises
    ------
    ConfigError
        ``export.dtype`` is "uint8" and can't hold them.
    """
    highest = max(1 if spec.task == "multilabel" else spec.num_classes - 1, spec.ignore_index or 0)
    needed = np.dtype(np.uint8 if highest <= np.iinfo(np.uint8).max else np.uint16)
    if highest > np.iinfo(np.uint16).max:
        raise ConfigError(expected("export", "dtype", "to hold every label", f"labels up to {highest}"))
    if config.dtype == "auto":
        return needed
    if np.dtype(config.dtype).itemsize < needed.itemsize:
        given, remedy = f"{config.dtype!r} for labels up to {highest}", "Set export.dtype=uint16."
        raise ConfigError(expected("export", "dtype", "to hold every label", given, remedy))
    return np.dtype(config.dtype)
