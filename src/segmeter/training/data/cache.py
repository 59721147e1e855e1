"""Data set -> the same data set, each case decoded once, as long as memory allows."""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from numpy.typing import NDArray

from segmeter.classes import ClassSpec
from segmeter.data.dataset import Dataset, read_case
from segmeter.data.files.array import LazyArray
from segmeter.data.sample import Sample
from segmeter.errors import DataError


class Cases(Protocol):
    """What training needs of a data set; `segmeter.data.dataset.Dataset` has it."""

    @property
    def spec(self) -> ClassSpec: ...

    @property
    def case_ids(self) -> Sequence[str]: ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Sample: ...

    def fingerprint(self) -> str: ...

    def contents(self) -> Mapping[str, str]: ...

    def kinds(self) -> Sequence[Any]: ...


class Budget:
    """Bytes that several caches share."""

    def __init__(self, limit: int) -> None:
        self.left = limit
        self._lock = threading.Lock()

    def take(self, size: int) -> bool:
        """Whether `size` bytes were there; they are taken then."""
        with self._lock:
            fits = size <= self.left
            self.left -= size if fits else 0
        return fits


class CachedDataset:
    """Keeps the first cases that fit the budget and reads the others each time; safe to use from threads.

    What was kept is never given up for another case: in training every case is wanted equally often.

    Parameters
    ----------
    cases
        Read on demand.
    budget
        Of bytes, shared with other caches.
    parts
        Index of a case -> its sample with arrays that stay in the files, or None where these must be read whole.
    """

    def __init__(
        self, cases: Cases, budget: Budget, parts: Callable[[int], Sample | None] = lambda index: None
    ) -> None:
        self._large: frozenset[int] | None = None
        self._parts = parts
        self.cases = cases
        self.spec = cases.spec
        self.case_ids = cases.case_ids
        self._budget = budget
        self._kept: dict[int, Sample] = {}
        self._fingerprint = ""
        self._kinds: Sequence[Any] = ()

    def __len__(self) -> int:
        return len(self.cases)

    def __getitem__(self, index: int) -> Sample:
        kept = self._kept.get(index)
        return self._read(index) if kept is None else kept

    def opened(self, index: int) -> Sample:
        """A case to cut a window from: kept, or decoded where it will be kept, or in its files where it is large."""
        parts = None if index in self._kept else self._parts(index)
        if parts is None or _bytes_of(parts) <= self._budget.left:
            return self[index]
        return parts

    def large_cases(self) -> frozenset[int]:
        """Indices of the cases that are larger than memory, to be read by rows."""
        if self._large is None:
            self._large = self.cases.streamed_cases() if isinstance(self.cases, Dataset) else frozenset()
        return self._large

    def open_rows(self, index: int) -> AbstractContextManager[tuple[LazyArray, LazyArray | None]]:
        """Open the image and the target of a case, to be read by rows."""
        if not isinstance(self.cases, Dataset):
            raise DataError(f"{self.case_ids[index]}: can't be read by rows.")
        return self.cases.open_rows(index)

    def fingerprint(self) -> str:
        self._fingerprint = self._fingerprint or self.cases.fingerprint()  # asked for with every checkpoint
        return self._fingerprint

    def contents(self) -> Mapping[str, str]:
        return self.cases.contents()

    def kinds(self) -> Sequence[Any]:
        """Height, width and dtype of each image, which tell batches apart."""
        self._kinds = self._kinds or self.cases.kinds()  # asked for with every validation
        return self._kinds

    def _read(self, index: int) -> Sample:
        sample = read_case(self.cases, index)
        if self._budget.take(_bytes_of(sample)):
            for array in _arrays_of(sample):
                array.flags.writeable = False  # every epoch sees these same arrays
            self._kept[index] = sample
        return sample


def _arrays_of(sample: Sample) -> list[NDArray[Any]]:
    return [sample.image] if sample.target is None else [sample.image, sample.target]


def _bytes_of(sample: Sample) -> int:
    return sum(array.nbytes for array in _arrays_of(sample))
