"""Reads the samples of plain label PNGs several times faster than a general decoder; `pictures` reads all others.

A label map is one zlib stream of filtered rows. First the CRC of every chunk is checked. Then libdeflate inflates the
stream into a buffer whose size the header fixes, and verifies its checksum. Anything unusual gives None, so that Pillow
decides.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

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
    first, last = names.index(b"IDAT"), names.index(b"IDAT") + names.count(b"IDAT")
    before, after = names[1:first], names[last:-1]
    is_plain = b"IDAT" not in after and b"PLTE" not in after and before.count(b"PLTE") == layout.is_palette
    ends = not bodies[-1] and len(SIGNATURE) + 12 * len(bodies) + sum(map(len, bodies)) == len(content)
    others = zip(before + after, bodies[1:first] + bodies[last:-1], strict=True)
    if not is_plain or not ends or not all(_is_harmless(name, len(body), layout) for name, body in others):
        raise ValueError("an unusual PNG")
    return list(bodies[first:last])


def split_chunks(content: bytes | memoryview) -> Iterator[tuple[bytes, memoryview]]:
    """Yield name and body of every chunk up to IEND; ValueError at a damaged one, or if there is no IEND."""
    view, size, at = memoryview(content), len(content), len(SIGNATURE)
    while at + 12 <= size:
        length, name = _chunk_start(content, at)
        end = at + 8 + length
        if end + 4 > size:
            break
        if _crc32(view[at + 4 : end]) != _number(content, end)[0]:
            raise ValueError(f"checksum of the chunk at byte {at} does not fit")
        yield name, view[at + 8 : end]
        if name == b"IEND":
            return
        at = end + 4
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

    height, width = layout.height, layout.row_bytes
    samples = np.empty(height * width, np.uint8)
    if not undo_filters(stream, samples, height, width, max(1, layout.bits // 8)):
        return None
    rows = samples.reshape(height, width)
    if layout.bits == 16:
        return rows.view(">u2").astype(np.uint16)
    if layout.bits == 8:
        return rows
    shifts = np.arange(8 - layout.bits, -1, -layout.bits, dtype=np.uint8)  # the leftmost sample is in the high bits
    split = (rows[:, :, None] >> shifts) & np.uint8(2**layout.bits - 1)
    return np.ascontiguousarray(split.reshape(layout.height, -1)[:, : layout.width])
