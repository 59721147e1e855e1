"""A file's header: size and kind of its pixels, known and limited before any of them is decoded."""

import io
import logging
import math
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import tifffile
from PIL import BmpImagePlugin, Image, JpegImagePlugin, PngImagePlugin

from segmeter.checks import expected
from segmeter.data.files.npy import read_npy_header
from segmeter.data.files.sniff import check_format, damaged, open_regular, show
from segmeter.errors import DataError

logging.getLogger("tifffile").addHandler(logging.NullHandler())  # damage is refused in our own one line per file

MAX_PIXELS = 200_000_000  # 600 MB of RGB; the user may allow more
STREAMED_PIXELS = 1 << 26  # of the largest image that is decoded at once where rows can be read
SPARE_BYTES = 1 << 26  # that a file may take beside its pixels: profiles, thumbnails, notes of other tools
Kind = Literal["gray", "gray+alpha", "palette", "rgb", "rgba", "cmyk", "array"]

# The plug-ins themselves: only these formats can be parsed, and our limit replaces Pillow's, which is a global.
_PLUGINS: dict[str, Any] = {
    "png": PngImagePlugin.PngImageFile,
    "jpeg": JpegImagePlugin.JpegImageFile,
    "bmp": BmpImagePlugin.BmpImageFile,
}
_MODES: dict[str, tuple[Kind, int]] = {
    "1": ("gray", 1),
    "L": ("gray", 1),
    "I;16": ("gray", 1),
    "LA": ("gray+alpha", 2),
    "P": ("palette", 1),
    "RGB": ("rgb", 3),
    "RGBA": ("rgba", 4),
    "CMYK": ("cmyk", 4),
}
# Compression tags of JPEG, JPEG 2000, JPEG XR, JPEG XL, WebP and JetRaw: files that are exact do not say so
LOSSY_TIFF = {6, 7, 33003, 33004, 33005, 33007, 34712, 34892, 34927, 50001, 22610, 34934, 48124, 50002, 52546}
_ORIENTATION = 0x0112
_MOST_BYTES = 1 << 62  # of a file
_LEAST_OFFSET = 8  # of a TIFF's pixels, behind its head; tifffile takes 0 for a strip of zeros that was left out
_NODATA = 42113  # GDAL's tag
_PNG_HEAD = 26  # signature, IHDR length and name, width, height, bit depth, colour type


@dataclass(frozen=True, kw_only=True)
class Header:
    """What a file says about its pixels.

    `bits` is the depth of one stored sample, `dtype` what decoding gives; `channels` counts alpha;
    `orientation` is the EXIF tag, 1 when upright; `levels` counts those of a pyramid, of which this is one; `nodata` is
    what pixels without data hold, None where the file does not say.
    """

    format: str
    height: int
    width: int
    channels: int
    kind: Kind
    bits: int
    dtype: np.dtype[Any]
    lossy: bool = False
    orientation: int = 1
    levels: int = 1
    nodata: float | str | None = None

    @property
    def streamed(self) -> bool:
        """Whether it is read by rows wherever that is supported: Zarr, and large TIFF files."""
        return self.format == "zarr" or (self.format == "tiff" and self.height * self.width > STREAMED_PIXELS)


def read_header(path: Path, *, max_pixels: int = MAX_PIXELS, level: int = 0, streams: bool = False) -> Header:
    """Read the header of an image or mask.

    Parameters
    ----------
    path
        A PNG, JPEG, BMP, TIFF or NPY file.
    max_pixels
        The largest height x width that is accepted.
    level
        Which level of a pyramid, 0 being the finest; other files have that alone.
    streams
        Whether files that are read by rows may be larger.

    Raises
    ------
    DataError
        The file is not one of these, is damaged, holds several pictures, or is larger than allowed.
    """
    with open_regular(path) as file:
        form = check_format(path, file)
        return parse_header(path, file, form=form, max_pixels=max_pixels, level=level, streams=streams)


def parse_header(
    path: Path, file: IO[bytes], *, form: str, max_pixels: int, level: int = 0, streams: bool = False
) -> Header:
    """Read the header from an open file as `read_header` does; `path` only names it in messages."""
    try:
        if form == "tiff":
            header = _tiff_header(path, file, level)
        else:
            header = _npy_header(path, file) if form == "npy" else _pillow_header(path, file, form)
    except DataError:
        raise
    except Exception as error:  # third-party parsers raise many types on hostile bytes
        raise damaged(path, error) from error
    check_pixel_count(path, header, max_pixels, streams=streams)
    return header


