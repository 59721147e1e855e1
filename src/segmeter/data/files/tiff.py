"""Reads TIFF files: an image or pyramid level in lines or windows, and stacks of planes as a whole."""

import io
import logging
import math
import threading
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import tifffile
from numpy.typing import NDArray

from segmeter.data.files.array import ALL, FileArray, Header, Kind, Opening, array_header, check_pixel_count
from segmeter.data.files.geometry import Geometry
from segmeter.data.files.refusals import damage_named, file_error
from segmeter.data.files.tiff_geometry import DEPTH_AXES, read_nodata, repeatable_geometry, tiff_geometry
from segmeter.parallel import map_in_threads
from segmeter.threads import count_cores

logging.getLogger("tifffile").addHandler(logging.NullHandler())  # damage is refused in one line of ours per file

# Compressions JPEG, JPEG 2000, JPEG XR, JPEG XL, WebP and JetRaw, whose files don't say whether they are exact
_LOSSY = {6, 7, 33003, 33004, 33005, 33007, 34712, 34892, 34927, 50001, 22610, 34934, 48124, 50002, 52546}
_JPEG = (6, 7, 34892, 33007)  # compressions whose tables are stored once for all tiles
_ORIENTATION = 274
_LEAST_OFFSET = 8  # Pixels lie behind the head. With offset 0, tifffile assumes a strip of zeros that was left out.


def open_tiff_array(path: Path, file: IO[bytes], opening: Opening) -> FileArray:
    """Open an image, or for maps a stack of planes: pages, or an axis that OME or ImageJ metadata call Z."""
    _check_pages(file)
    tiff: Any = tifffile.TiffFile(file)
    if opening.axes == "image":
        return TiffArray(path, file, tiff, opening)
    pictures = [series for series in tiff.series if series.keyframe.shape]  # a page without tags is no picture
    if len(pictures) != 1:
        what = f"{len(pictures)} pictures of different kinds"
        raise file_error(path, "file", "to hold one picture or one stack", what, "Save each as its own file.")
    series = pictures[0]
    sizes = [(axis, size) for axis, size in zip(series.axes, series.shape, strict=True) if size != 1 or axis in "YX"]
    axes = "".join(axis for axis, _ in sizes)
    shape = tuple(size for _, size in sizes)
    if axes in ("YX", "YXS", "SYX"):
        return TiffArray(path, file, tiff, opening)
    if axes[-2:] != "YX" or len(axes) != 3 or axes[0] not in DEPTH_AXES:
        stored = f"axes {series.axes} of {' x '.join(map(str, series.shape))}"
        remedy = "Save one file per channel or time, and planes as Z."
        raise file_error(path, "mask", "to have one channel", stored, remedy)
    header = array_header(path, "tiff", shape, np.dtype(series.dtype), opening)
    for page in series.pages:
        if page is None:
            raise ValueError("pages are missing")
        page = page.aspage()
        if int(page.compression) in _LOSSY:
            remedy = "Its values are blurred. Save it without loss."
            raise file_error(path, "mask", "to be stored exactly", "a lossy TIFF file", remedy)
        orientation = page.tags.valueof(_ORIENTATION, 1)
        if int(orientation) != 1:
            remedy = "Turn the pixels themselves and clear the tag."
            raise file_error(path, "EXIF orientation", "to be 1 (upright)", orientation, remedy)
        _check_strips(page, file)
    planes = lambda: (np.asarray(page.asarray())[None] for page in series.pages)  # noqa: E731
    pages = planes if len(series.pages) == shape[0] else None  # ImageJ's large stacks have one page
    return FileArray(path, file, header, tiff_geometry(path, tiff, axes), lambda: np.asarray(series.asarray()), pages)


