"""Reads images for training and evaluation, exactly or not at all, and makes thumbnails of them."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from segmeter.data.files.array import MAX_PIXELS, FileArray, Header, LazyArray
from segmeter.data.files.opened import open_array
from segmeter.data.files.refusals import file_error

Orientation = Literal["refuse", "ignore", "apply"]
IMAGE_DTYPES = ("uint8", "uint16", "float32")
_UPRIGHT: dict[int, Callable[[NDArray[Any]], NDArray[Any]]] = {  # EXIF 2.3, tag 0x0112: where row 0 and column 0 lie
    2: np.fliplr,
    3: lambda pixels: pixels[::-1, ::-1],
    4: np.flipud,
    5: lambda pixels: pixels.swapaxes(0, 1),
    6: lambda pixels: np.rot90(pixels, 3),
    7: lambda pixels: np.rot90(pixels, 2).swapaxes(0, 1),
    8: np.rot90,
}
LONGEST = 1024  # the longest side of a thumbnail, in pixels


def read_image(
    path: Path, *, channels: int | None = None, max_pixels: int = MAX_PIXELS, orientation: Orientation = "refuse"
) -> NDArray[Any]:
    """Read an image exactly.

    Only conversions without loss are made: 1-bit images become 0 and 255, palettes their RGB colours, float16 becomes
    float32, and an opaque alpha channel is dropped. Anything else is refused.

    Parameters
    ----------
    path
        A file of one plane, of any format that `open_array` reads.
    channels
        The number of channels that the image must have; None accepts any.
    max_pixels
        The largest height x width, checked before decoding.
    orientation
        What to do with an EXIF orientation: "refuse" it, "ignore" it, or "apply" it to the pixels.

    Returns
    -------
    (H, W, C) array, uint8, uint16 or finite float32, C-contiguous.

    Raises
    ------
    DataError
        The file is damaged or not such an image.
    """
    with open_array(path, max_pixels=max_pixels) as stored:
        return image_of(stored, channels=channels, orientation=orientation)


def image_of(stored: FileArray, *, channels: int | None, orientation: Orientation, level: int = 0) -> NDArray[Any]:
    """Read an open image as `read_image` does; `level` is the level of the pyramid at which it was opened."""
    check_image_header(stored.path, stored.header, channels=channels, orientation=orientation, level=level)
    pixels = stored.read_colours(channels)
    if orientation == "apply":
        pixels = _UPRIGHT.get(stored.header.orientation, np.asarray)(pixels)
    return _as_image(stored.path, pixels)


@contextmanager
def open_image_lines(
    path: Path, *, channels: int | None, orientation: Orientation, **options: Any
) -> Iterator[LazyArray]:
    """Open a TIFF file or Zarr folder as lines, as `read_image` would read them; `options` are those of `open_array`.

    Raises
    ------
    DataError
        The file is damaged or not such an image; reading a line may raise it too.
    """
    with open_array(path, streams=True, **options) as stored:
        header = stored.header
        level = options.get("level", 0)
        check_image_header(path, header, channels=channels, orientation=orientation, level=level)
        if header.orientation != 1 and orientation == "apply":
            remedy = "Turn the pixels themselves and clear the tag."
            raise file_error(path, "EXIF orientation", "to be 1 in a large file", header.orientation, remedy)
        dtype = np.dtype({"bool": "uint8", "float16": "float32"}.get(header.dtype.name, header.dtype.name))
        shape = (header.height, header.width, header.channels)
        yield LazyArray(shape, dtype, lambda start, stop: _as_image(path, stored.read(start, stop)))


def _as_image(path: Path, pixels: NDArray[Any]) -> NDArray[Any]:
    """Turn decoded pixels (H, W) or (H, W, C) into (H, W, C) of an image dtype, without loss."""
    if pixels.dtype == np.bool_:
        pixels = pixels.astype(np.uint8) * np.uint8(255)
    if pixels.dtype == np.float16:
        pixels = pixels.astype(np.float32)
    if pixels.dtype == np.float32 and not np.isfinite(pixels).all():
        bad = int(pixels.size - np.isfinite(pixels).sum())
        raise file_error(path, "image", "to be finite", f"{bad} NaN or infinite values", "Replace them before.")
    return np.ascontiguousarray(pixels[:, :, None] if pixels.ndim == 2 else pixels)


def plane_of_volume(path: Path, pixels: NDArray[Any]) -> NDArray[Any]:
    """Turn a plane (H, W) of a volume into (H, W, 1) of an image dtype; raises as `read_image` does.

    Scanners store signed integers and scaled values. Those become float32: integers exactly, float64 rounded.
    """
    if pixels.dtype.name not in (*IMAGE_DTYPES, "float16", "bool"):
        wide = pixels.astype(np.float32)
        if pixels.dtype.kind in "iu" and not np.array_equal(wide.astype(np.float64), pixels):
            rule, values = "to hold values that float32 can hold", f"{pixels.dtype} up to {pixels.max()}"
            raise file_error(path, "image", rule, values, "Save it with a smaller range.")
        pixels = wide
    return _as_image(path, pixels)


def check_image_header(
    path: Path, header: Header, *, channels: int | None, orientation: Orientation, level: int = 0
) -> None:
    """Refuse a file whose header shows that it can't be such an image."""
    if level and header.levels == 1:
        remedy = "Set data.level=0, or give files with a pyramid."
        raise file_error(path, "image", f"to have a level {level}", "a picture without a pyramid", remedy)
    if header.kind == "cmyk":
        remedy = "Convert it to RGB with its colour profile."
        raise file_error(path, "image", "to be gray or RGB", "CMYK (4 inks)", remedy)
    if header.format == "png" and header.bits == 16 and header.channels > 1:
        remedy = "Save it as TIFF: PNG decoding would cut it to 8 bits."
        raise file_error(path, "image", "to have 8 bits per colour channel", "16-bit colour PNG", remedy)
    if header.format == "tiff" and header.kind == "palette":
        raise file_error(path, "image", "to be gray or RGB", "a palette TIFF", "Save it as RGB.")
    if header.dtype.name not in (*IMAGE_DTYPES, "float16", "bool"):
        remedy = "Save it as one of these; the scale is yours to choose."
        raise file_error(path, "image", f"of dtype {', '.join(IMAGE_DTYPES)}", header.dtype.name, remedy)
    if header.orientation != 1 and orientation == "refuse":
        remedy = (
            "The mask isn't turned by this tag: turn the pixels themselves and clear the tag, "
            "or set data.orientation=apply (masks fit the turned image) or =ignore (they fit the stored one)."
        )
        raise file_error(path, "EXIF orientation", "to be 1 (upright)", header.orientation, remedy)
    # the numbers of channels that the file can give without loss, if its alpha is opaque
    possible = {"palette": {3}, "gray+alpha": {1, 2}, "rgba": {3, 4}}.get(header.kind, {header.channels})
    if channels is not None and channels not in possible:
        remedy = f"Convert the image, or train with data.in_channels={min(possible)}."
        raise file_error(path, "image", f"to have {channels} channels", kind_of(header), remedy)


