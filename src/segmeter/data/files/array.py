"""Defines arrays that stay in their files: their header is known at once, and their lines are read on demand.

Every format is a `FileArray`, which `segmeter.data.files.opened` opens. Formats that can be decoded in parts read only
the lines that are asked for. Others are decoded once, as a whole.
"""

import hashlib
import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import nearest, some
from segmeter.data.files.geometry import NOWHERE, Geometry
from segmeter.data.files.refusals import damage_named, file_error

MAX_PIXELS = 200_000_000  # the default limit: 600 MB of RGB
STREAMED_PIXELS = 1 << 26  # Images with more pixels are read line by line if possible.
ALL = slice(None)
Kind = Literal["gray", "gray+alpha", "palette", "rgb", "rgba", "cmyk", "array"]
Axes = Literal["image", "map", "probs"]
_RULES = {
    "image": "(height, width) or (height, width, channels)",
    "map": "(height, width) or (depth, height, width)",
    "probs": "(height, width) or (depth, height, width) or (channels, depth, height, width)",
}
_NUMPY = ("npy", "npz")
_MOST_AXES = {"image": 3, "map": 3, "probs": 4}
_ONE_MAP = "Save one map per file, without axes for channels or time."


@dataclass(frozen=True, kw_only=True)
class Header:
    """The size and type of a file's pixels.

    `bits` is the depth of one stored sample, and `dtype` is that of the decoded pixels. `channels` counts alpha. `lead`
    holds the sizes of axes before the plane, such as (depth,). `orientation` is the EXIF tag, 1 for upright. `levels`
    is the number of levels of the pyramid, 1 if there is none.
    """

    format: str
    height: int
    width: int
    channels: int = 1
    lead: tuple[int, ...] = ()
    kind: Kind = "array"
    bits: int
    dtype: np.dtype[Any]
    lossy: bool = False
    orientation: int = 1
    levels: int = 1

    @property
    def shape(self) -> tuple[int, ...]:
        """(H, W), (H, W, C) for several channels, (D, H, W) for volumes."""
        return (*self.lead, self.height, self.width, *([self.channels] if self.channels > 1 else []))

    @property
    def streamed(self) -> bool:
        """Whether the file is read line by line wherever possible: Zarr, and large TIFF files."""
        return self.format == "zarr" or (self.format == "tiff" and self.height * self.width > STREAMED_PIXELS)


@dataclass(frozen=True, kw_only=True)
class Opening:
    """The way a file is opened.

    Parameters
    ----------
    key
        The array of an NPZ archive or Zarr group; None takes the only one.
    level
        The level of a pyramid, where 0 is the finest. A file without a pyramid has only level 0.
    max_pixels
        The most pixels or voxels. They are counted before any is decoded.
    axes
        What a third axis without a name means: channels in an "image", depth in a "map". In "probs", channels and depth
        may come first.
    streams
        Whether files that are read line by line may have more than `max_pixels`.
    """

    key: str | None = None
    level: int = 0
    max_pixels: int = MAX_PIXELS
    axes: Axes = "image"
    streams: bool = False


