"""An image that is read some rows at a time: what large files and arrays have in common."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


class Rows(Protocol):
    """Pixels with a size that is known before they are read."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(H, W), (H, W, C) for images, or (K, H, W) for the planes of a multilabel map."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of what is read."""

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Read the rows from `start` up to, not including, `stop`; may be called from several threads."""


@dataclass(frozen=True, eq=False)
class ArrayRows:
    """The rows of an array in memory; `axis` is that of the rows."""

    array: NDArray[Any]
    axis: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    def read(self, start: int, stop: int) -> NDArray[Any]:
        return self.array[(slice(None),) * self.axis + (slice(start, stop),)]


@dataclass(frozen=True, eq=False)
class StackedRows:
    """Planes (H, W) of one size and dtype as (K, H, W)."""

    planes: Sequence[Rows]

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.planes), *self.planes[0].shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.planes[0].dtype

    def read(self, start: int, stop: int) -> NDArray[Any]:
        return np.stack([plane.read(start, stop) for plane in self.planes])