class TiffArray(FileArray):
    """The only image of a file, or one level of its pyramid. The row of tiles that was read last is kept."""

    def __init__(self, path: Path, file: IO[bytes], tiff: Any, opening: Opening) -> None:
        super().__init__(path, file)
        self.tiff = tiff
        self._io = threading.Lock()
        page, levels = pick_page(path, tiff, opening.level)
        if page.imagedepth != 1:
            raise file_error(path, "file", "to hold one 2-D picture", f"{page.imagedepth} planes")
        _check_strips(page, file)
        self.page = page
        self.header = Header(
            format="tiff",
            height=page.imagelength,
            width=page.imagewidth,
            channels=page.samplesperpixel,
            kind=_kind(path, page, is_map=opening.axes != "image"),
            bits=page.bitspersample,
            dtype=np.dtype(page.dtype).newbyteorder("="),
            lossy=int(page.compression) in _LOSSY,
            orientation=int(page.tags.valueof(_ORIENTATION, 1)),
            levels=levels,
        )
        height, width = self.header.height, self.header.width
        check_pixel_count(path, (height, width), opening, streamed=self.header.streamed)
        tile_size = (page.tilelength, page.tilewidth) if page.is_tiled else (page.rowsperstrip, width)
        self._tile_height, self._tile_width = min(tile_size[0], height), tile_size[1]
        if self._tile_height * self._tile_width > max(opening.max_pixels, height * width * (not opening.streams)):
            size = f"{self._tile_height} x {self._tile_width}"
            remedy = "Save it in tiles: it is read by rows, and a strip or tile is decoded at once."
            raise file_error(path, "tiles", f"of at most {opening.max_pixels} pixels", size, remedy)
        self._has_planes = page.samplesperpixel > 1 and page.planarconfig == tifffile.PLANARCONFIG.SEPARATE
        self._row = -1
        self._row_tiles: dict[int, NDArray[Any]] = {}

    @cached_property
    def geometry(self) -> Geometry:  # type: ignore[override]
        with damage_named(self.path):
            return tiff_geometry(self.path, self.tiff, "YX")

    @property
    def repeatable(self) -> Geometry:
        return repeatable_geometry(self.path, self.tiff, self.page)

    @property
    def nodata(self) -> float | str | None:  # type: ignore[override]
        return read_nodata(self.tiff.pages.first)

    def _decode(self) -> NDArray[Any]:
        pixels = np.asarray(self.page.asarray())
        return (np.moveaxis(pixels, 0, -1) if self._has_planes else pixels).astype(self.dtype, copy=False)

    def _lines(self, start: int, stop: int, columns: slice) -> NDArray[Any]:
        header = self.header
        if (start, stop, columns) == (0, header.height, ALL):
            return self._whole
        left, right, _ = columns.indices(header.width)
        height, width = self._tile_height, self._tile_width
        across, down = math.ceil(header.width / width), math.ceil(header.height / height)
        planes = header.channels if self._has_planes else 1
        pixels = np.empty((stop - start, right - left, header.channels), header.dtype)
        for row in range(start // height, (stop - 1) // height + 1):
            tile_columns = range(left // width, (right - 1) // width + 1)
            tiles = {(k, x): (k * down + row) * across + x for k in range(planes) for x in tile_columns}
            if row != self._row:
                self._row = row
                self._row_tiles = {}
            missing = [index for index in tiles.values() if index not in self._row_tiles]
            threads = min(count_cores(), len(missing))
            decoded = map_in_threads(self._tile, missing, threads=threads, name="decode") if threads > 1 else None
            self._row_tiles |= zip(missing, decoded or map(self._tile, missing), strict=True)
            for (plane, column), index in tiles.items():
                target = pixels[..., plane : plane + 1] if self._has_planes else pixels
                _place(target, self._row_tiles[index], row * height - start, column * width - left)
        return pixels if header.channels > 1 else pixels[..., 0]

    def _tile(self, index: int) -> NDArray[Any]:
        """Decode one tile or strip, (h, w, C), without the padding beyond the image."""
        page = self.page
        with self._io:
            self._file.seek(page.dataoffsets[index])  # type: ignore[union-attr]
            content = self._file.read(page.databytecounts[index])  # type: ignore[union-attr]
        tables = {"jpegtables": page.jpegtables, "jpegheader": page.keyframe.jpegheader}
        pixels, _, shape = page.decode(content, index, **(tables if int(page.compression) in _JPEG else {}))
        if pixels is None:
            raise ValueError(f"tile {index} has no pixels")
        tile: NDArray[Any] = pixels[0, : shape[1], : shape[2]]
        return tile


def _place(target: NDArray[Any], segment: NDArray[Any], top: int, left: int) -> None:
    """Copy the part of a segment inside the target; `top` and `left` are its position there and may be negative."""
    start, stop = max(top, 0), min(top + segment.shape[0], target.shape[0])
    first, last = max(left, 0), min(left + segment.shape[1], target.shape[1])
    target[start:stop, first:last] = segment[start - top : stop - top, first - left : last - left]


def _check_pages(file: IO[bytes]) -> None:
    """Refuse pages that lead back to an earlier one: tifffile drops those behind it, or follows them without end."""
    head = file.read(16).ljust(16, b"\0")
    # bytes of the number of entries, of a page's position and of an entry, which are more in BigTIFF
    number, link, entry = (8, 8, 20) if head[2:4] in (b"+\0", b"\0+") else (2, 4, 12)
    order: Literal["little", "big"] = "little" if head.startswith(b"II") else "big"
    positions: set[int] = set()
    position = int.from_bytes(head[link : 2 * link], order)
    while position:
        if position in positions:
            raise ValueError("its pages lead back to an earlier one")
        positions.add(position)
        file.seek(position)
        file.seek(entry * int.from_bytes(file.read(number), order), io.SEEK_CUR)
        next_link = file.read(link)
        position = int.from_bytes(next_link, order) if len(next_link) == link else 0  # 0: the file ends here
    file.seek(0)


def pick_page(path: Path, tiff: Any, level: int) -> tuple[Any, int]:
    """Return the page of one level of the only image, and its number of levels.

    Masks and smaller pictures beside a pyramid, such as the label of a slide, are not read.

    Raises
    ------
    DataError
        The file holds several images, or has no such level.
    """
    first = tiff.pages.first
    if len(tiff.pages) == 1 and not first.subifds:
        return first, 1
    levels = tiff.series[0].levels
    if len(levels) == 1 or any(len(series.pages) != 1 for series in levels):
        remedy = "Save each page as its own file (channels belong into one page, as samples)."
        raise file_error(path, "file", "to hold one page", f"{len(tiff.pages)} pages", remedy)
    pixels = levels[0].keyframe.imagelength * levels[0].keyframe.imagewidth
    for other in (series.keyframe for series in tiff.series[1:]):
        if not other.is_mask and other.imagelength * other.imagewidth >= pixels:
            what = f"another one of {other.imagelength} x {other.imagewidth}"
            raise file_error(path, "file", "to hold one image", what, "Save each as its own file.")
    if level >= len(levels):
        pages = enumerate(series.keyframe for series in levels)
        sizes = (f"{number}: {page.imagelength} x {page.imagewidth}" for number, page in pages)
        remedy = f"Set data.level to 0 .. {len(levels) - 1} ({', '.join(sizes)})."
        raise file_error(path, "data.level", "to be a level of the pyramid", level, remedy)
    return levels[level].keyframe, len(levels)


def _check_strips(page: Any, file: IO[bytes]) -> None:
    """Refuse strips that are missing or outside the file, because decoding would fill them with zeros."""
    end = file.seek(0, io.SEEK_END)
    spans = list(zip(page.dataoffsets, page.databytecounts, strict=True))
    if (0, 0) in spans:
        raise ValueError("tiles are left out of a sparse TIFF: write all of them, GDAL with SPARSE_OK=FALSE")
    if any(count == 0 or offset < _LEAST_OFFSET or offset + count > end for offset, count in spans):
        raise ValueError("the file ends before its pixels do, or has its own head for pixels")


def _kind(path: Path, page: Any, *, is_map: bool) -> Kind:
    """Return the kind of the samples. Samples of a map are values, however a viewer would show them."""
    name = getattr(page.photometric, "name", str(page.photometric))
    if is_map and page.samplesperpixel == 1 and name != "PALETTE" and page.dtype is not None:
        return "gray"
    by_name: dict[str, Kind] = {"SEPARATED": "cmyk", "PALETTE": "palette"}
    if page.dtype is None or name not in {"MINISBLACK", "RGB", "YCBCR", *by_name}:
        rule = "to be MINISBLACK, RGB or PALETTE with whole samples"
        raise file_error(path, "photometric", rule, f"{name}, {page.dtype}", "Save it as PNG.")
    by_channels: dict[int, Kind] = {1: "gray", 3: "rgb"}
    return by_name.get(name) or by_channels.get(page.samplesperpixel, "array")
