"""Defines a case of a data set: its files, its arrays, how its masks are read, and counts of its pixels."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import some
from segmeter.classes import ClassSpec
from segmeter.data.classes_config import ClassesConfig, Instances
from segmeter.data.files.array import MAX_PIXELS
from segmeter.data.files.geometry import Geometry
from segmeter.data.files.refusals import file_error
from segmeter.data.files.zarr import label_names

Overlap = Literal["error", "smaller_on_top"]
Corners = Literal["edges", "centres"]
# The fields of `Reading` that a configuration has under the same name.
_SETTINGS = ("max_pixels", "key", "instances", "flat", "overlap", "corners", "resample", "level", "timeout_s")
_AT_ONCE = 1 << 20  # Count at most this many pixels at a time, to bound the memory.


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """The files of one case.

    `paths` holds the image, then the masks, then the files of a volume's further channels, `n_channel_files` in number.
    There is no mask without a reference, one for binary and multiclass, and one per class for multilabel. Paths are
    text, because making 100,000 `Path` objects takes longer than finding the files. `case_id` is safe as a file name.
    `source` names the folder that the case comes from, if there are several. `sha256` holds the hash of each file,
    taken when it was verified, and is empty before that.
    """

    case_id: str
    paths: tuple[str, ...]
    sha256: tuple[str, ...] = ()
    source: str = ""
    n_channel_files: int = 0

    @property
    def image(self) -> Path:
        return Path(self.paths[0])

    @property
    def masks(self) -> tuple[Path, ...]:
        return tuple(map(Path, self.paths[1 : len(self.paths) - self.n_channel_files]))

    @property
    def images(self) -> tuple[Path, ...]:
        """The image, or the file of each channel."""
        return (self.image, *map(Path, self.paths[len(self.paths) - self.n_channel_files :]))

    @property
    def files(self) -> tuple[Path, ...]:
        """The image, then each mask, then the files of further channels."""
        return tuple(map(Path, self.paths))


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The arrays of one case.

    `image` is (H, W, C) uint8, uint16 or float32. `target` is (H, W) uint8 or uint16; for multilabel (K, H, W) with 0,
    1 and the ignore index; None without a reference. `instances` is (H, W), the object number of each pixel, with 0 for
    no object; None unless the masks number their objects. For a case that is larger than memory, an evaluation puts a
    `LazyArray` in the place of `target`, whose lines are read when they are needed.

    For a volume, `target` is (D, H, W) or (K, D, H, W), and `image` is its middle plane as the network sees it.
    `plane_axis` is the axis of (D, H, W) along which planes are cut, and `geometry` says where the voxels lie.
    """

    case_id: str
    image: np.ndarray
    target: np.ndarray | None
    instances: np.ndarray | None = None
    plane_axis: int | None = None
    geometry: Geometry | None = None


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The way label maps are read.

    Parameters
    ----------
    spec
        The meaning of the labels.
    label_map
        Maps a stored value or colour to a label. If it is empty, stored values are labels.
    max_pixels
        The most pixels or voxels of a file, checked before it is decoded.
    key
        The array of an NPZ archive or Zarr group; None takes the only one.
    instances
        Whether the stored values are object numbers instead of labels, with 0 for no object. With "references" or
        "predictions", only that side of a pair has object numbers.
    divisor
        Set if the values are class * divisor + number, as in Cityscapes; None if they are plain object numbers.
    keeps_invalid
        Whether values that are not labels are kept, so that they can be counted.
    flat
        Whether a volume of depth 1 is read as an image.
    overlap
        What to do with pixels that two drawn objects cover.
    corners
        Where the corners of YOLO polygons lie: on the edges of pixels, or in their centres.
    resample
        Whether a prediction on another grid is brought onto its reference's grid, by "nearest" neighbour.
    level
        The level of a pyramid.
    located
        Whether the geometry is read.
    timeout_s
        The most seconds to wait for the files of a case; None for no limit.
    """

    spec: ClassSpec
    label_map: Mapping[str, int] = field(default_factory=dict)
    max_pixels: int = MAX_PIXELS
    key: str | None = None
    instances: Instances = False
    divisor: int | None = None
    keeps_invalid: bool = False
    flat: bool = False
    overlap: Overlap = "error"
    corners: Corners = "edges"
    resample: Literal["refuse", "nearest"] = "refuse"
    level: int = 0
    located: bool = True
    timeout_s: float | None = None

    @classmethod
    def of(cls, config: ClassesConfig, spec: ClassSpec, **others: Any) -> "Reading":
        """Read maps as the configuration says, with these classes; `others` override it."""
        settings = {name: getattr(config, name) for name in _SETTINGS if hasattr(config, name)}
        settings["label_map"] = {key.replace(" ", ""): label for key, label in config.label_map.items()}
        settings["divisor"] = getattr(config, "instance_divisor", None)
        return cls(spec=spec, **settings | others)

    @property
    def has_colours(self) -> bool:
        """Whether the label map names colours."""
        return not self.instances and any("," in name for name in self.label_map)

    @property
    def limits(self) -> dict[str, Any]:
        """The options of `open_array` for an image."""
        return {"max_pixels": self.max_pixels, "level": self.level}

    def options(self, path: Path, *, is_folder: bool | None = None) -> dict[str, Any]:
        """Return the options of `open_array` for a map; DataError unless the label map of an OME-Zarr is named."""
        is_folder = path.is_dir() if is_folder is None else is_folder
        names = label_names(path) if self.key is None and is_folder else []
        if names:
            rule, remedy = "to be a label map", f"Name one: data.key={names[0]}."
            raise file_error(path, "OME-Zarr", rule, f"a picture with {some(names)}", remedy)
        return {"key": self.key, "axes": "map", **self.limits}


def count_classes(target: NDArray[Any], spec: ClassSpec) -> NDArray[np.int64]:
    """Count the pixels of each class in one target.

    Parameters
    ----------
    target : (H, W), or (K, H, W) for multilabel
    spec
        The meaning of its labels.

    Returns
    -------
    int64 (K,), without ignored pixels.
    """
    if spec.is_multilabel:
        return np.asarray((target == 1).sum((1, 2)), np.int64)
    counts = count_values(target, least=spec.num_classes)
    return np.asarray(counts[: spec.num_classes], np.int64)


def count_decided(target: NDArray[Any], spec: ClassSpec) -> NDArray[np.int64]:
    """Count the pixels that are not ignored, int64 (K,); in multilabel targets each class has its own plane."""
    decided = spec.valid(target)
    if spec.is_multilabel:
        return np.asarray(decided.sum((1, 2)), np.int64)
    return np.full(spec.num_classes, decided.sum(), np.int64)


def count_values(plane: NDArray[Any], *, least: int = 0) -> NDArray[np.int64]:
    """Count each value of (H, W) from 0 up; the result has at least `least` entries.

    One call of `bincount` is faster than a pass over the pixels for each value. It turns each pixel into 8 bytes, so it
    is called for some lines at a time.
    """
    step = max(1, _AT_ONCE // plane.shape[1])
    counts = np.bincount(plane[:step].ravel(), minlength=least)
    for top in range(step, len(plane), step):
        band_counts = np.bincount(plane[top : top + step].ravel(), minlength=len(counts))
        band_counts[: len(counts)] += counts
        counts = band_counts
    return counts
