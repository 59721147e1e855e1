"""Reads PNG, JPEG and BMP files with Pillow, and plain label PNGs several times faster than a general decoder.

A label PNG is one zlib stream of filtered rows. First the CRC of every chunk is checked. Then libdeflate inflates the
stream into a buffer whose size follows from the header, and verifies its checksum. Anything unusual is left to Pillow.
"""

import hashlib
import io
import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from io import BufferedReader
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
from numpy.typing import NDArray
from PIL import BmpImagePlugin, Image, JpegImagePlugin, PngImagePlugin

from segmeter.data.files.array import FileArray, Header, Kind, Opening, check_pixel_count
from segmeter.data.files.refusals import HEAD_BYTES, check_size, damage_named, file_error

# Both are functions of libdeflate. Their type hints are too narrow: they take any buffer.
_inflate: Callable[..., Any] = imagecodecs.deflate_decode
_crc32: Callable[..., int] = imagecodecs.deflate_crc32
SIGNATURE = b"\x89PNG\r\n\x1a\n"
_chunk_start = struct.Struct(">I4s").unpack_from  # length and name
_number = struct.Struct(">I").unpack_from
_head = struct.Struct(">8s8sIIBBBBB").unpack_from  # signature, start of the first chunk (IHDR), and its content
# Chunks that change no sample, and the fewest bytes of each that Pillow accepts. Text chunks aren't among them, because
# they may hold an orientation.
LEAST_BYTES = {b"gAMA": 4, b"cHRM": 32, b"sRGB": 1, b"pHYs": 9, b"tIME": 0, b"bKGD": 0, b"sBIT": 0}
_GRAY, _PALETTE = 0, 3
_DEPTHS = {_GRAY: (1, 2, 4, 8, 16), _PALETTE: (1, 2, 4, 8)}


@dataclass(frozen=True)
class PngLayout:
    """The header of a one-channel PNG."""

    height: int
    width: int
    bits: int
    is_palette: bool

    @property
    def row_bytes(self) -> int:
        """Bytes of a row, without the byte that names its filter."""
        return (self.width * self.bits + 7) // 8


def read_layout(head: bytes | memoryview) -> PngLayout | None:
    """Read the first 33 bytes of a PNG; None unless it has one plain channel and is not interlaced."""
    if len(head) < 33:
        return None
    signature, start, width, height, bits, colour, *methods = _head(head)
    if signature != SIGNATURE or start != b"\0\0\0\rIHDR":
        return None
    if bits not in _DEPTHS.get(colour, ()) or any(methods) or not width or not height:
        return None
    return PngLayout(height, width, bits, colour == _PALETTE)


def decode_samples(content: bytes | memoryview, *, max_pixels: int) -> NDArray[np.uint8] | NDArray[np.uint16] | None:
    """Decode the samples as they are stored: gray levels or palette indices, never stretched.

    Parameters
    ----------
    content
        The whole file.
    max_pixels
        The largest height x width, checked before anything is inflated.

    Returns
    -------
    (H, W) uint8, or uint16 for 16 bits; None if the file is another kind of PNG, too large or damaged.
    """
    layout = read_layout(content)
    if layout is None or layout.height * layout.width > max_pixels:
        return None
    rows = np.empty(layout.height * (1 + layout.row_bytes), np.uint8)
    try:
        data = _collect(content, layout)
        inflated = len(_inflate(data[0] if len(data) == 1 else b"".join(data), out=rows.data))
    except (RuntimeError, ValueError):  # imagecodecs.DeflateError is a RuntimeError
        return None
    return _unpack(rows, layout) if inflated == len(rows) else None


def _collect(content: bytes | memoryview, layout: PngLayout) -> list[memoryview]:
    """Return the bodies of the IDAT chunks; ValueError unless all chunks are intact, known and in order."""
    names, bodies = zip(*split_chunks(content), strict=True)
    start = names.index(b"IDAT")
    stop = start + names.count(b"IDAT")
    before, after = names[1:start], names[stop:-1]
    in_order = b"IDAT" not in after and b"PLTE" not in after and before.count(b"PLTE") == layout.is_palette
    ends = not bodies[-1] and len(SIGNATURE) + 12 * len(bodies) + sum(map(len, bodies)) == len(content)
    others = zip(before + after, bodies[1:start] + bodies[stop:-1], strict=True)
    if not in_order or not ends or not all(_is_harmless(name, len(body), layout) for name, body in others):
        raise ValueError("an unusual PNG")
    return list(bodies[start:stop])


