"""Rows of Zarr arrays and OME-Zarr levels, by the names of their axes."""

import json

import numpy as np
import pytest
import zarr

from segmeter.data.files.opened import open_array
from segmeter.errors import DataError

RNG = np.random.default_rng(0)


def write(path, array, **options):
    chunks = tuple(min(side, 32) for side in array.shape)
    zarr.create_array(str(path), data=array, chunks=chunks, **options)
    return path


def rows_of(path, **options):
    with open_array(path, max_pixels=10**6, streams=True, **options) as array:
        return array  # a folder is not held open


@pytest.mark.parametrize("form", [2, 3])
def test_a_plane_without_names_is_rows_and_columns(tmp_path, form):
    array = RNG.integers(0, 9, (90, 70)).astype(np.uint16)
    rows = rows_of(write(tmp_path / "a.zarr", array, zarr_format=form))
    assert (rows.shape, rows.dtype) == ((90, 70), np.uint16)
    assert np.array_equal(rows.read(30, 65), array[30:65])


@pytest.mark.parametrize("names", [("c", "y", "x"), ("y", "x", "c"), ("t", "c", "y", "x")], ids=str)
def test_channels_come_last_wherever_they_lie(tmp_path, names):
    sizes = {"t": 1, "c": 3, "y": 80, "x": 40}
    array = RNG.integers(0, 256, [sizes[name] for name in names]).astype(np.uint8)
    rows = rows_of(write(tmp_path / "a.zarr", array, dimension_names=names))
    flat = array[0] if names[0] == "t" else array
    expected = flat if names[-1] == "c" else np.moveaxis(flat, 0, -1)
    assert rows.shape == (80, 40, 3)
    assert np.array_equal(rows.read(10, 50), expected[10:50])
    assert rows.header.channels == 3


@pytest.mark.parametrize("names", [("z", "y", "x"), None, ("x", "y", "c")], ids=str)
def test_axes_that_are_no_picture_are_refused(tmp_path, names):
    path = write(tmp_path / "a.zarr", np.zeros((4, 40, 40), np.uint8), dimension_names=names)
    with pytest.raises(DataError, match="axes"):
        rows_of(path)


def ome(tmp_path):
    levels = [RNG.integers(0, 256, (3, 128 // scale, 96 // scale)).astype(np.uint8) for scale in (1, 2)]
    path = tmp_path / "a.ome.zarr"
    group = zarr.create_group(str(path))
    for number, level in enumerate(levels):
        write(path / str(number), level)
    axes = [{"name": "c", "type": "channel"}, {"name": "y", "type": "space"}, {"name": "x", "type": "space"}]
    datasets = [
        {"path": str(n), "coordinateTransformations": [{"type": "scale", "scale": [1, 2**n, 2**n]}]} for n in range(2)
    ]
    group.attrs["ome"] = {"version": "0.5", "multiscales": [{"axes": axes, "datasets": datasets}]}
    return path, levels


@pytest.mark.parametrize("level", [0, 1])
def test_a_level_of_ome_multiscales_is_chosen(tmp_path, level):
    path, levels = ome(tmp_path)
    rows = rows_of(path, level=level)
    assert rows.header.levels == 2
    assert np.array_equal(rows.read(0, rows.shape[0]), np.moveaxis(levels[level], 0, -1))


def test_a_level_that_is_not_there_is_refused(tmp_path):
    path, _ = ome(tmp_path)
    with pytest.raises(DataError, match=r"data.level.*to be 0 .. 1"):
        rows_of(path, level=2)


def test_a_damaged_chunk_is_named(tmp_path):
    path = write(tmp_path / "a.zarr", RNG.integers(0, 9, (64, 64)).astype(np.uint8))
    (path / "c" / "1" / "0").write_bytes(b"\x28\xb5\x2f\xfd" + bytes(9))
    with pytest.raises(DataError, match=r"a\.zarr"):
        rows_of(path).read(0, 64)


def test_metadata_that_is_no_json_is_named(tmp_path):
    path = write(tmp_path / "a.zarr", np.zeros((4, 4), np.uint8))
    (path / "zarr.json").write_text(json.dumps([1]))
    with pytest.raises(DataError, match=r"a\.zarr"):
        rows_of(path)
