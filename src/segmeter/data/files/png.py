"""PNG bytes -> the stored samples of one channel, several times faster than a general decoder; the rest is Pillow's.

A label map is one zlib stream of filtered rows. It is inflated by libdeflate, which checks its Adler sum, into a buffer
whose size the header fixes; every chunk's CRC is checked before. Whatever is not plainly in order gives None, so that
Pillow decides about it: nothing is accepted here that Pillow would refuse.
"""

import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import imagecodecs
import numpy as np
from numpy.typing import NDArray

_inflate: Callable[..., Any] = imagecodecs.deflate_decode  # of libdeflate; they take any buffer,
_crc32: Callable[..., int] = imagecodecs.deflate_crc32  # which their types do not say
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_LEAST_BYTES = {
    b"gAMA": 4,
    b"cHRM": 32,
    b"sRGB": 1,
    b"pHYs": 9,
    b"tIME": 0,
    b"bKGD": 0,
    b"sBIT": 0,
}  # that Pillow takes
# Texts that say nothing about the pixels. Others may: "Raw profile type exif" holds an orientation.
_KEYWORDS = (b"Title", b"Author", b"Description", b"Copyright", b"Creation Time", b"Software", b"Source", b"Comment")
_MOST_TEXT = 1 << 16  # bytes
_KEPT_BYTES = 1 << 23
_MAPS = ("target", "labels")  # of a case


class _Local(threading.local):
    """What each thread keeps: memory by its use, and which of it is free for samples."""

    def __init__(self) -> None:
        self.kept: dict[str, NDArray[np.uint8]] = {}
        self.free: list[str] = []


_LOCAL = _Local()
_GRAY, _PALETTE = 0, 3
_DEPTHS = {_GRAY: (1, 2, 4, 8, 16), _PALETTE: (1, 2, 4, 8)}


@dataclass(frozen=True)
class PngLayout:
    """What the header of a one-channel PNG says."""

    height: int
    width: int
    bits: int
    is_palette: bool
    channels: Literal[1] = 1

    @property
    def row_bytes(self) -> int:
        """Bytes of a row, without its filter's number."""
        return (self.width * self.bits + 7) // 8


def read_layout(head: bytes) -> PngLayout | None:
    """Read the first 33 bytes of a PNG; None where it is not one plain channel, not interlaced."""
    if len(head) < 33 or head[:8] != _SIGNATURE or head[8:16] != b"\0\0\0\rIHDR":
        return None
    width, height, bits, colour, compression, filtering, interlace = struct.unpack(">IIBBBBB", head[16:29])
    if bits not in _DEPTHS.get(colour, ()) or compression or filtering or interlace or not width or not height:
        return None
    return PngLayout(height, width, bits, colour == _PALETTE)


def decode_samples(content: bytes, *, max_pixels: int) -> NDArray[np.uint8] | NDArray[np.uint16] | None:
    """Decode the samples as they are stored: gray levels or palette indices, never stretched.

    Parameters
    ----------
    content
        The whole file.
    max_pixels
        The largest height x width, checked before anything is inflated.

    Returns
    -------
    (H, W) uint8, or uint16 for 16 bits; None where the file is another kind of PNG, too large or not in order.
    """
    layout = read_layout(content[:33])
    if layout is None or layout.height * layout.width > max_pixels:
        return None
    packed = _collect(content, layout)
    if packed is None:
        return None
    stream = _scratch("stream", layout.height * (1 + layout.row_bytes))
    try:
        if len(_inflate(packed, out=stream.data)) != len(stream):
            return None
    except (RuntimeError, ValueError):  # imagecodecs.DeflateError is a RuntimeError
        return None
    return _unpack(stream, layout)


@contextmanager
def memory_reused() -> Iterator[None]:
    """Give samples that this thread decodes in the block memory that its next block overwrites.

    For maps that nobody needs after the block: fresh pages cost as much as inflating and counting.
    """
    _LOCAL.free = list(_MAPS)
    try:
        yield
    finally:
        _LOCAL.free = []


