"""One case of a data set: its files, and its arrays."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The files of one case.

    `masks` is empty without a reference, one file for binary and multiclass, and one per class for multilabel.
    `case_id` is safe as a file name. `source` is the folder, of a data set of several, that it comes from. `sha256` has
    the hash of the image and then of each mask, as they were when they were verified; it is empty before.
    """

    case_id: str
    image: Path
    masks: tuple[Path, ...] = ()
    sha256: tuple[str, ...] = ()
    source: str = ""

    @property
    def files(self) -> tuple[Path, ...]:
        """The image, then each mask."""
        return (self.image, *self.masks)


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The arrays of one case.

    `image` is (H, W, C) uint8, uint16 or float32. `target` is (H, W) uint8 or uint16, for multilabel (K, H, W) with
    0, 1 and the ignore index, and None without a reference. `instances` is (H, W), the object that each pixel belongs
    to, 0 being none; None unless the data set's masks number their objects.
    """

    case_id: str
    image: np.ndarray
    target: np.ndarray | None
    instances: np.ndarray | None = None
