"""Bands of rows, from top to bottom -> one tiled file: a BigTIFF, or a Zarr 3 folder, complete or absent."""

import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, Protocol

import imagecodecs
import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected
from segmeter.data.location import UNKNOWN, Location
from segmeter.errors import InputError
from segmeter.export.config import Compression
from segmeter.export.formats import TILE, ZarrFolder
from segmeter.export.located import ASCII, DOUBLE, LONG, LONG8, RATIONAL, SHORT, Field, located_fields, zarr_attributes
from segmeter.files import atomic_write, fresh_folder, make_folder, remove
from segmeter.parallel import map_in_threads
from segmeter.threads import count_cores

_PACKERS: dict[Compression, tuple[int, Callable[[bytes], bytes]]] = {  # TIFF's numbers of compressions
    "deflate": (8, partial(zlib.compress, level=6)),
    "zstd": (50000, lambda content: bytes(imagecodecs.zstd_encode(content))),
}
_BLACK_IS_0, _PALETTE = 1, 3  # photometric interpretations
_HEADER = 16  # bytes before the first tile
_WIDTHS = {ASCII: "B", SHORT: "H", LONG: "I", RATIONAL: "I", DOUBLE: "d", LONG8: "Q"}
_SAMPLE_FORMATS = {"u": 1, "i": 2, "f": 3}


class Bands(Protocol):
    """Takes the rows of an image in their order."""

    def write(self, rows: NDArray[Any]) -> None:
        """Write the next rows, (h, W)."""


@contextmanager
def open_bands(
    path: Path,
    *,
    shape: tuple[int, int],
    dtype: np.dtype[Any],
    compression: Compression = "deflate",
    palette: NDArray[np.uint16] | None = None,
    location: Location = UNKNOWN,
) -> Iterator[Bands]:
    """Write an image of `shape` by bands into .tif or .zarr, as the suffix says; it appears when the block ends.

    Parameters
    ----------
    compression, palette
        Of a TIFF: how its tiles are packed, and (3, 256) colours of the values of uint8, with 65535 as full.
    location
        Where its pixels lie.

    Raises
    ------
    InputError
        Rows of another width or dtype, or at the end too few or too many of them.
    OSError
        It can't be written.
    """
    if path.suffix == ".zarr":
        with _zarr(path, shape, dtype, location) as zarr_bands:
            yield zarr_bands
        return
    make_folder(path.parent)
    with atomic_write(path) as file:
        more = located_fields(location, shape, np.dtype(dtype))
        tiff_bands = _BigTiff(file, shape=shape, dtype=dtype, compression=compression, palette=palette, more=more)
        yield tiff_bands
        tiff_bands.finish()


class _Tiled:
    """Collects rows until a row of tiles is full."""

    def __init__(self, *, shape: tuple[int, int], dtype: np.dtype[Any]) -> None:
        self.height, self.width = shape
        self.dtype = np.dtype(dtype)
        self._buffer = np.zeros((TILE, self.width), self.dtype)
        self._filled = self._done = 0

    def write(self, rows: NDArray[Any]) -> None:
        """Take the next rows, and put out the rows of tiles that are full."""
        self._check(rows)
        while len(rows):
            count = min(TILE - self._filled, len(rows))
            self._buffer[self._filled : self._filled + count] = rows[:count]
            self._filled, self._done, rows = self._filled + count, self._done + count, rows[count:]
            if self._filled == TILE or self._done == self.height:
                self.put(self._done - self._filled, self._buffer[: self._filled])
                self._filled = 0

    def put(self, top: int, rows: NDArray[Any]) -> None:
        """Put out the rows of one row of tiles."""
        raise NotImplementedError

    def _check(self, rows: NDArray[Any]) -> None:
        if rows.shape[1:] != (self.width,) or rows.dtype != self.dtype or self._done + len(rows) > self.height:
            left = self.height - self._done
            rule = f"to be at most {left} rows of {self.width} {self.dtype}"
            raise InputError(expected("open_bands", "rows", rule, f"{rows.dtype} {rows.shape}"))

    def check_whole(self) -> None:
        """Raise InputError unless all rows have come."""
        if self._done != self.height:
            raise InputError(expected("open_bands", "rows", f"to be {self.height} in all", self._done))