def _allocate(size: int) -> NDArray[np.uint8]:
    return _scratch(_LOCAL.free.pop(), size) if _LOCAL.free else np.empty(size, np.uint8)


def _scratch(use: str, size: int) -> NDArray[np.uint8]:
    """Memory that each thread keeps, where it is small."""
    if size > _KEPT_BYTES:
        return np.empty(size, np.uint8)
    if use not in _LOCAL.kept:
        _LOCAL.kept[use] = np.empty(_KEPT_BYTES, np.uint8)
    return _LOCAL.kept[use][:size]


def _collect(content: bytes, layout: PngLayout) -> bytes | memoryview | None:
    """Join the IDAT chunks of a file whose chunks are all intact, known and in order."""
    chunks, data, palettes, text, after = _split(content), list[memoryview](), 0, 0, False
    if len(chunks) < 3 or chunks[0][0] != b"IHDR" or chunks[-1][0] != b"IEND":
        return None
    for name, body in chunks[1:-1]:
        if name == b"IDAT":
            if after:
                return None
            data.append(body)
            continue
        after = bool(data)
        if name == b"PLTE" and not after:
            palettes += 1
            if not 0 < len(body) <= 768 or len(body) % 3:
                return None
        elif not _is_harmless(name, body, layout):
            return None
        text += len(body) if name == b"tEXt" else 0
    if not data or palettes != layout.is_palette or text > _MOST_TEXT:
        return None
    return data[0] if len(data) == 1 else b"".join(data)


def _split(content: bytes) -> list[tuple[bytes, memoryview]]:
    """Name and body of every chunk; none where one of them is damaged, or the file does not end with the last."""
    view, chunks, at = memoryview(content), list[tuple[bytes, memoryview]](), len(_SIGNATURE)
    while at + 12 <= len(content):
        (length,) = struct.unpack_from(">I", content, at)
        end = at + 8 + length
        if end + 4 > len(content) or _crc32(view[at + 4 : end]) != struct.unpack_from(">I", content, end)[0]:
            return []
        chunks.append((content[at + 4 : at + 8], view[at + 8 : end]))
        at = end + 4
    return chunks if at == len(content) and not chunks[-1][1] else []


def _is_harmless(name: bytes, body: memoryview, layout: PngLayout) -> bool:
    """Tell whether a chunk changes no sample and is one that Pillow takes."""
    if name == b"tRNS":
        return (1 if layout.is_palette else 2) <= len(body) <= 256
    if name == b"tEXt":
        return bytes(body).partition(b"\0")[0] in _KEYWORDS
    return name in _LEAST_BYTES and len(body) >= _LEAST_BYTES[name]


def _unpack(stream: NDArray[np.uint8], layout: PngLayout) -> NDArray[np.uint8] | NDArray[np.uint16] | None:
    from segmeter.data.files._png_kernels import undo_filters  # numba takes a moment to load

    samples = _allocate(layout.height * layout.row_bytes)
    if not undo_filters(stream, samples, layout.height, layout.row_bytes, max(1, layout.bits // 8)):
        return None
    rows = samples.reshape(layout.height, layout.row_bytes)
    if layout.bits == 16:
        return rows.view(">u2").astype(np.uint16)
    if layout.bits == 8:
        return rows
    return _split_bits(rows, layout)


def _split_bits(rows: NDArray[np.uint8], layout: PngLayout) -> NDArray[np.uint8]:
    """Samples of 1, 2 or 4 bits, the leftmost in the high bits."""
    shifts = np.arange(8 - layout.bits, -1, -layout.bits, dtype=np.uint8)
    samples = (rows[:, :, None] >> shifts) & np.uint8(2**layout.bits - 1)
    return np.ascontiguousarray(samples.reshape(layout.height, -1)[:, : layout.width])
