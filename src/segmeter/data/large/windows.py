"""TIFF or NPY file, or Zarr folder -> a window of its pixels, decoded without the rest."""

from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray

from segmeter.data.by_rows.zarr_rows import ZarrRows
from segmeter.data.files.header import MAX_PIXELS, Header, pick_page
from segmeter.data.files.npy import read_npy_header
from segmeter.data.files.sniff import damaged, open_regular

_JPEG = (6, 7, 34892, 33007)  # compressions whose tables stand once for all tiles
_READABLE = ("uint8", "uint16", "int16", "uint32", "int32", "float32")  # read as they are stored


def has_windows(header: Header) -> bool:
    """Whether windows of such a file can be read: upright TIFF, NPY and Zarr, of values that need no conversion."""
    upright = header.orientation == 1 and header.kind != "cmyk"
    return header.format in ("tiff", "npy", "zarr") and header.dtype.name in _READABLE and upright


class WindowFile:
    """A file or folder for which `has_windows` is true.

    Parameters
    ----------
    path, header
        Its place and its header.
    level
        Which level of a pyramid the header is of.
    max_pixels
        The most pixels of a chunk of Zarr.

    Raises
    ------
    DataError
        The chunks of a Zarr folder are too large, or it is damaged.
    """

    def __init__(self, path: Path, header: Header, *, level: int = 0, max_pixels: int = MAX_PIXELS) -> None:
        self._path, self._header, self._level = path, header, level
        self._zarr = ZarrRows(path, level=level, max_pixels=max_pixels) if header.format == "zarr" else None

    def files(self, rows: slice, columns: slice) -> list[Path]:
        """The files that a window is read from; of Zarr some may be absent."""
        return [self._path] if self._zarr is None else self._zarr.files(rows, columns)

    def read(self, rows: slice, columns: slice) -> NDArray[Any]:
        """Read the pixels in some rows and columns, as `read_window` does."""
        if self._zarr is not None:
            return np.ascontiguousarray(self._zarr.read_window(rows, columns), self._header.dtype)
        return read_window(self._path, self._header, rows, columns, level=self._level)


def read_window(path: Path, header: Header, rows: slice, columns: slice, *, level: int = 0) -> NDArray[Any]:
    """Read the pixels of a TIFF or NPY file in some rows and columns.

    Parameters
    ----------
    path, header
        A file for which `has_windows` is true, and its header.
    rows, columns
        With a start and a stop, inside the picture.
    level
        Which level of a pyramid the header is of.

    Returns
    -------
    (h, w), or (h, w, C) for several channels, of the header's dtype: what decoding the whole file has there.

    Raises
    ------
    DataError
        The file can't be opened, or is damaged there.
    """
    try:
        with open_regular(path) as file:
            if header.format == "npy":
                found = _npy_window(path, file, header, rows, columns)
            else:
                found = _tiff_window(path, header, rows, columns, level)
            return np.ascontiguousarray(found, header.dtype)
    except (ValueError, RuntimeError, OSError, IndexError, KeyError, TypeError, AttributeError) as error:
        raise damaged(path, error) from error


def _npy_window(path: Path, file: BufferedReader, header: Header, rows: slice, columns: slice) -> NDArray[Any]:
    shape, by_column, dtype = read_npy_header(path, file)
    mapped = np.memmap(file, dtype, mode="r", offset=file.tell(), shape=shape, order="F" if by_column else "C")
    pixels: NDArray[Any] = mapped[rows, columns]
    return pixels[..., 0] if pixels.ndim == 3 and header.channels == 1 else pixels


def _tiff_window(path: Path, header: Header, rows: slice, columns: slice, level: int) -> NDArray[Any]:
    """Decode the tiles, or strips, that meet the window, of all planes where channels are stored apart."""
    with tifffile.TiffFile(path) as tiff:
        page = pick_page(path, tiff, level)[0] if header.levels > 1 else tiff.pages.first
        tall = page.tilelength if page.is_tiled else page.rowsperstrip
        wide = page.tilewidth if page.is_tiled else page.imagewidth
        down, across = -(-page.imagelength // tall), -(-page.imagewidth // wide)
        apart = header.channels > 1 and page.planarconfig == tifffile.PLANARCONFIG.SEPARATE
        out = np.empty((rows.stop - rows.start, columns.stop - columns.start, header.channels), page.dtype)
        for plane in range(header.channels if apart else 1):
            target = out[..., plane : plane + 1] if apart else out
            for row in range(rows.start // tall, (rows.stop - 1) // tall + 1):
                for column in range(columns.start // wide, (columns.stop - 1) // wide + 1):
                    segment = _decode(tiff, page, (plane * down + row) * across + column)
                    _place(target, segment, row * tall - rows.start, column * wide - columns.start)
    return out if header.channels > 1 else out[..., 0]


def _decode(tiff: Any, page: Any, index: int) -> NDArray[Any]:
    """One tile or strip, (h, w, C), without what pads it beyond the picture."""
    tiff.filehandle.seek(page.dataoffsets[index])
    content = tiff.filehandle.read(page.databytecounts[index])
    tables = {"jpegtables": page.jpegtables, "jpegheader": page.keyframe.jpegheader}
    pixels, _, shape = page.decode(content, index, **(tables if int(page.compression) in _JPEG else {}))
    if pixels is None:
        raise ValueError(f"tile {index} has no pixels")
    found: NDArray[Any] = pixels[0, : shape[1], : shape[2]]
    return found


def _place(target: NDArray[Any], segment: NDArray[Any], top: int, left: int) -> None:
    """Copy what a segment has inside the target; `top` and `left` are its place there and may be negative."""
    bottom, right = min(top + segment.shape[0], target.shape[0]), min(left + segment.shape[1], target.shape[1])
    first, before = max(top, 0), max(left, 0)
    target[first:bottom, before:right] = segment[first - top : bottom - top, before - left : right - left]
