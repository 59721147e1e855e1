"""Chunks that are more or larger than an array needs, or grow to it when unpacked: refused at a bounded cost."""

import bz2
import gzip
import json
import lzma
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import imagecodecs
import numcodecs
import numpy as np
import pytest
import zarr
import zarr.codecs

from segmeter.data.masks.reading import read_map
from segmeter.data.sample import Reading
from segmeter.errors import DataError
from tests.data.crafted import THREE
from tests.data.volumes import VOLUME

READING = Reading(spec=THREE, label_map={}, max_pixels=1000)
NOISE = Reading(spec=THREE, label_map={}, max_pixels=10**6, instances=True)


BOMB = bytes(1 << 22)


BOMBS: dict[str, tuple[dict[str, Any], Callable[[], bytes]]] = {  # Zarr 2's codec, and 4 MB packed by it
    "gzip": ({"id": "gzip", "level": 1}, lambda: gzip.compress(BOMB, 9)),
    "zlib": ({"id": "zlib", "level": 1}, lambda: zlib.compress(BOMB, 9)),
    "bz2": ({"id": "bz2", "level": 1}, lambda: bz2.compress(BOMB, 1)),
    "lzma": ({"id": "lzma", "format": 1, "preset": 0}, lambda: lzma.compress(BOMB, preset=0)),
    "zstd": ({"id": "zstd", "level": 1}, lambda: imagecodecs.zstd_encode(BOMB)),
    "blosc": ({"id": "blosc", "cname": "zstd", "clevel": 5}, lambda: numcodecs.Blosc("zstd").encode(BOMB)),
    "lz4": ({"id": "lz4"}, lambda: numcodecs.LZ4().encode(BOMB)),
}


@pytest.mark.parametrize("codec", BOMBS)
def test_a_chunk_that_grows_beyond_its_pixels_is_refused(codec: str, tmp_path: Path) -> None:
    settings, pack = BOMBS[codec]
    path = tmp_path / f"{codec}.zarr"
    zarr.create_array(str(path), data=np.ones((512, 512), np.uint8), chunks=(512, 512), zarr_format=2)
    note = json.loads((path / ".zarray").read_text())
    (path / ".zarray").write_text(json.dumps({**note, "compressor": settings}))
    (path / "0.0").write_bytes(pack())
    with pytest.raises(DataError, match=rf"{codec}\.zarr: expected"):
        read_map(path, Reading(spec=THREE, label_map={}, max_pixels=10**6))


def zstd_without_its_size(content: bytes) -> bytes:
    """A frame as a stream has it: of raw blocks, its header without a size (RFC 8878)."""
    blocks = [content[start : start + (1 << 16)] for start in range(0, len(content), 1 << 16)]
    heads = [(len(block) << 3 | (block is blocks[-1])).to_bytes(3, "little") for block in blocks]
    return b"\x28\xb5\x2f\xfd\x00\x58" + b"".join(head + block for head, block in zip(heads, blocks, strict=True))


def test_zstd_frames_that_do_not_say_their_size_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.zarr"
    data = np.random.default_rng(1).integers(0, 3, (16, 16)).astype(np.uint8)
    zarr.create_array(str(path), data=data, chunks=(16, 16), compressors=zarr.codecs.ZstdCodec())
    (path / "c" / "0" / "0").write_bytes(zstd_without_its_size(data.tobytes()))
    assert np.array_equal(read_map(path, READING).values, data)
    for packed in (zstd_without_its_size(bytes(1400)), numcodecs.Zstd().encode(bytes(1400))):
        (path / "c" / "0" / "0").write_bytes(packed)
        with pytest.raises(DataError, match="truncated or damaged data"):
            read_map(path, READING)


