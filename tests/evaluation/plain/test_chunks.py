"""The compiled check of chunks against the one in Python, whole files and mutated ones."""

import struct

import numpy as np
import pytest

from segmeter.data.files import png
from segmeter.evaluation.plain._chunks import join_data, read_size
from tests.data.files.test_png import KINDS, chunk, encode, mutate

ONE = np.ones((3, 4), int)


def by_python(content: bytes) -> bytes:
    """The zlib stream; empty where a file is not of 8 bits or not in order."""
    layout = png.read_layout(content)
    parts = png._collect(content, layout) if layout is not None and layout.bits == 8 else None
    return b"".join(parts or ())


def compiled(content: bytes) -> bytes:
    room = np.frombuffer(bytearray(content + b"\xa5" * 8), np.uint8)
    height, width = read_size(room, len(content))
    layout = png.read_layout(content)
    assert (height, width) == ((layout.height, layout.width) if layout and layout.bits == 8 else (0, 0))
    return room[: join_data(room, len(content))].tobytes() if height else b""


@pytest.mark.parametrize(("colour", "bits"), KINDS)
@pytest.mark.parametrize("parts", [1, 3])
def test_whole_files(colour, bits, parts):
    content = encode(ONE, colour, bits, np.zeros(3, int), parts=parts)
    assert compiled(content) == by_python(content)
    assert bool(compiled(content)) == (bits == 8)


NAMES = [
    b"gAMA",
    b"cHRM",
    b"sRGB",
    b"pHYs",
    b"tIME",
    b"bKGD",
    b"sBIT",
    b"tRNS",
    b"PLTE",
    b"IDAT",
    b"IHDR",
    b"iTXt",
    b"eXIf",
]
TEXTS = [
    b"Title\0a",
    b"Title",
    b"Titl",
    b"Titles\0a",
    b"",
    b"Creation Time\0",
    b"Raw profile type exif\0",
    b"Comment\0" * 9000,
]


@pytest.mark.parametrize("colour", [0, 3])
@pytest.mark.parametrize("side", ["before", "after"])
def test_other_chunks(colour, side):
    """Every name with bodies of many lengths; mutation seen to fail: the least length of one is refused."""
    extra = [
        chunk(name, bytes(length)) for name in NAMES for length in (0, 1, 2, 3, 4, 8, 9, 31, 32, 256, 257, 768, 771)
    ]
    extra += [chunk(b"tEXt", text) for text in TEXTS]
    accepted = 0
    for each in extra:
        content = encode(ONE, colour, 8, np.zeros(3, int), **{side: each})
        assert compiled(content) == by_python(content), each[:20]
        accepted += bool(compiled(content))
    assert accepted > 10


@pytest.mark.parametrize("seed", range(3))
def test_mutated_files(seed):
    rng, accepted = np.random.default_rng(seed), 0
    for _ in range(2000):
        colour = int(rng.choice([0, 3]))
        content = encode(
            ONE, colour, 8, np.zeros(3, int), parts=int(rng.integers(1, 4)), before=chunk(b"pHYs", bytes(9))
        )
        broken = mutate(rng, content)
        assert compiled(broken) == by_python(broken), broken.hex()
        accepted += bool(compiled(broken))
    assert accepted > 50


def test_an_empty_part_ends_the_data_as_any_other_does():
    """Mutation seen to fail: data has begun only where bytes of it were read."""
    whole = encode(ONE, 0, 8, np.zeros(3, int))
    start = 33
    content = whole[:start] + chunk(b"IDAT", b"") + chunk(b"tIME", bytes(7)) + whole[start:]
    assert compiled(content) == by_python(content) == b""


@pytest.mark.parametrize("length", [2**31 - 1, 2**32 - 1])
def test_a_chunk_longer_than_the_file_is_not_read(length):
    content = bytearray(encode(ONE, 0, 8, np.zeros(3, int)))
    content[33:37] = struct.pack(">I", length)
    assert compiled(bytes(content)) == by_python(bytes(content)) == b""
