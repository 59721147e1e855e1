"""Provides the cases that training reads: a cached data set, or the planes of volumes."""

import threading
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cache, cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from segmeter.classes import ClassSpec
from segmeter.data.dataset import Dataset, read_case
from segmeter.data.planes import Volume, VolumeSet
from segmeter.data.sample import Sample, count_classes
from segmeter.parallel import map_in_threads
from segmeter.progress import track


class Cases(Protocol):
    """The part of a data set that training uses; `segmeter.data.dataset.Dataset` has it."""

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
    """A number of bytes that several caches share."""

    def __init__(self, limit: int) -> None:
        self.left = limit
        self._lock = threading.Lock()

    def reserve(self, size: int) -> bool:
        """Take `size` bytes if they are left, and return whether they were."""
        with self._lock:
            fits = size <= self.left
            self.left -= size if fits else 0
        return fits


class CachedDataset:
    """Keeps the first cases that fit the budget and reads the others each time. Threads may share it.

    A kept case is never dropped for another one: training wants every case equally often.

    Parameters
    ----------
    cases
        Read on demand.
    budget
        Bytes, shared with other caches.
    parts
        Index of a case -> its sample with arrays that stay in the files, or None if these must be read whole.
    """

    def __init__(
        self, cases: Cases, budget: Budget, parts: Callable[[int], Sample | None] = lambda index: None
    ) -> None:
        self.cases, self.spec, self.case_ids = cases, cases.spec, cases.case_ids
        self._budget, self._parts = budget, cache(parts)
        self._kept: dict[int, Sample] = {}
        # asked for with every checkpoint or every validation
        self.fingerprint, self.kinds, self.contents = cache(cases.fingerprint), cache(cases.kinds), cases.contents

    def __len__(self) -> int:
        return len(self.cases)

    def __getitem__(self, index: int) -> Sample:
        kept = self._kept.get(index)
        if kept is not None:
            return kept
        sample = read_case(self.cases, index)
        if self._budget.reserve(_size(sample)):
            for array in (sample.image, sample.target):
                if array is not None:
                    array.flags.writeable = False  # every epoch sees these same arrays
            self._kept[index] = sample
        return sample

    def opened(self, index: int) -> Sample:
        """Return a case to cut a window from. Large cases that don't fit into the cache stay in their files."""
        parts = None if index in self._kept else self._parts(index)
        return self[index] if parts is None or _size(parts) <= self._budget.left else parts

    @cached_property
    def large_cases(self) -> frozenset[int]:
        """Indices of the cases that are larger than memory, to be read by rows."""
        return self.cases.streamed_cases() if isinstance(self.cases, Dataset) else frozenset()


def _size(sample: Sample) -> int:
    return sample.image.nbytes + (0 if sample.target is None else sample.target.nbytes)


class PlaneCases:
    """The planes of all volumes of a data set as cases of training or validation.

    Parameters
    ----------
    volumes
        Each with masks; all are unpacked.
    empty
        Largest number of planes without an object per plane with one, spread evenly over the others; None takes all
        planes.
    """

    def __init__(self, volumes: VolumeSet, *, empty: float | None = None) -> None:
        self.volumes, self.spec, self.contents, self._empty = volumes, volumes.spec, volumes.contents, empty
        count = len(volumes)
        opened = track(map_in_threads(volumes.open_volume, range(count)), f"unpacking {volumes.split}", count)
        self._opened: list[Volume] = list(opened)
        present = list(map_in_threads(_presence, self._opened))
        places = [(index, number) for index, found in enumerate(present) for number in range(len(found))]
        presence = np.concatenate([*present, np.zeros((0, self.spec.num_classes), np.bool_)])
        objects = presence[:, 0 if self.spec.is_multilabel else 1 :]
        kept = _bounded(np.flatnonzero(objects.any(1)), np.flatnonzero(~objects.any(1)), empty)
        self.places = [places[each] for each in kept]
        self.presence = presence[kept]
        self.case_ids = tuple(self._opened[index].plane_id(number) for index, number in self.places)

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: int) -> Sample:
        case, number = self.places[index]
        plane: Sample = self._opened[case][number]
        return plane

    def subset(self, indices: Sequence[int]) -> "PlaneCases":
        """Return some of the planes, by index."""
        part = copy(self)
        part.places = [self.places[index] for index in indices]
        part.presence, part.case_ids = self.presence[list(indices)], tuple(self.case_ids[index] for index in indices)
        return part

    def fingerprint(self) -> str:
        how = (self.volumes.planes, self.volumes.context, self._empty, len(self))
        return f"{self.volumes.fingerprint()} planes {how}"

    def kinds(self) -> list[tuple[Any, ...]]:
        first = [volume[0].image for volume in self._opened]
        return [(*first[case].shape[:2], str(first[case].dtype)) for case, _ in self.places]


def _bounded(full: NDArray[np.int64], bare: NDArray[np.int64], empty: float | None) -> NDArray[np.int64]:
    """Choose all planes with an object, and of the others evenly as many as allowed.

    Examples
    --------
    >>> _bounded(np.array([2, 3]), np.array([0, 1, 4, 5]), 1.0).tolist()
    [0, 2, 3, 5]
    """
    most = len(bare) if empty is None or not len(full) else min(len(bare), round(empty * len(full)))
    spread = bare[np.linspace(0, len(bare) - 1, most).round().astype(np.int64)] if most else bare[:0]
    return np.sort(np.concatenate([full, spread]))


def _presence(volume: Volume) -> NDArray[np.bool_]:
    """Tell which planes have which class, (planes, K)."""
    targets = map(volume.target, range(len(volume)))
    return np.array([count_classes(target, volume.spec) > 0 for target in targets if target is not None])