def open_picture(form: str, file: IO[bytes]) -> Any:
    """Open a PNG, JPEG or BMP with that format's own plug-in."""
    return _PLUGINS[form](file)


def exif_orientation(picture: Any) -> int:
    """The EXIF orientation as far as `picture` was read; a PNG's own getexif would decode all of it."""
    return int(Image.Image.getexif(picture).get(_ORIENTATION, 1))


def check_file_size(path: Path, file: IO[bytes], most: int, remedy: str) -> None:
    """Refuse an open file whose bytes are far more than its pixels can need, before they are read."""
    check_size(path, os.fstat(file.fileno()).st_size, most, remedy)


def check_size(path: Path, found: int, most: int, remedy: str) -> None:
    """Refuse a file of so many bytes, see `check_file_size`."""
    allowed = most + SPARE_BYTES
    if found > allowed:
        raise DataError(expected(show(path), "file", f"of at most {allowed} bytes", f"{found}", remedy))


def check_pixel_count(path: Path, header: Header, max_pixels: int, *, streams: bool = False) -> None:
    """Refuse an image without pixels, and one of too many; with `streams` not one that is read by rows."""
    size = f"{header.height} x {header.width}"
    if min(header.height, header.width, header.channels) < 1:
        raise DataError(expected(show(path), "size", "to be at least 1 x 1 pixels", f"{size} (height x width)"))
    if header.height * header.width > max_pixels and not (streams and header.streamed):
        remedy = f"If it is genuine, set data.max_pixels={header.height * header.width} or cut it into tiles."
        raise DataError(
            expected(show(path), "size", f"at most {max_pixels} pixels", f"{size} (height x width)", remedy)
        )


def _pillow_header(path: Path, file: IO[bytes], form: str) -> Header:
    head = file.read(_PNG_HEAD)
    file.seek(0)
    with open_picture(form, file) as picture:
        if getattr(picture, "is_animated", False):
            found = f"{picture.n_frames} frames"
            raise DataError(expected(show(path), "file", "to hold one picture", found, "Save one frame per file."))
        if picture.mode not in _MODES:
            raise DataError(
                expected(show(path), "mode", f"to be one of {', '.join(_MODES)}", picture.mode, "Save it as PNG.")
            )
        kind, channels = _MODES[picture.mode]
        bits = head[24] if form == "png" else 8
        return Header(
            format=form,
            height=picture.height,
            width=picture.width,
            channels=channels,
            kind=kind,
            bits=bits,
            dtype=np.dtype(np.uint16 if bits == 16 else np.uint8),
            lossy=form == "jpeg",
            orientation=exif_orientation(picture),
        )


def open_tiff(file: IO[bytes]) -> Any:
    """Open a TIFF file by tifffile, which goes round without end where a page's successor is an earlier page.

    Raises
    ------
    ValueError
        The pages do so.
    """
    head = file.read(16).ljust(16, b"\0")
    order, wide = "<" if head.startswith(b"II") else ">", head[2:4] in (b"+\0", b"\0+")
    number, link, entry = ("Q", "Q", 20) if wide else ("H", "I", 12)
    (at,) = struct.unpack_from(order + link, head, 8 if wide else 4)
    seen: set[int] = set()
    while at:
        if at in seen:
            raise ValueError("its pages lead back to an earlier one")
        seen.add(at)
        at = _following(file, at, order + number, order + link, entry)
    file.seek(0)
    return tifffile.TiffFile(file)


def _following(file: IO[bytes], at: int, number: str, link: str, entry: int) -> int:
    """Where the page after the one at `at` starts; 0 where the file ends before it says so."""
    size = struct.calcsize(number)
    file.seek(min(at, _MOST_BYTES))
    count = file.read(size)
    if len(count) < size:
        return 0
    file.seek(min(at + size + entry * struct.unpack(number, count)[0], _MOST_BYTES))
    found = file.read(struct.calcsize(link))
    return struct.unpack(link, found)[0] if len(found) == struct.calcsize(link) else 0


