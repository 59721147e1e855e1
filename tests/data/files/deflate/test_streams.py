"""The decoder of two streams against zlib: equal bytes, or both refuse."""

import os
import subprocess
import sys
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from segmeter.data.files.deflate import ROOM, _streams
from segmeter.data.files.deflate._streams import Stream, inflate_both, is_done, new_stream, used_bytes

SEEDS = 3  # of 500 streams each, on every run; the slow test takes twenty more


def with_room(packed: bytes) -> np.ndarray:
    return np.frombuffer(packed + b"\xa5" * ROOM, np.uint8)


def raw_stream(packed: bytes, size: int, *, most_repeats: float = 1) -> Stream:
    return new_stream(with_room(packed), np.full(size + ROOM, 77, np.uint8), most_repeats=most_repeats)


def by_zlib(packed: bytes) -> tuple[bytes, int] | None:
    """What a raw stream holds, and how many bytes it takes; None where zlib refuses it, or it has no end."""
    decoder = zlib.decompressobj(-15)
    try:
        found = decoder.decompress(packed)
    except zlib.error:
        return None
    return (found, len(packed) - len(decoder.unused_data)) if decoder.eof else None


def draw(rng: np.random.Generator, size: int) -> bytes:
    """Bytes with long and short codes, some with many repeats."""
    count = int(rng.choice([2, 4, 19, 60, 256]))
    values = rng.choice(count, size, p=rng.dirichlet(np.full(count, rng.choice([0.05, 0.3, 3])))).astype(np.uint8)
    return (np.tile(values[: size // 4 + 1], 4)[:size] if rng.random() < 0.3 else values).tobytes()


def pack(rng: np.random.Generator, content: bytes) -> bytes:
    """Deflate in any way that zlib has."""
    strategies = zlib.Z_DEFAULT_STRATEGY, zlib.Z_FILTERED, zlib.Z_HUFFMAN_ONLY, zlib.Z_RLE, zlib.Z_FIXED
    strategy = int(rng.choice(strategies))
    packer = zlib.compressobj(int(rng.integers(1, 10)), zlib.DEFLATED, -15, int(rng.choice([1, 8, 9])), strategy)
    return packer.compress(content) + packer.flush()


def mutate(rng: np.random.Generator, packed: bytes) -> bytes:
    """Up to three times: a bit turned (mostly among the codes at the start), the end cut off, bytes put in."""
    broken = bytearray(packed)
    for _ in range(int(rng.integers(0, 4))):
        at = int(rng.integers(min(len(broken), 80) if rng.random() < 0.6 else len(broken)))
        how = rng.integers(5)
        if how < 3:
            broken[at] ^= 1 << int(rng.integers(8))
        elif how == 3:
            del broken[max(1, at) :]
        else:
            broken[at:at] = rng.integers(0, 256, 2).astype(np.uint8).tobytes()
    return bytes(broken)


def check_against_zlib(seed: int, count: int) -> Counter[str]:
    """Decode mutated streams beside one that is in order, in either place."""
    rng, seen = np.random.default_rng(seed), Counter[str]()
    for turn in range(count):
        packed = mutate(rng, pack(rng, draw(rng, int(rng.integers(1, 3000)))))
        wanted = by_zlib(packed)
        stream = raw_stream(packed, len(wanted[0]) if wanted else 3000)
        good = draw(rng, 500)
        other = raw_stream(zlib.compress(good)[2:-4], 500)
        inflate_both(*((stream, other) if turn % 2 else (other, stream)))
        if _streams.UNSUITED in (stream.state[4], other.state[4]):
            seen["unsuited"] += 1
        elif wanted is None:  # without an end it may find one in what stands behind it, and its caller sees that
            assert not is_done(stream) or used_bytes(stream)[0] > len(packed), packed.hex()
            seen["refused"] += 1
        else:
            assert is_done(stream), packed.hex()
            assert used_bytes(stream) == (wanted[1], len(wanted[0])), packed.hex()
            assert stream.rows[:-ROOM].tobytes() == wanted[0], packed.hex()
            assert is_done(other)
            assert other.rows[:-ROOM].tobytes() == good
            seen["taken"] += 1
    return seen


@pytest.mark.parametrize("seed", range(SEEDS))
def test_mutated_streams_are_refused_where_zlib_refuses_them_and_give_the_same_bytes_else(seed):
    """Mutations seen to fail: `left and most > 0`; a distance of one byte more; the length 258 as 257."""
    seen = check_against_zlib(seed, 500)
    assert min(seen["taken"], seen["refused"]) > 100, seen


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS, SEEDS + 20))
def test_ten_thousand_mutated_streams_are_read_as_zlib_reads_them(seed):
    check_against_zlib(seed, 500)


@pytest.mark.parametrize("sizes", [(1 << 18, 300), (300, 1 << 18), (90_000, 90_000)], ids=str)
def test_streams_of_many_blocks_and_of_different_lengths(sizes):
    """Rare values have codes of up to 15 bits, beyond the table's index; the largest ends with fixed ones."""
    rng = np.random.default_rng(0)
    chances = 0.5 ** np.arange(1, 41)
    contents = [rng.choice(40, size, p=chances / chances.sum()).astype(np.uint8).tobytes() for size in sizes]
    packers = [zlib.compressobj(6, zlib.DEFLATED, -15, 9, zlib.Z_HUFFMAN_ONLY) for _ in contents]
    packed = [packer.compress(content) + packer.flush() for packer, content in zip(packers, contents, strict=True)]
    streams = [raw_stream(each, size) for each, size in zip(packed, sizes, strict=True)]
    inflate_both(*streams)
    for stream, content in zip(streams, contents, strict=True):
        assert is_done(stream)
        assert stream.rows[:-ROOM].tobytes() == content


def test_the_loops_stay_inside_their_arrays(tmp_path):
    """The streams of one seed with every index checked by numba."""
    code = f"from tests.data.files.deflate.test_streams import check_against_zlib as f; f({SEEDS + 100}, 300)"
    environment = os.environ | {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    root = Path(__file__).parents[4]
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, cwd=root, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
