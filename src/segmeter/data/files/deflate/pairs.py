"""Two zlib streams, mostly of literals, side by side -> their bytes; `png` gives all others to libdeflate."""

from collections.abc import Callable

import imagecodecs
import numpy as np
from numpy.typing import NDArray

from segmeter.data.files.deflate import ROOM
from segmeter.data.files.deflate._streams import Stream, inflate_both, is_done, new_stream, used_bytes

_adler32: Callable[..., int] = imagecodecs.deflate_adler32  # it takes any buffer, which its type does not say
_HEADER, _CHECKSUM = 2, 4  # bytes
_METHOD, _WINDOW, _PRESET = 0x0F, 0xF0, 0x20  # bits of the two bytes of a header
_DEFLATE, _LARGEST_WINDOW = 8, 0x70
_MOST_REPEATS = 1 / 32  # of the symbols: with more, waiting for wrong guesses costs what look-ups of pairs save

Pair = tuple[NDArray[np.uint8], NDArray[np.uint8]]


def inflate_pair(packed: Pair, rows: Pair) -> bool:
    """Inflate two zlib streams (RFC 1950).

    Parameters
    ----------
    packed : two of (N + ROOM,) uint8
        The streams; what stands in the room behind each is of no importance.
    rows : two of (size + ROOM,) uint8
        Filled, and the room behind each is overwritten.

    Returns
    -------
    bool
        False where a stream is damaged, has another size or a wrong checksum, or mostly repeats earlier bytes, for
        which libdeflate is faster.
    """
    if not all(map(_is_zlib, packed)):
        return False
    streams = [
        new_stream(each[_HEADER:], filled, most_repeats=_MOST_REPEATS)
        for each, filled in zip(packed, rows, strict=True)
    ]
    inflate_both(*streams)
    return all(map(_is_whole, streams))


def _is_zlib(packed: NDArray[np.uint8]) -> bool:
    if packed.size < ROOM + _HEADER + _CHECKSUM:
        return False
    first, second = map(int, packed[:_HEADER])
    known = first & _METHOD == _DEFLATE and first & _WINDOW <= _LARGEST_WINDOW and not second & _PRESET
    return known and not (256 * first + second) % 31


def _is_whole(stream: Stream) -> bool:
    read, written = used_bytes(stream)
    size, stored = stream.rows.size - ROOM, stream.packed[read : read + _CHECKSUM].tobytes()
    if not is_done(stream) or written != size or read + _CHECKSUM > stream.packed.size - ROOM:
        return False
    return _adler32(stream.rows[:size]) == int.from_bytes(stored, "big")