def _tiff_header(path: Path, file: IO[bytes], level: int) -> Header:
    with open_tiff(file) as tiff:
        page, levels = pick_page(path, tiff, level)
        shape = (page.imagelength, page.imagewidth, page.samplesperpixel)
        if page.imagedepth != 1:
            raise DataError(expected(show(path), "file", "to hold one 2-D picture", f"{page.imagedepth} planes"))
        check_strips(page, file)
        return Header(
            format="tiff",
            height=shape[0],
            width=shape[1],
            channels=shape[2],
            kind=_tiff_kind(path, page),
            bits=page.bitspersample,
            dtype=np.dtype(page.dtype).newbyteorder("="),
            lossy=int(page.compression) in LOSSY_TIFF,
            orientation=int(page.tags.valueof(274, 1)),
            levels=levels,
            nodata=read_nodata(tiff.pages.first),
        )


def read_nodata(page: Any) -> float | str | None:
    """The value of pixels without data that a TIFF page names, or its text where that is no number; None without one.

    Images do without it, and `check_nodata` refuses such a text where it decides what is counted.
    """
    text = page.tags.valueof(_NODATA)
    if text is None:
        return None
    try:
        value = float(str(text).strip("\0 "))
    except ValueError:
        return str(text).strip("\0 ")
    return None if math.isnan(value) else value


def pick_page(path: Path, tiff: Any, level: int) -> tuple[Any, int]:
    """The page of a level of the only picture, and how many levels it has; one without a pyramid gives its only page.

    Raises
    ------
    DataError
        The file holds several pictures, or has no such level.
    """
    first = tiff.pages.first
    if len(tiff.pages) == 1 and not first.subifds:
        return first, 1
    levels = tiff.series[0].levels
    if len(levels) == 1 or any(len(one.pages) != 1 for one in levels):
        remedy = "Save each page as its own file (channels belong into one page, as samples)."
        raise DataError(expected(show(path), "file", "to hold one page", f"{len(tiff.pages)} pages", remedy))
    if level >= len(levels):
        sizes = ", ".join(f"{number}: {_extent(one.keyframe)}" for number, one in enumerate(levels))
        remedy = f"Set data.level to 0 .. {len(levels) - 1} ({sizes})."
        raise DataError(expected(show(path), "data.level", "to be a level of the pyramid", level, remedy))
    return levels[level].keyframe, len(levels)


def _extent(page: Any) -> str:
    return f"{page.imagelength} x {page.imagewidth}"


def check_strips(page: Any, file: IO[bytes]) -> None:
    """Refuse strips that lie outside the file or are not in it: decoding would fill them with zeros."""
    end = file.seek(0, io.SEEK_END)
    spans = list(zip(page.dataoffsets, page.databytecounts, strict=True))
    if (0, 0) in spans:
        raise ValueError("tiles are left out of a sparse TIFF: write all of them, GDAL with SPARSE_OK=FALSE")
    if any(count == 0 or offset < _LEAST_OFFSET or offset + count > end for offset, count in spans):
        raise ValueError("the file ends before its pixels do, or has its own head for pixels")


def _tiff_kind(path: Path, page: Any) -> Kind:
    name = getattr(page.photometric, "name", str(page.photometric))
    if page.dtype is None or name not in {"MINISBLACK", "RGB", "PALETTE", "YCBCR", "SEPARATED"}:
        rule = "to be MINISBLACK, RGB or PALETTE with whole samples"
        raise DataError(expected(show(path), "photometric", rule, f"{name}, {page.dtype}", "Save it as PNG."))
    if name == "SEPARATED":
        return "cmyk"
    if name == "PALETTE":
        return "palette"
    by_channels: dict[int, Kind] = {1: "gray", 3: "rgb"}
    return by_channels.get(page.samplesperpixel, "array")


def _npy_header(path: Path, file: IO[bytes]) -> Header:
    shape, _, dtype = read_npy_header(path, file)
    if dtype.hasobject:
        raise DataError(expected(show(path), "dtype", "to be numbers", "Python objects", "Save a plain numeric array."))
    if len(shape) not in (2, 3):
        raise DataError(expected(show(path), "shape", "(height, width) or (height, width, channels)", shape))
    start, end = file.tell(), file.seek(0, io.SEEK_END)
    if end - start != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{end - start} bytes of pixels, where the header says {math.prod(shape) * dtype.itemsize}")
    return Header(
        format="npy",
        height=shape[0],
        width=shape[1],
        channels=shape[2] if len(shape) == 3 else 1,
        kind="array",
        bits=dtype.itemsize * 8,
        dtype=dtype.newbyteorder("="),
    )
