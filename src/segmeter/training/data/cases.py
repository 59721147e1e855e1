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
from segmeter.training.data.windows import StoredSample


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
    """The number of bytes that several caches may use together."""

    def __init__(self, limit: int) -> None:
        self.left = limit
        self._lock = threading.Lock()

    def reserve(self, size: int) -> bool:
        """Reserve `size` bytes if they are left, and return whether they were."""
        with self._lock:
            fits = size <= self.left
            self.left -= size if fits else 0
        return fits


class CachedDataset:
    """Keeps the first cases that fit the budget, and reads the others each time. Threads may share it.

    A kept case is never dropped for another one, as training takes every case equally often.

    Parameters
    ----------
    cases
        Read on demand.
    budget
        Memory for the kept cases, shared with other caches.
    parts
        From the index of a case to its sample, whose arrays stay in the files; None if they must be read whole.
    """

    def __init__(
        self, cases: Cases, budget: Budget, parts: Callable[[int], StoredSample | None] = lambda index: None
    ) -> None:
        self.cases = cases
        self.spec = cases.spec
        self.case_ids = cases.case_ids
        self._budget = budget
        self._parts = cache(parts)
        self._kept: dict[int, Sample] = {}
        self._lock = threading.Lock()
        self.fingerprint = cache(cases.fingerprint)  # every checkpoint asks for it
        self.kinds = cache(cases.kinds)  # every validation asks for them
        self.contents = cases.contents

    def __len__(self) -> int:
        return len(self.cases)

    def __getitem__(self, index: int) -> Sample:
        kept = self._kept.get(index)
        if kept is not None:
            return kept
        sample = read_case(self.cases, index)
        with self._lock:  # another thread may have read the same case
            if index not in self._kept and self._budget.reserve(_size(sample)):
                for array in (sample.image, sample.target):
                    if array is not None:
                        array.flags.writeable = False  # every epoch sees these same arrays
                self._kept[index] = sample
        return sample

    def opened(self, index: int) -> Sample | StoredSample:
        """Return a case to cut a window from. Large cases that don't fit into the cache stay in their files."""
        stored = None if index in self._kept else self._parts(index)
        return self[index] if stored is None or _size(stored) <= self._budget.left else stored

    @cached_property
    def large_cases(self) -> frozenset[int]:
        """Indices of the cases that are larger than memory, to be read by rows."""
        return self.cases.streamed_cases() if isinstance(self.cases, Dataset) else frozenset()


def _size(sample: Sample | StoredSample) -> int:
    return sample.image.nbytes + (0 if sample.target is None else sample.target.nbytes)


class PlaneCases:
    """The planes of all volumes of a data set as cases of training or validation.

    Parameters
    ----------
    volumes
        Each with masks; all are unpacked.
    empty
        Largest number of planes without an object for each plane with one, chosen evenly; None takes all planes.
    """

    def __init__(self, volumes: VolumeSet, *, empty: float | None = None) -> None:
        self.volumes = volumes
        self.spec = volumes.spec
        self.contents = volumes.contents
        self._empty = empty
        count = len(volumes)
        opened = track(map_in_threads(volumes.open_volume, range(count)), f"unpacking {volumes.split}", count)
        self._opened: list[Volume] = list(opened)
        by_volume = list(map_in_threads(_presence, self._opened))
        places = [(index, number) for index, planes in enumerate(by_volume) for number in range(len(planes))]
        presence = np.concatenate([*by_volume, np.zeros((0, self.spec.num_classes), np.bool_)])
        has_object = presence[:, 0 if self.spec.is_multilabel else 1 :].any(1)
        chosen = _bounded(np.flatnonzero(has_object), np.flatnonzero(~has_object), empty)
        self.places = [places[plane] for plane in chosen]  # (volume, number of the plane in it)
        self.presence = presence[chosen]
        self.case_ids = tuple(self._opened[index].plane_id(number) for index, number in self.places)

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: int) -> Sample:
        volume, number = self.places[index]
        plane: Sample = self._opened[volume][number]
        return plane

    def subset(self, indices: Sequence[int]) -> "PlaneCases":
        """Return some of the planes, by index."""
        part = copy(self)
        part.places = [self.places[index] for index in indices]
        part.presence = self.presence[list(indices)]
        part.case_ids = tuple(self.case_ids[index] for index in indices)
        return part

    def fingerprint(self) -> str:
        settings = (self.volumes.planes, self.volumes.context, self._empty, len(self))
        return f"{self.volumes.fingerprint()} planes {settings}"

    def kinds(self) -> list[tuple[Any, ...]]:
        images = [volume[0].image for volume in self._opened]
        return [(*images[volume].shape[:2], str(images[volume].dtype)) for volume, _ in self.places]


def _bounded(full: NDArray[np.int64], bare: NDArray[np.int64], empty: float | None) -> NDArray[np.int64]:
    """Choose all planes with an object (`full`), and evenly as many of the others (`bare`) as allowed.

    Examples
    --------
    >>> _bounded(np.array([2, 3]), np.array([0, 1, 4, 5]), 1.0).tolist()
    [0, 2, 3, 5]
    """
    most = len(bare) if empty is None or not len(full) else min(len(bare), round(empty * len(full)))
    spread = bare[np.linspace(0, len(bare) - 1, most).round().astype(np.int64)] if most else bare[:0]
    return np.sort(np.concatenate([full, spread]))


def _presence(volume: Volume) -> NDArray[np.bool_]:
    """Tell which planes have which classes, (planes, K)."""
    targets = map(volume.target, range(len(volume)))
    return np.array([count_classes(target, volume.spec) > 0 for target in targets if target is not None])


def spread_evenly(total: int, count: int) -> list[int]:
    """Return `count` indices that are evenly spread over `total` cases, or all of them.

    Examples
    --------
    >>> spread_evenly(100, 4), spread_evenly(2, 4)
    ([12, 37, 62, 87], [0, 1])
    """
    count = min(count, total)
    return [(2 * index + 1) * total // (2 * count) for index in range(count)]
