"""Reads the samples of plain label PNGs several times faster than a general decoder; `pictures` reads all others.

A label map is one zlib stream of filtered rows. libdeflate inflates it and verifies its checksum, into a buffer whose
size the header fixes; the CRC of every chunk is checked first. Anything unusual gives None, so that Pillow decides.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import imagecodecs
import numpy as np
from numpy.typing import NDArray

_inflate: Callable[..., Any] = imagecodecs.deflate_decode  # of libdeflate; they take any buffer,
_crc32: Callable[..., int] = imagecodecs.deflate_crc32  # which their types do not say
SIGNATURE = b"\x89PNG\r\n\x1a\n"
_chunk_start = struct.Struct(">I4s").unpack_from  # length and name
_number = struct.Struct(">I").unpack_from
_head = struct.Struct(">8s8sIIBBBBB").unpack_from  # signature, start of the first chunk, what this holds
# Chunks that change no sample, and the least bytes of each that Pillow accepts. Texts may hold an orientation.
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
    channels: Literal[1] = 1

    @property
    def row_bytes(self) -> int:
        """Bytes of a row, without the number of its filter."""
        return (self.width * self.bits + 7) // 8


def read_layout(head: bytes | memoryview) -> PngLayout | None:
    """Read the first 33 bytes of a PNG; None if it is not one plain channel, or interlaced."""
    if len(head) < 33:
        return None
    signature, start, width, height, bits, colour, *others = _head(head)
    if signature != SIGNATURE or start != b"\0\0\0\rIHDR":
        return None
    if bits not in _DEPTHS.get(colour, ()) or any(others) or not width or not height:
        return None
    return PngLayout(height, width, bits, colour == _PALETTE)


def decode_samples(content: bytes | memoryview, *, max_pixels: int) -> NDArray[np.uint8] | NDArray[np.uint16] | None:
    """Decode the samples as stored: gray levels or palette indices, never stretched.

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
    return None if layout is None else _decode(content, layout, max_pixels=max_pixels)


def _decode(content: bytes | memoryview, layout: PngLayout, *, max_pixels: int) -> NDArray[Any] | None:
    parts = _collect(content, layout) if layout.height * layout.width <= max_pixels else None
    if parts is None:
        return None
    rows = np.empty(layout.height * (1 + layout.row_bytes), np.uint8)
    try:
        inflated = len(_inflate(parts[0] if len(parts) == 1 else b"".join(parts), out=rows.data))
    except (RuntimeError, ValueError):  # imagecodecs.DeflateError is a RuntimeError
        return None
    return _unpack(rows, layout) if inflated == len(rows) else None


def _collect(content: bytes | memoryview, layout: PngLayout) -> list[memoryview] | None:
    """Return the bodies of the IDAT chunks if all chunks are intact, known and in order."""
    data, palettes, after = list[memoryview](), 0, False
    for name, body in _split(content):
        if name == b"IDAT":
            if after:
                return None
            data.append(body)
            continue
        after = bool(data)
        if name == b"IEND":
            return data if after and palettes == layout.is_palette and not body else None
        if name == b"PLTE" and not after:
            palettes += 1
            if not 0 < len(body) <= 768 or len(body) % 3:
                return None
        elif not _is_harmless(name, body, layout):
            return None
    return None


def _split(content: bytes | memoryview) -> Iterator[tuple[bytes, memoryview]]:
    """Yield name and body of every chunk after the first, up to a damaged one; IEND only at the end of the file."""
    view, size, at = memoryview(content), len(content), len(SIGNATURE)
    while at + 12 <= size:
        length, name = _chunk_start(content, at)
        end = at + 8 + length
        if end + 4 > size or _crc32(view[at + 4 : end]) != _number(content, end)[0]:
            return
        if name == b"IEND" and end + 4 != size:
            return
        if at > len(SIGNATURE):
            yield name, view[at + 8 : end]
        at = end + 4


def _is_harmless(name: bytes, body: memoryview, layout: PngLayout) -> bool:
    """Whether a chunk changes no sample and Pillow accepts it."""
    if name == b"tRNS":
        return (1 if layout.is_palette else 2) <= len(body) <= 256
    return len(body) >= LEAST_BYTES.get(name, len(body) + 1)


def _unpack(stream: NDArray[np.uint8], layout: PngLayout) -> NDArray[Any] | None:
    from segmeter.data.files.png_rows import undo_filters  # numba takes a moment to load

    height, width = layout.height, layout.row_bytes
    samples = np.empty(height * width, np.uint8)
    if not undo_filters(stream, samples, height, width, max(1, layout.bits // 8)):
        return None
    rows = samples.reshape(height, width)
    if layout.bits == 16:
        return rows.view(">u2").astype(np.uint16)
    if layout.bits == 8:
        return rows
    return _split_bits(rows, layout)


def _split_bits(rows: NDArray[np.uint8], layout: PngLayout) -> NDArray[np.uint8]:
    """Unpack samples of 1, 2 or 4 bits, the leftmost in the high bits."""
    shifts = np.arange(8 - layout.bits, -1, -layout.bits, dtype=np.uint8)
    samples = (rows[:, :, None] >> shifts) & np.uint8(2**layout.bits - 1)
    return np.ascontiguousarray(samples.reshape(layout.height, -1)[:, : layout.width])
