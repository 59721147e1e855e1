"""Folders that are fetched whole: runs, checkpoints, and Zarr, whose absent chunks are zeros and no others."""

import threading
import zipfile

import numpy as np
import pytest
import zarr

from segmeter.data.files.opened import open_array
from segmeter.data.files.zarr import hash_folder, is_zarr, label_names
from segmeter.data.masks.reading import read_values
from segmeter.errors import DataError
from segmeter.remote import folders
from segmeter.remote.folders import local_folder, present_folder
from segmeter.remote.trees import local_path, origin, read_state
from tests.data.crafted import write_zarr
from tests.remote.test_trees import read


def test_a_whole_folder_is_a_copy_of_one_state(memory, requests):
    memory.put("run/run.json", b"{}")
    memory.put("run/in/a", b"one")
    memory.put("run/predictions/a", b"large")
    folder = local_folder(f"{memory.url}/run", keep=lambda name: not name.startswith("predictions"))
    assert folder.name == "run"
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*")) == ["in", "in/a", "run.json"]
    assert not (folder / "in" / "a").is_symlink()
    assert origin(folder / "in" / "a") == f"{memory.url}/run/in/a"
    assert local_folder(f"{memory.url}/run", keep=lambda name: not name.startswith("predictions")) == folder
    assert sorted(requests) == ["a", "run.json"]
    memory.put("run/in/a", b"two")
    assert (local_folder(f"{memory.url}/run") / "in" / "a").read_bytes() == b"two"
    assert (folder / "in" / "a").read_bytes() == b"one"


def test_a_folder_that_is_in_use_is_not_forgotten(memory, monkeypatch):
    monkeypatch.setenv("SEGMETER_CACHE_GB", str(35e-9))
    memory.put("run/a", bytes(30))
    memory.put("more", bytes(30))
    folder = local_folder(f"{memory.url}/run")
    with pytest.raises(DataError, match="to fit into the cache"):
        read(local_path(f"{memory.url}/more"))
    assert (folder / "a").read_bytes() == bytes(30)


def test_an_archive_that_is_replaced_is_opened_again(tmp_path):
    """Mutation seen to fail: the opened archive kept for folders that are fetched whole."""
    for content in (b"one", b"another"):
        with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
            archive.writestr("run/run.json", content)
        assert (local_folder(f"zip://run::{tmp_path}/all.zip") / "run.json").read_bytes() == content


