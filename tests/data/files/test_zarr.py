"""Zarr folders: rows and levels by the names of axes, and chunks that are not what they should be."""

import bz2
import gzip
import json
import lzma
import os
import zlib
from collections.abc import Callable
from typing import Any

import imagecodecs
import numcodecs
import numpy as np
import pytest
import zarr
import zarr.codecs

from segmeter.data.files.opened import open_array
from segmeter.data.files.zarr import ZarrArray, hash_folder
from segmeter.data.masks.reading import read_map
from segmeter.data.sample import Reading
from segmeter.errors import DataError
from tests.data.crafted import THREE, noise, put, write_multiscales, write_zarr
from tests.data.volumes import VOLUME

READING = Reading(spec=THREE, label_map={}, max_pixels=1000)


def test_a_fifo_for_a_chunk_or_beside_it_is_refused_without_waiting(tmp_path):
    zarr.create_array(str(tmp_path / "a.zarr"), data=VOLUME, chunks=VOLUME.shape)
    chunk = tmp_path / "a.zarr" / "c" / "0" / "0" / "0"
    chunk.unlink()
    os.mkfifo(chunk)
    for read in (hash_folder, lambda path: read_map(path, READING)):
        with pytest.raises(DataError, match="expected `file` to be a regular file"):
            read(tmp_path / "a.zarr")


def test_a_folder_that_changes_while_it_is_read_is_refused(tmp_path, monkeypatch):
    """Its pixels would be those of one state, and its hash that of another."""
    zarr.create_array(str(tmp_path / "a.zarr"), data=VOLUME, chunks=VOLUME.shape)
    read = ZarrArray.read

    def read_then_change(array):
        found = read(array)
        zarr.open_array(str(array.path), mode="r+")[:] = 0
        return found

    monkeypatch.setattr(ZarrArray, "read", read_then_change)
    with pytest.raises(DataError, match=r"a.zarr: expected `file` to stay as it is, got a change while it was read"):
        read_map(tmp_path / "a.zarr", READING)


RNG = np.random.default_rng(0)


def rows_of(path, **options):
    with open_array(path, max_pixels=10**6, streams=True, **options) as array:
        return array  # a folder is not held open


@pytest.mark.parametrize("names", ["cyx", "yxc", "tcyx", ""])
@pytest.mark.parametrize("form", [2, 3])
def test_channels_come_last_wherever_they_lie(tmp_path, names, form):
    """A plane without names is rows and columns."""
    sizes = {"t": 1, "c": 3, "y": 80, "x": 40}
    array = RNG.integers(0, 256, [sizes[name] for name in names or "yx"]).astype(np.uint16)
    chunks = tuple(min(side, 32) for side in array.shape)
    rows = rows_of(write_zarr(tmp_path / "a.zarr", array, names, zarr_format=form, chunks=chunks))
    flat = array[0] if array.ndim == 4 else array
    expected = np.moveaxis(flat, 0, -1) if names.endswith("x") else flat
    assert (rows.shape, rows.dtype, rows.header.channels) == (expected.shape, np.uint16, 3 if names else 1)
    assert np.array_equal(rows.read(10, 50), expected[10:50])


@pytest.mark.parametrize("names", ["zyx", "", "xyc"])
def test_axes_that_are_no_picture_are_refused(tmp_path, names):
    path = write_zarr(tmp_path / "a.zarr", np.zeros((4, 40, 40), np.uint8), names)
    with pytest.raises(DataError, match="axes"):
        rows_of(path)


def test_a_level_of_ome_multiscales_is_chosen_or_refused_where_it_is_not_there(tmp_path):
    levels = [RNG.integers(0, 256, (3, 128 // scale, 96 // scale)).astype(np.uint8) for scale in (1, 2)]
    steps = [[{"type": "scale", "scale": [1, 2**n, 2**n]}] for n in range(2)]
    path = tmp_path / "a.ome.zarr"
    write_multiscales(zarr.create_group(str(path)), *levels, axes="cyx", units=None, steps=steps)
    for level, wanted in enumerate(levels):
        rows = rows_of(path, level=level)
        assert rows.header.levels == 2
        assert np.array_equal(rows.read(0, rows.shape[0]), np.moveaxis(wanted, 0, -1))
    with pytest.raises(DataError, match=r"data.level.*to be 0 .. 1"):
        rows_of(path, level=2)


def test_metadata_that_is_no_json_is_named(tmp_path):
    path = write_zarr(tmp_path / "a.zarr", np.zeros((4, 4), np.uint8))
    put(path / "zarr.json", [1])
    with pytest.raises(DataError, match=r"a\.zarr"):
        rows_of(path)


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
def test_a_chunk_that_grows_beyond_its_pixels_is_refused(codec, tmp_path):
    settings, pack = BOMBS[codec]
    path = write_zarr(tmp_path / f"{codec}.zarr", np.ones((512, 512), np.uint8), zarr_format=2, chunks=(512, 512))
    note = json.loads((path / ".zarray").read_text())
    put(path / ".zarray", {**note, "compressor": settings})
    put(path / "0.0", pack())
    with pytest.raises(DataError, match=rf"{codec}\.zarr: expected"):
        read_map(path, Reading(spec=THREE, label_map={}, max_pixels=10**6))


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
@pytest.mark.parametrize("values", [3, 65536], ids=["labels", "noise"])
def test_honest_chunks_of_every_codec_are_read(codec, values, tmp_path):
    """Noise does not compress: its chunks are a little larger than their pixels."""
    data = np.random.default_rng(2).integers(0, values, (7, 9, 11)).astype(np.uint16)
    path = write_zarr(tmp_path / "a.zarr", data, **{"chunks": (4, 3, 8), **CODECS[codec]})
    assert np.array_equal(read_map(path, READING).values, data)


def test_a_second_stream_behind_a_chunk_is_refused(tmp_path):
    path = write_zarr(tmp_path / "b.zarr", VOLUME, chunks=VOLUME.shape, compressors=zarr.codecs.GzipCodec())
    chunk = path / "c" / "0" / "0" / "0"
    chunk.write_bytes(chunk.read_bytes() + gzip.compress(b"more"))
    with pytest.raises(DataError, match="truncated or damaged data"):
        read_map(path, READING)


@pytest.mark.parametrize("change", [lambda content: content[:-9], lambda content: content + b"x" * 9])
def test_a_blosc_chunk_of_another_length_is_refused(change, tmp_path):
    """Its decoder reads what lies in memory beyond a chunk that was cut, and no sum tells."""
    path = write_zarr(tmp_path / "a.zarr", noise(40, 40, None), zarr_format=2, compressors=numcodecs.Blosc())
    put(path / "0.0", change((path / "0.0").read_bytes()))
    with pytest.raises(DataError, match="a Blosc chunk of another length than its header says"):
        read_map(path, Reading(spec=THREE, max_pixels=10**6, instances=True))