def kind_of(header: Header) -> str:
    """Return the kind and number of channels as text for a message."""
    return f"{header.kind} with {header.channels} channel{'s' if header.channels > 1 else ''}"


def thumbnail_step(height: int, width: int) -> int:
    """Return the reduction factor of a thumbnail, the same for both axes.

    Examples
    --------
    >>> thumbnail_step(1024, 800), thumbnail_step(100, 1025)
    (1, 2)
    """
    return math.ceil(max(height, width) / LONGEST)


class Thumbnail:
    """Collects every n-th line and column of bands that come from top to bottom.

    `axis` is the axis of the lines, counted from the last one: -2 for (H, W), -3 for (H, W, C).
    """

    def __init__(self, stride: int, axis: int) -> None:
        self._stride = stride
        self._axis = axis
        self._rows: list[NDArray[Any]] = []
        self._next = 0

    def add(self, top: int, rows: NDArray[Any]) -> None:
        """Take the thumbnail's part of a band that begins at line `top`; lines that came before are skipped."""
        lines = np.arange(self._next, top + rows.shape[self._axis], self._stride) - top
        if len(lines):
            columns = range(0, rows.shape[self._axis + 1], self._stride)
            self._rows.append(np.take(np.take(rows, lines, self._axis), columns, self._axis + 1))
            self._next += len(lines) * self._stride

    def pixels(self) -> NDArray[Any]:
        """Return the whole thumbnail."""
        return np.concatenate(self._rows, self._axis)


def tapped(array: LazyArray, picture: Thumbnail) -> LazyArray:
    """Return the lines of an image, and collect a thumbnail from whatever is read."""

    def read(start: int, stop: int) -> NDArray[Any]:
        pixels = array.read(start, stop)
        picture.add(start, pixels)
        return pixels

    return LazyArray(array.shape, array.dtype, read)