class _BigTiff(_Tiled):
    """A BigTIFF of one page in deflated tiles, its directory behind them.

    Parameters
    ----------
    file
        Empty, and seekable.
    compression, palette
        As for `open_bands`.
    more
        Further fields: number, type, count and numbers.

    References
    ----------
    TIFF Revision 6.0, sections 2 (structure), 8 (fields), 15 (tiles); the BigTIFF design of libtiff: version 43, with
    8 bytes for offsets and counts.
    """

    def __init__(
        self,
        file: IO[bytes],
        *,
        shape: tuple[int, int],
        dtype: np.dtype[Any],
        compression: Compression,
        palette: NDArray[np.uint16] | None,
        more: Sequence[Field],
    ) -> None:
        super().__init__(shape=shape, dtype=np.dtype(dtype).newbyteorder("<"))
        self._file, self._palette, self._more = file, palette, more
        self._scheme, self._pack = _PACKERS[compression]
        self._offsets: list[int] = []
        self._sizes: list[int] = []
        self._end = _HEADER
        file.write(self._head(0))

    def put(self, top: int, rows: NDArray[Any]) -> None:
        tiles = (rows[:, left : left + TILE] for left in range(0, self.width, TILE))
        for content in map_in_threads(self._packed, tiles, threads=count_cores(), name="pack"):
            self._file.write(content)
            self._offsets.append(self._end)
            self._sizes.append(len(content))
            self._end += len(content)

    def finish(self) -> None:
        """Write the directory, and let the header point to it."""
        self.check_whole()
        self._file.write(b"\0" * (-self._end % 8))
        start = self._end + -self._end % 8
        self._file.write(self._directory(start))
        self._file.seek(0)
        self._file.write(self._head(start))

    def _packed(self, tile: NDArray[Any]) -> bytes:
        """A tile, extended by zeros to its full size."""
        whole = np.zeros((TILE, TILE), tile.dtype)
        whole[: tile.shape[0], : tile.shape[1]] = tile
        return self._pack(whole.tobytes())

    @staticmethod
    def _head(directory: int) -> bytes:
        return struct.pack("<2sHHHQ", b"II", 43, 8, 0, directory)

    def _directory(self, start: int) -> bytes:
        plain: list[tuple[int, int, list[int]]] = [
            (256, LONG, [self.width]),
            (257, LONG, [self.height]),
            (258, SHORT, [8 * self.dtype.itemsize]),
            (259, SHORT, [self._scheme]),
            (262, SHORT, [_BLACK_IS_0 if self._palette is None else _PALETTE]),
            (277, SHORT, [1]),  # samples per pixel
            *([] if self._palette is None else [(320, SHORT, self._palette.ravel().tolist())]),
            (322, LONG, [TILE]),
            (323, LONG, [TILE]),
            (324, LONG8, self._offsets),
            (325, LONG8, self._sizes),
            (339, SHORT, [_SAMPLE_FORMATS[self.dtype.kind]]),
        ]
        fields = sorted([(tag, kind, len(numbers), numbers) for tag, kind, numbers in plain] + list(self._more))
        behind = start + 8 + 20 * len(fields) + 8  # where values that do not fit into a field go
        entries, values = b"", b""
        for tag, kind, count, numbers in fields:
            packed = struct.pack(f"<{len(numbers)}{_WIDTHS[kind]}", *numbers)
            if len(packed) > 8:
                packed, values = struct.pack("<Q", behind + len(values)), values + packed
            entries += struct.pack("<HHQ", tag, kind, count) + packed.ljust(8, b"\0")
        return struct.pack("<Q", len(fields)) + entries + struct.pack("<Q", 0) + values


@contextmanager
def _zarr(path: Path, shape: tuple[int, int], dtype: np.dtype[Any], location: Location) -> Iterator[Bands]:
    with fresh_folder(path) as folder:
        chunks = tuple(min(TILE, side) for side in shape)
        named: dict[str, Any] = {"dimension_names": ("y", "x"), "attributes": zarr_attributes(location)}
        array = ZarrFolder(folder, shape=shape, dtype=dtype, chunks=chunks, **named)
        bands = _ZarrBands(array, shape=shape, dtype=dtype)
        yield bands
        bands.check_whole()
        if path.exists():  # a rename replaces files only
            remove(path)


class _ZarrBands(_Tiled):
    """Rows of chunks of an array in a folder that is not published yet."""

    def __init__(self, array: ZarrFolder, *, shape: tuple[int, int], dtype: np.dtype[Any]) -> None:
        super().__init__(shape=shape, dtype=dtype)
        self._array = array

    def put(self, top: int, rows: NDArray[Any]) -> None:
        self._array.write(slice(top, top + len(rows)), rows)
