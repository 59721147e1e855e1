"""Two zlib streams, mostly of literals, side by side -> their bytes; `png` gives all others to libdeflate."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.data.files.deflate import ROOM
from segmeter.data.files.deflate._streams import inflate_both, is_done, new_stream, used_bytes
from segmeter.data.files.deflate.linked import adler32
from segmeter.jit import kernel

Array = NDArray[np.uint8]

_HEADER, _CHECKSUM = 2, 4  # bytes
_METHOD, _WINDOW, _PRESET = 0x0F, 0xF0, 0x20  # bits of the two bytes of a header
_DEFLATE, _LARGEST_WINDOW = 8, 0x70
_MOST_REPEATS = 1 / 32  # of the symbols: with more, waiting for wrong guesses costs what look-ups of pairs save


@kernel
def inflate_pair(packed: Array, other_packed: Array, rows: Array, other_rows: Array) -> bool:
    """Inflate two zlib streams (RFC 1950).

    Parameters
    ----------
    packed, other_packed : (N + ROOM,) uint8
        The streams; what stands in the room behind each is of no importance.
    rows, other_rows : (size + ROOM,) uint8
        Filled, and the room behind each is overwritten.

    Returns
    -------
    bool
        False where a stream is damaged, has another size or a wrong checksum, or mostly repeats earlier bytes, for
        which libdeflate is faster.
    """
    if not (_is_zlib(packed) and _is_zlib(other_packed)):
        return False
    stream = new_stream(packed[_HEADER:], rows, _MOST_REPEATS)
    other = new_stream(other_packed[_HEADER:], other_rows, _MOST_REPEATS)
    inflate_both(stream, other)
    return _is_whole(stream) and _is_whole(other)


@kernel
def _is_zlib(packed: Array) -> bool:
    if packed.size < ROOM + _HEADER + _CHECKSUM:
        return False
    first, second = np.int64(packed[0]), np.int64(packed[1])
    known = first & _METHOD == _DEFLATE and first & _WINDOW <= _LARGEST_WINDOW and not second & _PRESET
    return bool(known and (256 * first + second) % 31 == 0)


@kernel
def _is_whole(stream: Any) -> bool:
    read, written = used_bytes(stream)
    size = stream.rows.size - ROOM
    if not is_done(stream) or written != size or read + _CHECKSUM > stream.packed.size - ROOM:
        return False
    stored = np.uint32(0)
    for k in range(_CHECKSUM):
        stored = (stored << np.uint32(8)) | np.uint32(stream.packed[read + k])
    return bool(adler32(np.uint32(1), stream.rows.ctypes.data, size) == stored)
