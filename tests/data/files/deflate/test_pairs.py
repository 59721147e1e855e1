"""Two zlib streams, whole and damaged; `test_streams` compares the decoder with zlib."""

import zlib

import numpy as np
import pytest

from segmeter.data.files.deflate import ROOM
from segmeter.data.files.deflate.pairs import inflate_pair


def with_room(packed: bytes) -> np.ndarray:
    return np.frombuffer(packed + b"\xa5" * ROOM, np.uint8)


def noise(seed: int, size: int = 5000) -> bytes:
    return np.random.default_rng(seed).integers(0, 19, size).astype(np.uint8).tobytes()


def wrapped(content: bytes) -> bytes:
    """A zlib stream without repeats."""
    packer = zlib.compressobj(6, zlib.DEFLATED, 15, 9, zlib.Z_HUFFMAN_ONLY)
    return packer.compress(content) + packer.flush()


def inflate(first: bytes, second: bytes, sizes: tuple[int, int] = (5000, 5000)) -> tuple[bytes, bytes] | None:
    rows = tuple(np.zeros(size + ROOM, np.uint8) for size in sizes)
    done = inflate_pair(with_room(first), with_room(second), *rows)
    return tuple(each[:-ROOM].tobytes() for each in rows) if done else None


def test_two_streams_give_their_bytes_and_pass_over_what_follows_them():
    assert inflate(wrapped(noise(0)), wrapped(noise(1)) + b"more") == (noise(0), noise(1))


@pytest.mark.parametrize(
    ("change", "sizes"),
    [
        (lambda packed: packed[:-1] + bytes([packed[-1] ^ 1]), (5000, 5000)),  # the checksum
        (lambda packed: packed[:-1], (5000, 5000)),
        (lambda packed: packed[: len(packed) // 2], (5000, 5000)),
        (lambda packed: packed[:5], (5000, 5000)),
        (lambda packed: b"\x79" + packed[1:], (5000, 5000)),  # another method
        (lambda packed: b"\x88\x1c" + packed[2:], (5000, 5000)),  # a window of 64 KB
        (lambda packed: b"\x78\xbb" + packed[2:], (5000, 5000)),  # a preset dictionary
        (lambda packed: b"\x78\x9d" + packed[2:], (5000, 5000)),  # the header's own check
        (lambda packed: packed, (5000, 4999)),
        (lambda packed: packed, (5000, 5001)),
    ],
)
def test_a_damaged_stream_in_either_place_or_one_of_another_length_is_refused(change, sizes):
    good, bad = wrapped(noise(0)), change(wrapped(noise(1)))
    assert inflate(good, bad, sizes) is None
    assert inflate(bad, good, sizes[::-1]) is None


@pytest.mark.parametrize("kind", ["repeats", "stored"])
def test_what_libdeflate_does_faster_is_left_to_it(kind):
    content = bytes(5000) if kind == "repeats" else noise(1)
    packer = zlib.compressobj(0 if kind == "stored" else 6)
    packed = packer.compress(content) + packer.flush()
    assert zlib.decompress(packed) == content
    assert inflate(wrapped(noise(0)), packed) is None
