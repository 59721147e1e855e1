"""Zarr behind a URL through the cache: read as here, and what is lost is no zeros."""

from pathlib import Path

import numpy as np
import pytest

from segmeter.data.files.refusals import read_state
from segmeter.data.files.zarr import hash_folder
from segmeter.data.masks.reading import read_values
from segmeter.errors import DataError
from segmeter.remote.cache import fetched, list_place
from tests.data.crafted import write_zarr
from tests.remote.test_cache import listed, read


@pytest.fixture(params=[2, 3])
def stored(request, tmp_path, memory):
    """A label map in chunks, one of which is all zeros and so has no file; here and in a store."""
    labels = np.random.default_rng(5).integers(0, 3, (50, 70)).astype(np.uint8)
    labels[:32, 32:64] = 0
    here = write_zarr(tmp_path / "a.zarr", labels, "yx", zarr_format=request.param, chunks=(32, 32))
    memory.put_folder(here, "masks/a.zarr/")
    return here, labels


def stored_map(path):
    with fetched([path]):
        return read_values(path, max_pixels=10**6)


def chunk_of(here):
    files = (path for path in sorted(here.rglob("*")) if path.is_file() and path.name[-1].isdigit())
    return str(next(files).relative_to(here))


def test_zarr_behind_a_url_is_read_as_here(stored, memory):
    here, labels = stored
    place = list_place(Path(memory.url) / "masks").inside["a.zarr"]
    assert place.files & {"zarr.json", ".zarray"}
    assert memory.asked == []
    found, expected = stored_map(place.path), stored_map(here)
    np.testing.assert_array_equal(found.values, labels)
    assert (found.sha256, found.sha256) == (expected.sha256, hash_folder(place.path))
    assert len([each for each in here.rglob("*") if each.is_file()]) == len(memory.asked)
    assert listed(f"{memory.url}/masks/a.zarr") == place.path
    assert read_state(place.path)[0] > 0
    assert read_state(place.path / chunk_of(here))[0] > 0
    assert read_state(place.path / "c/9/9") == (0, 0, 0, 0)


def test_a_chunk_that_is_lost_or_changed_after_the_listing_is_no_zeros(stored, memory):
    here, _ = stored
    path, chunk = listed(f"{memory.url}/masks", "a.zarr"), chunk_of(here)
    memory.drop(f"masks/a.zarr/{chunk}")
    for content in (None, (here / chunk).read_bytes()[::-1]):
        if content:
            memory.put(f"masks/a.zarr/{chunk}", content)
        with pytest.raises(DataError, match=r"masks/a.zarr: expected `object` to stay what it was"):
            stored_map(path)
    assert listed(f"{memory.url}/masks", "a.zarr") != path


def test_zarr_that_was_read_stays_in_the_cache_until_the_end(stored, memory, of_bytes):
    here, labels = stored
    size = sum(path.stat().st_size for path in here.rglob("*") if path.is_file())
    memory.put("large", bytes(size))
    of_bytes(size + 10)
    path = listed(f"{memory.url}/masks", "a.zarr")
    np.testing.assert_array_equal(stored_map(path).values, labels)
    with pytest.raises(DataError, match="to fit into the cache"):
        read(listed(f"{memory.url}/large"))
    np.testing.assert_array_equal(stored_map(path).values, labels)