def split_chunks(content: bytes | memoryview) -> Iterator[tuple[bytes, memoryview]]:
    """Yield the name and body of every chunk up to IEND; ValueError if one is damaged, or if there is no IEND."""
    view = memoryview(content)
    start = len(SIGNATURE)
    while start + 12 <= len(content):
        length, name = _chunk_start(content, start)
        end = start + 8 + length
        if end + 4 > len(content):
            break
        if _crc32(view[start + 4 : end]) != _number(content, end)[0]:
            raise ValueError(f"checksum of the chunk at byte {start} does not fit")
        yield name, view[start + 8 : end]
        if name == b"IEND":
            return
        start = end + 4
    raise ValueError("the file ends before its IEND chunk")


def _is_harmless(name: bytes, size: int, layout: PngLayout) -> bool:
    """Tell whether a chunk changes no sample and Pillow accepts it."""
    if name == b"PLTE":
        return 0 < size <= 768 and size % 3 == 0
    if name == b"tRNS":
        return (1 if layout.is_palette else 2) <= size <= 256
    return size >= LEAST_BYTES.get(name, size + 1)


def _unpack(stream: NDArray[np.uint8], layout: PngLayout) -> NDArray[Any] | None:
    from segmeter.data.files.png_rows import undo_filters  # numba takes a moment to load

    samples = np.empty(layout.height * layout.row_bytes, np.uint8)
    if not undo_filters(stream, samples, layout.height, layout.row_bytes, max(1, layout.bits // 8)):
        return None
    rows = samples.reshape(layout.height, layout.row_bytes)
    if layout.bits == 16:
        return rows.view(">u2").astype(np.uint16)
    if layout.bits == 8:
        return rows
    shifts = np.arange(8 - layout.bits, -1, -layout.bits, dtype=np.uint8)  # the leftmost sample is in the high bits
    unpacked = (rows[:, :, None] >> shifts) & np.uint8(2**layout.bits - 1)
    return np.ascontiguousarray(unpacked.reshape(layout.height, -1)[:, : layout.width])


# Pillow reads the first masks, because it needs less time for this many pixels than loading the compiled reader takes.
PLAIN_PIXELS = 20_000_000
LEAST = 1 << 14  # Opening a mask takes as long as decoding this many pixels, so smaller masks count as this many.
_by_pillow = 0  # Pixels that Pillow has read. The count is approximate: threads update it without a lock.
# Calling the plug-ins directly parses only these formats, and our limit of pixels replaces Pillow's global one.
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
_ORIENTATION = 0x0112


class PictureArray(FileArray):
    """A PNG, JPEG or BMP file. Its bytes are read once, so the hash, the checks and the pixels belong together."""

    _file: BufferedReader

    def __init__(self, path: Path, file: BufferedReader, form: str, opening: Opening) -> None:
        super().__init__(path, file)
        self._form = form
        self._opening = opening
        self._head = file.peek()
        if len(self._head) < HEAD_BYTES:  # it is the whole file
            self.content = self._head
        self._layout = layout = read_layout(self._head)
        if layout is None:
            header = self.header
            self._size = (header.height, header.width)
            self._bytes_per_pixel = header.channels * max(1, header.bits // 8)
        else:  # a PNG of one channel, like most masks
            self._size = (layout.height, layout.width)
            self._bytes_per_pixel = max(1, layout.bits // 8)
            check_pixel_count(path, self._size, opening)

    @property
    def is_palette(self) -> bool:
        return self.header.kind == "palette" if self._layout is None else self._layout.is_palette

    @cached_property
    def header(self) -> Header:  # type: ignore[override]
        """The size and kind of the pixels, read by Pillow."""
        with damage_named(self.path), self._open() as picture:
            if getattr(picture, "is_animated", False):
                frames = f"{picture.n_frames} frames"
                raise file_error(self.path, "file", "to hold one picture", frames, "Save one frame per file.")
            if picture.mode not in _MODES:
                rule = f"to be one of {', '.join(_MODES)}"
                raise file_error(self.path, "mode", rule, picture.mode, "Save it as PNG.")
            kind, channels = _MODES[picture.mode]
            bits = self._head[24] if self._form == "png" else 8
            header = Header(
                format=self._form,
                height=picture.height,
                width=picture.width,
                channels=channels,
                kind=kind,
                bits=bits,
                dtype=np.dtype(np.uint16 if bits == 16 else np.uint8),
                lossy=self._form == "jpeg",
                orientation=_orientation(picture),
            )
        check_pixel_count(self.path, (header.height, header.width), self._opening)
        return header

    @cached_property
    def content(self) -> bytes:
        """The whole file; refused if it is far larger than its pixels."""
        height, width = self._size
        size = os.fstat(self._file.fileno()).st_size
        remedy = f"Its {height} x {width} pixels need less: save it again."
        check_size(self.path, size, 2 * height * width * self._bytes_per_pixel, remedy)
        self._file.seek(0)
        return self._file.read()

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    def samples_if_fast(self) -> NDArray[Any] | None:
        """Return the stored samples of a plain label PNG, several times faster than `read` does.

        None stands for other files, and for the first `PLAIN_PIXELS` of a process, which are counted here: call `read`.
        """
        global _by_pillow
        pixels = max(LEAST, self._size[0] * self._size[1])
        if self._form != "png" or _by_pillow + pixels <= PLAIN_PIXELS:
            _by_pillow += pixels
            return None
        return decode_samples(self.content, max_pixels=self._opening.max_pixels)

    def _decode(self) -> NDArray[Any]:
        """Return the stored samples. Pillow stretches 2 and 4-bit gray to 0..255, which is undone exactly."""
        header = self.header
        pixels = np.asarray(self._loaded())
        if header.kind == "gray" and header.format == "png" and header.bits in (2, 4):
            pixels = pixels // np.uint8(85 if header.bits == 2 else 17)
        return pixels

    def read_colours(self, channels: int | None) -> NDArray[Any]:
        """Drop an alpha channel that is opaque everywhere, and replace palette indices by their colours."""
        with damage_named(self.path):
            picture = self._loaded()
            header = self.header
            has_alpha = header.kind in ("rgba", "gray+alpha")
            if channels == header.channels and has_alpha:
                return np.asarray(picture)
            opaque_mode = "L" if header.kind in ("gray", "gray+alpha") else "RGB"
            if has_alpha or "transparency" in picture.info:
                picture = picture.convert(opaque_mode + "A")
                if picture.getchannel("A").getextrema() != (255, 255):
                    remedy = "Flatten it onto the background you mean, or save it without alpha."
                    raise file_error(self.path, "image", "to be opaque", "transparent pixels", remedy)
                return np.asarray(picture.convert(opaque_mode))
            return np.asarray(picture.convert(opaque_mode) if header.kind == "palette" else picture)

    def _loaded(self) -> Any:
        """Check every byte, and return the decoded picture."""
        if self._form == "png":
            for _ in split_chunks(self.content):  # Pillow skips the checksums of the pixels
                pass
        with self._open() as picture:
            picture.load()
            orientation = _orientation(picture)
            if orientation != self.header.orientation:
                rule, remedy = "to stand before the pixels", "Turn the pixels themselves and clear the tag."
                raise file_error(self.path, "EXIF orientation", rule, f"{orientation}, after the pixels", remedy)
            return picture

    def _open(self) -> Any:
        """Open the file with the plug-in of its format, from memory if its bytes have been read."""
        content = self.__dict__.get("content")
        self._file.seek(0)
        return _PLUGINS[self._form](self._file if content is None else io.BytesIO(content))


def _orientation(picture: Any) -> int:
    """Return the EXIF orientation from what has been read of `picture`; a PNG's own getexif would decode all of it."""
    return int(Image.Image.getexif(picture).get(_ORIENTATION, 1))
