"""The compiled way of a case from its two files to its counts: opened, read, hashed, checked, inflated and counted."""

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.data.files.deflate import ROOM
from segmeter.data.files.deflate.linked import (
    alloc_decompressor,
    close_file,
    free_decompressor,
    open_file,
    read_at,
    sha256,
    zlib_decompress,
)
from segmeter.data.files.deflate.pairs import inflate_pair
from segmeter.evaluation.plain._chunks import join_data, read_size
from segmeter.evaluation.plain._kernels import count_rows
from segmeter.files import PLAIN
from segmeter.jit import kernel

Array = NDArray[Any]

_FLAGS = os.O_RDONLY | PLAIN | getattr(os, "O_CLOEXEC", 0)
_NOISY = 3  # times smaller than its rows is a stream that is not flat: measured


@kernel
def count_files(
    names: Array,
    starts: Array,
    memory: Array,
    most_pixels: int,
    ignore: int,
    found: Array,
    hashes: Array,
    counts: Array,
) -> None:
    """Count the pairs of pixels of some cases, each of two label PNGs.

    Parameters
    ----------
    names, starts
        The name of each file, ended by 0: of case n, that of the target starts at ``names[starts[n, 0]]`` and that of
        the labels at ``names[starts[n, 1]]``.
    memory : (4, M) uint8
        Overwritten. Files of M - ROOM bytes or more, or of more rows, are not counted.
    most_pixels, ignore
        The most pixels of a file; the value of the target that is left out, 0 where there is none.
    found : (N, 4) int64
        Filled: whether the case was counted, and if so height, width and the CRC-32 of its target.
    hashes : (N, 2, 32) uint8
        Filled with the SHA-256 of both files.
    counts : (N, K, K) int64
        Filled.
    """
    decompressor = alloc_decompressor()
    for n in range(len(starts)):
        found[n, 0] = 0
        if decompressor:
            target, labels = names[starts[n, 0] :], names[starts[n, 1] :]
            _count_case(target, labels, memory, most_pixels, ignore, decompressor, found[n], hashes[n], counts[n])
    if decompressor:
        free_decompressor(decompressor)


@kernel
def _count_case(
    target: Array,
    labels: Array,
    memory: Array,
    most_pixels: int,
    ignore: int,
    decompressor: int,
    found: Array,
    hashes: Array,
    counts: Array,
) -> None:
    height, width, size = _read_packed(target, memory[0], most_pixels, hashes[0])
    if not size:
        return
    height_2, width_2, size_2 = _read_packed(labels, memory[1], most_pixels, hashes[1])
    total = height * (1 + width)
    if not size_2 or height != height_2 or width != width_2 or total + ROOM > memory.shape[1]:
        return
    packed, packed_2 = memory[0, : size + ROOM], memory[1, : size_2 + ROOM]
    rows, rows_2 = memory[2, : total + ROOM], memory[3, : total + ROOM]
    together = _NOISY * min(size, size_2) > total and inflate_pair(packed, packed_2, rows, rows_2)
    if together or (_inflate(decompressor, packed, rows) and _inflate(decompressor, packed_2, rows_2)):
        done, checksum = count_rows(rows[:-ROOM], rows_2[:-ROOM], width, ignore, counts)
        found[0], found[1], found[2], found[3] = done, height, width, checksum


@kernel
def _read_packed(name: Array, content: Array, most_pixels: int, digest: Array) -> tuple[int, int, int]:
    """Read a file, leave its zlib stream in `content`, and say height, width, and bytes of the stream; 0 if refused."""
    size = _read(name, content)
    height, width = read_size(content, size)
    if not 0 < height <= most_pixels or not 0 < width <= most_pixels // height:
        return 0, 0, 0
    if sha256(content.ctypes.data, size, digest.ctypes.data) != digest.ctypes.data:
        return 0, 0, 0
    return height, width, join_data(content, size)


@kernel
def _read(name: Array, content: Array) -> int:
    """Read all bytes of a file that has places and fits, with room behind it; 0 of any other."""
    most, start = content.size - ROOM, content.ctypes.data
    handle = open_file(name.ctypes.data, _FLAGS)
    if handle < 0:
        return 0
    size = read_at(handle, start, most, 0)
    ended = 0 < size < most and read_at(handle, start + np.uintp(size), 1, size) == 0
    close_file(handle)
    return size if ended else 0


@kernel
def _inflate(decompressor: int, packed: Array, rows: Array) -> bool:
    size, total = packed.size - ROOM, rows.size - ROOM
    return bool(zlib_decompress(decompressor, packed.ctypes.data, size, rows.ctypes.data, total, 0) == 0)
