"""Label maps -> PNG bytes: indices exact, several times faster than Pillow's encoder and no larger.

The file is put together here rather than by Pillow: the Up filter turns a label map into long runs of zeros, zlib's
run-length strategy (`zlib.Z_RLE`) packs those several times faster than its match search, and maps of up to 16 classes
take half the bytes at 4 bits a pixel. Maps of a few large regions are zeros nearly everywhere; there zlib-ng is faster
still at the same size. `benchmarks/export.py` measures it.

References
----------
W3C, Portable Network Graphics (PNG) Specification (Second Edition), sections 7 (bit depths), 9 (filters), 11 (chunks).
"""

import struct
import zlib
from collections.abc import Sequence
from typing import Any

import imagecodecs
import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected
from segmeter.classes import Colour
from segmeter.errors import InputError

LabelArray = NDArray[np.uint8] | NDArray[np.uint16]

IGNORE_COLOUR: Colour = (224, 224, 224)
UNUSED_COLOUR: Colour = (255, 0, 255)  # magenta: a value without a class should stand out
SPARSE = 0.01  # share of bytes that are not zero, below which zlib-ng is as small as run lengths
MAX_SIDE = 2**31 - 1  # PNG's own limit
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_GREYSCALE, _PALETTE = 0, 3
_UP = 2  # each byte minus the byte above it


def encode_labels_png(labels: NDArray[Any], colours: Sequence[Colour], *, ignore_index: int | None = None) -> bytes:
    """Encode a label map as PNG; every pixel of the file holds its label value.

    Parameters
    ----------
    labels
        (H, W) uint8 or uint16. uint8 gives a palette PNG (4 bits a pixel where all values are below 16, else 8),
        uint16 a 16-bit greyscale PNG, as palettes end at 256 entries.
    colours
        One (red, green, blue) per class, 0 to 255; entries without a class are magenta. Not used for uint16.
    ignore_index
        The ignored value, which is not a class; it is light grey.

    Returns
    -------
    The file's bytes. Pillow reads them as mode "P" or "I;16" with the given values.

    Raises
    ------
    InputError
        Wrong dtype or dimensions, an empty map, or more than 256 colours for a uint8 map.

    Examples
    --------
    >>> encode_labels_png(np.zeros((2, 3), np.uint8), [(0, 0, 0)])[1:4]
    b'PNG'
    """
    _check(labels, colours)
    if labels.dtype.itemsize == 2:
        return _png(
            _rows(labels.astype(">u2", order="C").view(np.uint8)), labels.shape, depth=16, colour_type=_GREYSCALE
        )
    values = np.ascontiguousarray(labels)
    depth = 4 if values.max() < 16 and len(colours) <= 16 else 8
    rows = _rows(_pack_nibbles(values) if depth == 4 else values)
    palette = _palette(colours, ignore_index, size=2**depth)
    return _png(rows, labels.shape, depth=depth, colour_type=_PALETTE, palette=palette)


def palette_of(colours: Sequence[Colour], ignore_index: int | None) -> NDArray[np.uint16]:
    """The palette of a uint8 label map as TIFF has it: (3, 256), 65535 as full; entries as in `encode_labels_png`."""
    entries = np.frombuffer(_palette(colours, ignore_index, size=256), np.uint8).reshape(256, 3)
    return np.ascontiguousarray(entries.T.astype(np.uint16) * 257)


def _check(labels: NDArray[Any], colours: Sequence[Colour]) -> None:
    where = "encode_labels_png"
    if labels.dtype.kind != "u" or labels.dtype.itemsize > 2 or labels.ndim != 2:
        rule, given = "(H, W) uint8 or uint16", f"{labels.dtype} {labels.shape}"
        raise InputError(expected(where, "labels", rule, given, "Cast it yourself, after checking its range."))
    if not all(1 <= side <= MAX_SIDE for side in labels.shape):
        raise InputError(expected(where, "labels", "to have at least one pixel", labels.shape))
    if labels.dtype.itemsize == 1 and len(colours) > 256:
        raise InputError(expected(where, "colours", "to be at most 256 for uint8 labels", len(colours), "Use uint16."))


def _pack_nibbles(values: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Put two pixels into each byte, the left one into the high half; an odd last column is padded with 0."""
    if values.shape[1] % 2:
        values = np.pad(values, ((0, 0), (0, 1)))
    pairs = np.ascontiguousarray(values).view("<u2")  # left + 256 * right, whatever the machine's byte order
    return ((pairs << 4) | (pairs >> 8)).astype(np.uint8)  # keeps the low byte: 16 * left + right


def _rows(content: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Prefix each row with its filter type and apply that filter; wrapping modulo 256 is the format's rule."""
    rows = np.empty((content.shape[0], content.shape[1] + 1), np.uint8)
    rows[:, 0] = _UP
    rows[0, 1:] = content[0]
    np.subtract(content[1:], content[:-1], out=rows[1:, 1:])
    return rows


def _palette(colours: Sequence[Colour], ignore_index: int | None, *, size: int) -> bytes:
    entries = [*colours, *[UNUSED_COLOUR] * (size - len(colours))]
    if ignore_index is not None and ignore_index < size:
        entries[ignore_index] = IGNORE_COLOUR
    return bytes(part for colour in entries for part in colour)


def _png(
    rows: NDArray[np.uint8], shape: tuple[int, ...], *, depth: int, colour_type: int, palette: bytes = b""
) -> bytes:
    height, width = shape
    header = struct.pack(">IIBBBBB", width, height, depth, colour_type, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"PLTE", palette), (b"IDAT", _compress(rows)), (b"IEND", b"")]
    kept = [_chunk(kind, body) for kind, body in chunks if body or kind == b"IEND"]
    return _SIGNATURE + b"".join(kept)


def _compress(rows: NDArray[np.uint8]) -> bytes:
    if np.count_nonzero(rows) - len(rows) < SPARSE * rows.size:
        return bytes(imagecodecs.zlibng_encode(rows.tobytes(), level=3))
    packer = zlib.compressobj(1, zlib.DEFLATED, zlib.MAX_WBITS, 9, zlib.Z_RLE)
    return packer.compress(rows.data) + packer.flush()


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(body, zlib.crc32(kind)))
