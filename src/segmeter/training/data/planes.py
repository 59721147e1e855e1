"""Lists the planes of volumes as the cases of a training, with a bound on those that show nothing but background."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.data.planes import Volume, VolumeSet
from segmeter.data.sample import Sample
from segmeter.data.verification.counting import count_classes
from segmeter.parallel import map_in_threads
from segmeter.progress import track


class PlaneCases:
    """The planes of all volumes of a data set as cases of training or validation.

    Parameters
    ----------
    volumes
        Each with masks; all are unpacked.
    empty
        Most planes without an object per plane with one, spread evenly over the others; None takes all planes.
    """

    def __init__(self, volumes: VolumeSet, *, empty: float | None = None) -> None:
        self.volumes, self.spec, self._empty = volumes, volumes.spec, empty
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
        part = object.__new__(PlaneCases)
        part.__dict__ |= self.__dict__
        part.places = [self.places[index] for index in indices]
        part.presence, part.case_ids = self.presence[list(indices)], tuple(self.case_ids[index] for index in indices)
        return part

    def contents(self) -> dict[str, str]:
        return self.volumes.contents()

    def fingerprint(self) -> str:
        how = (self.volumes.planes, self.volumes.context, self._empty, len(self))
        return f"{self.volumes.fingerprint()} planes {how}"

    def kinds(self) -> list[tuple[Any, ...]]:
        first = [volume[0].image for volume in self._opened]
        return [(*first[case].shape[:2], str(first[case].dtype)) for case, _ in self.places]


def _bounded(full: NDArray[np.int64], bare: NDArray[np.int64], empty: float | None) -> NDArray[np.int64]:
    """Choose all planes that hold an object, and evenly as many of the others as allowed.

    Examples
    --------
    >>> _bounded(np.array([2, 3]), np.array([0, 1, 4, 5]), 1.0).tolist()
    [0, 2, 3, 5]
    """
    most = len(bare) if empty is None or not len(full) else min(len(bare), round(empty * len(full)))
    spread = bare[np.linspace(0, len(bare) - 1, most).round().astype(np.int64)] if most else bare[:0]
    return np.sort(np.concatenate([full, spread]))


def _presence(volume: Volume) -> NDArray[np.bool_]:
    """Whether each plane has each class, (planes, K)."""
    targets = map(volume.target_of, range(len(volume)))
    return np.array([count_classes(target, volume.spec) > 0 for target in targets if target is not None])
