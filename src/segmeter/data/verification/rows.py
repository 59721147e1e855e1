"""A case that is larger than memory -> what `verify` notes of a case, from some rows at a time."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.classes import ClassSpec
from segmeter.data.dataset import Dataset
from segmeter.data.masks.reading import hash_map
from segmeter.data.verification.counting import count_classes, count_decided
from segmeter.data.verification.intensity import Values, measure_rows

_ROWS = 512  # read at a time


@dataclass(frozen=True, kw_only=True, eq=False)
class Found:
    """What is found in the files of a case; see `row_dtype` of `verify`."""

    sha256: list[str]
    size: tuple[int, ...]
    dtype: str
    intensity: tuple[Values, Values, Values]
    classes: NDArray[np.int64]
    counted: NDArray[np.int64]


def read_rows(dataset: Dataset, index: int) -> Found:
    """Read all rows of a case; DataError where something is wrong with its files."""
    spec = dataset.spec
    totals = np.zeros((2, spec.num_classes), np.int64)
    with dataset.open_rows(index) as (image, target):
        height = image.shape[0]

        def blocks() -> Iterator[NDArray[Any]]:
            for top in range(0, height, _ROWS):
                stop = min(top + _ROWS, height)
                if target is not None:
                    _add(totals, target.read(top, stop), spec)
                yield image.read(top, stop)

        intensity = measure_rows(blocks(), image.dtype)
        return Found(
            sha256=[dataset.limit(index)(partial(hash_map, path)) for path in dataset.pairs[index].files],
            size=image.shape[:2],
            dtype=image.dtype.name,
            intensity=intensity,
            classes=totals[0],
            counted=totals[1],
        )


def _add(totals: NDArray[np.int64], target: NDArray[Any], spec: ClassSpec) -> None:
    totals[0] += count_classes(target, spec)
    totals[1] += count_decided(target, spec)