CODECS: dict[str, dict[str, Any]] = {
    "blosc": {"compressors": zarr.codecs.BloscCodec(cname="lz4", shuffle="bitshuffle")},
    "gzip": {"compressors": zarr.codecs.GzipCodec(level=9)},
    "zstd and checksum": {"compressors": [zarr.codecs.ZstdCodec(), zarr.codecs.Crc32cCodec()]},
    "none": {"compressors": None},
    "shards": {"shards": (4, 6, 8), "compressors": zarr.codecs.ZstdCodec()},
    "delta 2": {"zarr_format": 2, "filters": [numcodecs.Delta("u2", "i8")], "compressors": numcodecs.Zlib(9)},
    "bz2 2": {"zarr_format": 2, "compressors": numcodecs.BZ2()},
    "lzma 2": {"zarr_format": 2, "compressors": numcodecs.LZMA()},
    "lz4 2": {"zarr_format": 2, "compressors": numcodecs.LZ4()},
    "blosc 2": {"zarr_format": 2, "compressors": numcodecs.Blosc()},
    "zstd 2": {"zarr_format": 2, "compressors": numcodecs.Zstd(3)},
}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("noise", [False, True], ids=["labels", "noise"])
def test_honest_chunks_of_every_codec_are_read(codec: str, noise: bool, tmp_path: Path) -> None:
    """Noise does not compress: its chunks are a little larger than their pixels."""
    data = np.random.default_rng(2).integers(0, 65536 if noise else 3, (7, 9, 11)).astype(np.uint16)
    options = {"chunks": (4, 3, 8), **CODECS[codec]}
    zarr.create_array(str(tmp_path / "a.zarr"), data=data, **options)
    assert np.array_equal(read_map(tmp_path / "a.zarr", READING).values, data)


def test_a_second_stream_behind_a_chunk_is_refused(tmp_path: Path) -> None:
    zarr.create_array(str(tmp_path / "b.zarr"), data=VOLUME, chunks=VOLUME.shape, compressors=zarr.codecs.GzipCodec())
    chunk = tmp_path / "b.zarr" / "c" / "0" / "0" / "0"
    chunk.write_bytes(chunk.read_bytes() + gzip.compress(b"more"))
    with pytest.raises(DataError, match="truncated or damaged data"):
        read_map(tmp_path / "b.zarr", READING)


@pytest.mark.parametrize("change", [lambda content: content[:-9], lambda content: content + b"x" * 9])
def test_a_blosc_chunk_of_another_length_is_refused(change: Callable[[bytes], bytes], tmp_path: Path) -> None:
    """Its decoder reads what lies in memory beyond a chunk that was cut, and no sum tells."""
    noise = np.random.default_rng(0).integers(0, 256, (40, 40), np.uint8)
    zarr.create_array(str(tmp_path / "a.zarr"), data=noise, zarr_format=2, compressors=numcodecs.Blosc())
    chunk = tmp_path / "a.zarr" / "0.0"
    chunk.write_bytes(change(chunk.read_bytes()))
    with pytest.raises(DataError, match="a Blosc chunk of another length than its header says"):
        read_map(tmp_path / "a.zarr", NOISE)


def test_a_blosc_chunk_in_a_shard_is_compared_with_its_length_there(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (40, 40), np.uint8)
    options: dict[str, Any] = {"chunks": (10, 20), "shards": (40, 40), "compressors": zarr.codecs.BloscCodec()}
    for location in ("start", "end"):
        path = tmp_path / f"{location}.zarr"
        config: Any = {"shape": (40, 40), "index_location": location}
        zarr.create_array(str(path), data=noise, **(options | {"shards": config}))
        assert np.array_equal(read_map(path, NOISE).values, noise)
        shard = path / "c" / "0" / "0"
        content = bytearray(shard.read_bytes())
        table = 0 if location == "start" else len(content) - 16 * 8 - 4
        offset, _ = struct.unpack_from("<QQ", content, table + 16)
        content[offset + 12 : offset + 16] = struct.pack("<I", 12345)
        shard.write_bytes(bytes(content))
        with pytest.raises(DataError, match="a Blosc chunk of another length than its header says"):
            read_map(path, NOISE)
