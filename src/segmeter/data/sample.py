"""Defines a case of a data set: its files, and its arrays."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from segmeter.data.files.geometry import Geometry


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """The files of one case.

    `paths` are the image and then each mask: none without a reference, one for binary and multiclass, one per class for
    multilabel. The last `more` paths are those of further channels of a volume. They are text, because making 100,000
    `Path` objects takes longer than finding the files. `case_id` is safe as a file name. `source` names the folder that
    the case comes from, if there are several. `sha256` holds the hash of each file when it was verified; it is empty
    before.
    """

    case_id: str
    paths: tuple[str, ...]
    sha256: tuple[str, ...] = ()
    source: str = ""
    more: int = 0

    @property
    def image(self) -> Path:
        return Path(self.paths[0])

    @property
    def masks(self) -> tuple[Path, ...]:
        return tuple(map(Path, self.paths[1 : len(self.paths) - self.more]))

    @property
    def images(self) -> tuple[Path, ...]:
        """The image, or the file of each channel."""
        return (self.image, *map(Path, self.paths[len(self.paths) - self.more :]))

    @property
    def files(self) -> tuple[Path, ...]:
        """The image, then each mask, then the files of further channels."""
        return tuple(map(Path, self.paths))


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The arrays of one case.

    `image` is (H, W, C) uint8, uint16 or float32. `target` is (H, W) uint8 or uint16; for multilabel (K, H, W) with 0,
    1 and the ignore index; None without a reference. `instances` is (H, W), the object number of each pixel, 0 being
    none; None unless the masks number their objects.

    For a volume, `target` is (D, H, W) or (K, D, H, W), `image` its middle plane as the network sees it, `plane_axis`
    the axis of (D, H, W) that counts the planes, and `geometry` tells where the voxels lie.
    """

    case_id: str
    image: np.ndarray
    target: np.ndarray | None
    instances: np.ndarray | None = None
    plane_axis: int | None = None
    geometry: Geometry | None = None
