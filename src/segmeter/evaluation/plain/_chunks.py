"""The compiled check of a PNG's chunks: what `png` does in Python, for files whose content lies in a buffer.

Only what is plainly in order passes: one channel of 8 bits, not interlaced, every checksum right, every chunk known.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.data.files.deflate.linked import crc32, move
from segmeter.data.files.png import KEYWORDS, LEAST_BYTES, MOST_TEXT, SIGNATURE
from segmeter.jit import kernel

Array = NDArray[Any]


def _number(name: bytes) -> int:
    return int.from_bytes(name, "big")


_START = np.frombuffer(SIGNATURE + b"\0\0\0\rIHDR", np.uint8).copy()
_HEAD = 33  # bytes of the signature and the first chunk
_FRAME = 12  # bytes of a chunk around its body
_BITS, _COLOUR, _OTHERS, _HEAD_END = 24, 25, 26, 29  # places in the first chunk
_GRAY, _PALETTE = 0, 3
_IDAT, _IEND, _PLTE, _TRNS, _TEXT = map(_number, (b"IDAT", b"IEND", b"PLTE", b"tRNS", b"tEXt"))
_KNOWN = np.array([(_number(name), least) for name, least in LEAST_BYTES.items()], np.int64)
_WORDS = np.zeros((len(KEYWORDS), max(map(len, KEYWORDS)) + 1), np.uint8)  # with the 0 that ends each
for _row, _word in zip(_WORDS, KEYWORDS, strict=True):
    _row[: len(_word)] = np.frombuffer(_word, np.uint8)


@kernel
def read_size(content: Array, size: int) -> tuple[int, int]:
    """Height and width that the head of a file states; 0 and 0 where it is not a PNG as above."""
    if size < _HEAD:
        return 0, 0
    for i in range(_START.size):
        if content[i] != _START[i]:
            return 0, 0
    if content[_BITS] != 8 or (content[_COLOUR] != _GRAY and content[_COLOUR] != _PALETTE):
        return 0, 0
    for i in range(_OTHERS, _HEAD_END):
        if content[i]:
            return 0, 0
    height, width = _number_at(content, 20), _number_at(content, 16)
    return (height, width) if height and width else (0, 0)


@kernel
def join_data(content: Array, size: int) -> int:
    """Move the bodies of the IDAT chunks of a file, for which `read_size` is not 0, to its start.

    Parameters
    ----------
    content, size
        The file is ``content[:size]``.

    Returns
    -------
    int
        Bytes of all bodies; 0 where a chunk is damaged, unknown or out of place.
    """
    is_palette, parts, palettes, text, filled, at = content[_COLOUR] == _PALETTE, 0, 0, 0, 0, 8
    after = False  # whether another chunk follows the data
    while at + _FRAME <= size:
        length, name, body = _number_at(content, at), _number_at(content, at + 4), at + 8
        end = body + length
        if end + 4 > size:
            return 0
        if crc32(np.uint32(0), content.ctypes.data + np.uintp(at + 4), length + 4) != _number_at(content, end):
            return 0
        first, at = at == 8, end + 4
        if first:
            continue
        if name == _IDAT:
            if after:
                return 0
            move(content.ctypes.data + np.uintp(filled), content.ctypes.data + np.uintp(body), length)
            filled += length
            parts += 1
            continue
        after = parts > 0
        if name == _IEND:
            complete = after and palettes == is_palette and text <= MOST_TEXT
            return filled if complete and not length and at == size else 0
        if name == _PLTE and not after:
            palettes += 1
            if not 0 < length <= 768 or length % 3:
                return 0
        elif not _is_harmless(content, name, body, length, is_palette):
            return 0
        text += length if name == _TEXT else 0
    return 0


@kernel
def _number_at(content: Array, at: int) -> Any:
    found = np.int64(0)
    for k in range(4):
        found = found << 8 | np.int64(content[at + k])
    return found


@kernel
def _is_harmless(content: Array, name: int, body: int, length: int, is_palette: bool) -> bool:
    """Tell whether a chunk changes no sample and is one that Pillow takes."""
    if name == _TRNS:
        return (1 if is_palette else 2) <= length <= 256
    if name == _TEXT:
        return _is_keyword(content, body, length)
    for k in range(len(_KNOWN)):
        if name == _KNOWN[k, 0]:
            return bool(length >= _KNOWN[k, 1])
    return False


@kernel
def _is_keyword(content: Array, body: int, length: int) -> bool:
    """Whether a text starts with one of the words, or is one."""
    for word in _WORDS:
        for i in range(word.size):
            found = content[body + i] if i < length else 0
            if found != word[i]:
                break
            if not found:
                return True
    return False