def test_threads_that_want_one_folder_fetch_it_once(memory, monkeypatch):
    """Mutation seen to fail: no lock (a second one's folder can't take the place of the first one's)."""
    memory.put("run/a", b"one")
    found: list[object] = []
    fetch, asked = folders.fetch_object, []
    monkeypatch.setattr(folders, "fetch_object", lambda *given: asked.append(given[1]) or fetch(*given))
    threads = [threading.Thread(target=lambda: found.append(local_folder(f"{memory.url}/run"))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert len(found) == 6
    assert asked == ["a"]


@pytest.fixture(params=[2, 3])
def stored(request, tmp_path, memory):
    """A label map in chunks, one of which is all zeros and so has no file; here and in a store."""
    labels = np.random.default_rng(5).integers(0, 3, (50, 70)).astype(np.uint8)
    labels[:32, 32:64] = 0
    here = write_zarr(tmp_path / "a.zarr", labels, "yx", zarr_format=request.param, chunks=(32, 32))
    for path in here.rglob("*"):
        if path.is_file():
            memory.put(f"masks/a.zarr/{path.relative_to(here)}", path.read_bytes())
    return here, labels


def stored_map(path):
    return read_values(path, max_pixels=10**6)


def chunk_of(here):
    return next(
        str(path.relative_to(here)) for path in sorted(here.rglob("*")) if path.is_file() and path.name[-1].isdigit()
    )


def test_zarr_behind_a_url_is_read_as_here(stored, memory, requests):
    here, labels = stored
    path = local_path(memory.url) / "masks" / "a.zarr"
    assert is_zarr(path)
    assert requests == []
    found, expected = stored_map(path), stored_map(here)
    np.testing.assert_array_equal(found.values, labels)
    assert (found.sha256, found.sha256) == (expected.sha256, hash_folder(path))
    assert origin(path) == f"{memory.url}/masks/a.zarr"
    assert len([each for each in here.rglob("*") if each.is_file()]) == len(requests)
    assert local_path(f"{memory.url}/masks/a.zarr").name == "a.zarr"
    np.testing.assert_array_equal(stored_map(local_path(f"{memory.url}/masks/a.zarr")).values, labels)


def test_a_chunk_that_is_lost_or_changed_after_the_listing_is_no_zeros(stored, memory):
    """Mutation seen to fail: read from the links (a chunk that was not fetched is one of zeros to Zarr)."""
    here, _ = stored
    path, chunk = local_path(memory.url) / "masks" / "a.zarr", chunk_of(here)
    before = read_state(path)
    memory.drop(f"masks/a.zarr/{chunk}")
    with pytest.raises(DataError, match=f"a.zarr/{chunk}: expected `object` to be there"):
        stored_map(path)
    memory.put(f"masks/a.zarr/{chunk}", (here / chunk).read_bytes()[::-1])
    with pytest.raises(DataError, match=f"a.zarr/{chunk}: expected `object` to stay what it was"):
        stored_map(path)
    assert read_state(path) == before != (0, 0, 0, 0)
    local_path(memory.url)
    assert read_state(path) != before


def test_zarr_that_was_read_stays_in_the_cache_until_the_end(stored, memory, monkeypatch):
    """Mutation seen to fail: not held (its chunks make room for others)."""
    here, labels = stored
    size = sum(path.stat().st_size for path in here.rglob("*") if path.is_file())
    memory.put("large", bytes(size))
    monkeypatch.setenv("SEGMETER_CACHE_GB", str((size + 10) / 1e9))
    path = local_path(memory.url) / "masks" / "a.zarr"
    np.testing.assert_array_equal(stored_map(path).values, labels)
    with pytest.raises(DataError, match="to fit into the cache"):
        read(local_path(f"{memory.url}/large"))
    np.testing.assert_array_equal(stored_map(path).values, labels)


def test_the_levels_and_labels_of_an_ome_zarr_behind_a_url(tmp_path, memory):
    group = zarr.create_group(str(tmp_path / "p.ome.zarr"))
    axes = [{"name": name, "type": "space"} for name in "yx"]
    levels = [{"path": str(n), "coordinateTransformations": [{"type": "scale", "scale": [2.0**n] * 2}]} for n in (0, 1)]
    group.attrs["ome"] = {"version": "0.5", "multiscales": [{"axes": axes, "datasets": levels}]}
    for number, size in ((0, 40), (1, 20)):
        group.create_array(str(number), data=np.full((size, size), number + 1, np.uint8), chunks=(16, 16))
    labels = zarr.create_group(str(tmp_path / "p.ome.zarr" / "labels"))
    labels.create_array("cells", data=np.ones((40, 40), np.uint8))
    for path in (tmp_path / "p.ome.zarr").rglob("*"):
        if path.is_file():
            memory.put(f"p.ome.zarr/{path.relative_to(tmp_path / 'p.ome.zarr')}", path.read_bytes())
    found = local_path(memory.url) / "p.ome.zarr"
    assert label_names(found) == ["labels/cells"]
    with open_array(found, level=1) as second:
        assert (second.header.levels, second.shape, second.read()[0, 0]) == (2, (20, 20), 2)


def test_a_folder_of_the_store_that_is_gone_leaves_no_empty_one(memory):
    memory.put("images/a.zarr/c/0", b"1")
    memory.put("images/b.png", b"1")
    tree = local_path(memory.url)
    memory.drop("images/a.zarr/c/0")
    memory.put("images/a.zarr", b"1")
    assert sorted(path.name for path in (local_path(memory.url) / "images").iterdir()) == ["a.zarr", "b.png"]
    assert read(tree / "images" / "a.zarr") == b"1"


def test_folders_of_this_machine_are_themselves(tmp_path):
    assert present_folder(tmp_path) == tmp_path
