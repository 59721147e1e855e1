"""Zarr folders whose files are not what they should be."""

import os
from pathlib import Path

import pytest
import zarr
import zarr.codecs

from segmeter.data.files.zarr import ZarrArray, hash_folder
from segmeter.data.masks.reading import read_map
from segmeter.data.sample import Reading
from segmeter.errors import DataError
from tests.data.crafted import THREE
from tests.data.volumes import VOLUME

READING = Reading(spec=THREE, label_map={}, max_pixels=1000)


def test_a_fifo_for_a_chunk_or_beside_it_is_refused_without_waiting(tmp_path: Path) -> None:
    zarr.create_array(str(tmp_path / "a.zarr"), data=VOLUME, chunks=VOLUME.shape)
    chunk = tmp_path / "a.zarr" / "c" / "0" / "0" / "0"
    chunk.unlink()
    os.mkfifo(chunk)
    with pytest.raises(DataError, match="expected `file` to be a regular file"):
        read_map(tmp_path / "a.zarr", READING)
    with pytest.raises(DataError, match="expected `file` to be a regular file"):
        hash_folder(tmp_path / "a.zarr")


def test_a_folder_that_changes_while_it_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pixels would be those of one state, and its hash that of another."""
    zarr.create_array(str(tmp_path / "a.zarr"), data=VOLUME, chunks=VOLUME.shape)
    read = ZarrArray.read

    def read_then_change(array: ZarrArray) -> object:
        found = read(array)
        zarr.open_array(str(array.path), mode="r+")[:] = 0
        return found

    monkeypatch.setattr(ZarrArray, "read", read_then_change)
    with pytest.raises(DataError, match=r"a.zarr: expected `file` to stay as it is, got a change while it was read"):
        read_map(tmp_path / "a.zarr", READING)