@dataclass(frozen=True, eq=False)
class LazyArray:
    """Pixels whose shape and dtype are known before they are read.

    Parameters
    ----------
    shape
        (H, W), (H, W, C) for images, or (K, H, W) for the planes of a multilabel map.
    dtype
        The dtype that `read` returns.
    read
        Reads the lines from the first number up to, but not including, the second. Several threads may call it at once.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    read: Callable[[int, int], NDArray[Any]]


class ArrayRows(LazyArray):
    """The lines of an array in memory; `axis` is the one along which lines are counted."""

    def __init__(self, array: NDArray[Any], axis: int = 0) -> None:
        leading = (ALL,) * axis
        super().__init__(array.shape, array.dtype, lambda start, stop: array[(*leading, slice(start, stop))])


def stack_planes(planes: list[LazyArray]) -> LazyArray:
    """Stack planes (H, W) of the same size and dtype into (K, H, W)."""
    shape = (len(planes), *planes[0].shape)
    stack = lambda start, stop: np.stack([plane.read(start, stop) for plane in planes])  # noqa: E731
    return LazyArray(shape, planes[0].dtype, stack)


class FileArray:
    """The stored pixels of an open file; see `segmeter.data.files.opened.open_array`.

    Parameters
    ----------
    path, file
        The file; None for a Zarr folder.
    header, geometry
        The file's own description of its pixels. A format that reads it later overrides these as properties.
    pixels
        Decodes the whole file; it is called once. Formats that are read in parts override `_lines` instead.
    planes
        Reads a volume plane by plane. It may be given instead of `pixels` or beside it.
    """

    header: Header
    geometry: Geometry = NOWHERE
    nodata: float | str | None = None

    def __init__(
        self,
        path: Path,
        file: IO[bytes] | None,
        header: Header | None = None,
        geometry: Geometry = NOWHERE,
        pixels: Callable[[], NDArray[Any]] | None = None,
        planes: Callable[[], Iterator[NDArray[Any]]] | None = None,
    ) -> None:
        self.path = path
        self._file = file
        self._lock = threading.Lock()
        self._pixels = pixels
        self._planes = planes
        if header is not None:
            self.header, self.geometry = header, geometry

    @property
    def shape(self) -> tuple[int, ...]:
        return self.header.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.header.dtype

    @property
    def repeatable(self) -> Geometry:
        """The part of the geometry that label maps of an image repeat: the spacing along its height and width."""
        geometry = self.geometry
        spacing = None if geometry.spacing is None else geometry.spacing[-2:]
        return Geometry(spacing=spacing, unit=geometry.unit, spacing_problem=geometry.spacing_problem)

    @property
    def is_palette(self) -> bool:
        """Whether the pixels are indices of a palette."""
        return self.header.kind == "palette"

    @property
    def sha256(self) -> str:
        """Sha256 of the file's bytes, or of all files of a Zarr folder."""
        assert self._file is not None
        self._file.seek(0)
        return hashlib.file_digest(self._file, "sha256").hexdigest()  # type: ignore[arg-type]

    def read(self, start: int = 0, stop: int | None = None, columns: slice = ALL) -> NDArray[Any]:
        """Read lines, or a window of them, in this machine's byte order; DataError if the file is damaged there."""
        with self._lock, damage_named(self.path):
            pixels = self._lines(start, self.header.height if stop is None else stop, columns)
            return pixels.astype(pixels.dtype.newbyteorder("="), copy=False)

    def read_colours(self, channels: int | None) -> NDArray[Any]:
        """Read all pixels as an image with this number of channels, if nothing is lost by that."""
        return self.read()

    def blocks(self) -> Iterator[NDArray[Any]]:
        """Read a volume in blocks along its first axis, (d, H, W), without decoding the whole of it if possible."""
        with self._lock, damage_named(self.path):
            for block in self._blocks():
                yield block.astype(block.dtype.newbyteorder("="), copy=False)

    def parts(self, rows: slice, columns: slice) -> list[Path]:
        """Return the files that a window is read from; in Zarr, some may be absent."""
        return [self.path]

    def _lines(self, start: int, stop: int, columns: slice) -> NDArray[Any]:
        return self._whole[(*[ALL] * len(self.header.lead), slice(start, stop), columns)]

    def _blocks(self) -> Iterator[NDArray[Any]]:
        return self._planes() if self._planes else iter([self._whole])

    @cached_property
    def _whole(self) -> NDArray[Any]:
        return self._decode().reshape(self.header.shape)

    def _decode(self) -> NDArray[Any]:
        return self._pixels() if self._pixels else np.concatenate([*self._blocks()])


def array_header(
    path: Path, form: str, shape: tuple[int, ...], dtype: np.dtype[Any], opening: Opening, *, levels: int = 1
) -> Header:
    """Build the header of a plain array, or refuse the array.

    Raises
    ------
    DataError
        It holds no numbers, has too few or too many axes, or more pixels than allowed.
    """
    if dtype.kind not in "biuf":
        content = "Python objects" if dtype.hasobject else str(dtype)
        raise file_error(path, "dtype", "to be numbers", content, "Save a plain numeric array.")
    axes = opening.axes
    stored_shape = shape
    has_channels = axes == "image" and form in _NUMPY  # other formats store depth first
    if form == "npy" and axes == "map" and len(shape) == 3 and shape[2] == 1:
        shape = shape[:2]
    if axes == "image" and not has_channels and len(shape) == 3 and shape[0] == 1:
        shape = shape[1:]
    if not 2 <= len(shape) <= (2 if axes == "image" and not has_channels else _MOST_AXES[axes]):
        raise file_error(path, "shape", _RULES[axes], stored_shape, _ONE_MAP if axes == "map" else "")
    plane = shape[:2] if has_channels else shape
    check_pixel_count(path, plane, opening, streamed=form == "zarr" and len(plane) == 2)
    channels = shape[2] if has_channels and len(shape) == 3 else 1
    return Header(
        format=form,
        lead=plane[:-2],
        height=plane[-2],
        width=plane[-1],
        channels=channels,
        bits=dtype.itemsize * 8,
        dtype=dtype.newbyteorder("="),
        levels=levels,
    )


def check_pixel_count(path: Path, shape: tuple[int, ...], opening: Opening, *, streamed: bool = False) -> None:
    """Refuse an array without pixels, or with more pixels than allowed unless it is read line by line."""
    pixels = math.prod(shape) if min(shape) > 0 else 0
    if 0 < pixels <= opening.max_pixels or (pixels and opening.streams and streamed):
        return
    size = " x ".join(map(str, shape))
    if not pixels:
        raise file_error(path, "size", "to be at least 1 along every axis", size, "Write it again.")
    size_in_words = f"{size} (height x width)" if len(shape) == 2 else size
    remedy = f"If it is genuine, set data.max_pixels={pixels} or cut it into tiles."
    raise file_error(path, "size", f"at most {opening.max_pixels} pixels", size_in_words, remedy)


def pick_array(path: Path, names: list[str], key: str | None) -> str:
    """Return the name of the array to read, where a file holds several."""
    if key is None and len(names) == 1:
        return names[0]
    if key is None:
        raise file_error(path, "file", "to hold one array", some(names), "Name one of them: data.key=NAME.")
    if key not in names:
        raise file_error(path, "file", f"to hold the array {key!r}", some(names), nearest(key, names))
    return key
