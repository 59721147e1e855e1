"""Open TIFF page -> its rows, decoded tile row by tile row or strip by strip."""

import math
import threading
from pathlib import Path
from typing import IO, Any

import numpy as np
import tifffile
from numpy.typing import NDArray

from segmeter.checks import expected
from segmeter.data.files.header import check_strips, open_tiff, pick_page
from segmeter.data.files.sniff import damaged, show
from segmeter.errors import DataError
from segmeter.parallel import map_in_threads
from segmeter.threads import count_cores

_JPEG = (6, 7, 34892, 33007)


class TiffRows:
    """The rows of one level of a TIFF file, as they are stored: (H, W), or (H, W, C) for several samples.

    At most one row of tiles, or one strip, is kept beside what is returned.

    Parameters
    ----------
    path
        Named in messages.
    file
        Stays open as long as rows are read.
    level
        Which level of a pyramid.
    max_pixels
        The most pixels of a tile, or of a strip.

    Raises
    ------
    DataError
        There is no such level, it is damaged, or its tiles or strips are too large.
    """

    def __init__(self, path: Path, file: IO[bytes], *, level: int, max_pixels: int) -> None:
        self._path, self._file = path, file
        self._lock, self._turn = threading.Lock(), threading.Lock()
        try:
            self._page, _ = pick_page(path, open_tiff(file), level)
            page = self._page
            check_strips(page, file)
            self.height, self.width, self.samples = page.imagelength, page.imagewidth, page.samplesperpixel
            self.dtype: np.dtype[Any] = np.dtype(page.dtype).newbyteorder("=")
            tall, wide = (page.tilelength, page.tilewidth) if page.is_tiled else (page.rowsperstrip, self.width)
        except DataError:
            raise
        except Exception as error:  # third-party parsers raise many types on hostile bytes
            raise damaged(path, error) from error
        self._tall, self._wide = min(tall, self.height), wide
        if self._tall * self._wide > max_pixels:
            found = f"{self._tall} x {self._wide}"
            remedy = "Save it in tiles: it is read by rows, and a strip or tile is decoded at once."
            raise DataError(expected(show(path), "tiles", f"of at most {max_pixels} pixels", found, remedy))
        self._by_plane = self.samples > 1 and page.planarconfig == tifffile.PLANARCONFIG.SEPARATE
        self._kept: tuple[int, NDArray[Any]] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.height, self.width) if self.samples == 1 else (self.height, self.width, self.samples)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Decode the tiles or strips of these rows; DataError where one is damaged."""
        out = np.empty((stop - start, *self.shape[1:]), self.dtype)
        with self._turn:
            for number in range(start // self._tall, (stop - 1) // self._tall + 1):
                rows, top = self._row_of_tiles(number), number * self._tall
                first, last = max(start, top), min(stop, top + len(rows))
                out[first - start : last - start] = rows[first - top : last - top]
        return out

    def _row_of_tiles(self, number: int) -> NDArray[Any]:
        if self._kept is not None and self._kept[0] == number:
            return self._kept[1]
        self._kept = None
        rows = np.empty((min(self._tall, self.height - number * self._tall), *self.shape[1:]), self.dtype)
        across, down = math.ceil(self.width / self._wide), math.ceil(self.height / self._tall)
        planes = self.samples if self._by_plane else 1
        indices = [plane * down * across + number * across + k for plane in range(planes) for k in range(across)]
        try:
            for pixels, place in map_in_threads(self._decode, indices, threads=count_cores(), name="decode"):
                left = place[3]
                target = rows[: len(pixels), left : left + pixels.shape[1]]
                if self._by_plane:
                    target[..., place[0]] = pixels[..., 0]
                else:
                    target[...] = pixels.reshape(target.shape)
        except Exception as error:  # decoders raise many types on hostile bytes
            raise damaged(self._path, error) from error
        self._kept = (number, rows)
        return rows

    def _decode(self, index: int) -> tuple[NDArray[Any], tuple[int, ...]]:
        page = self._page
        with self._lock:
            self._file.seek(page.dataoffsets[index])
            content = self._file.read(page.databytecounts[index])
        more = {"jpegtables": page.jpegtables, "jpegheader": page.jpegheader} if int(page.compression) in _JPEG else {}
        pixels, place, _ = page.decode(content, index, _fullsize=page.is_tiled, **more)
        if pixels is None:
            raise ValueError("a tile without pixels")
        return pixels[0, : self.height - place[2], : self.width - place[3]], place
