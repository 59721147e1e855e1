"""Zarr behind a web server, which lists nothing: the names are those of its metadata."""

import json
import shutil
from threading import Barrier

import numpy as np
import pytest
import zarr

from segmeter.data.files.opened import open_array
from segmeter.data.files.zarr import label_names
from segmeter.data.masks.reading import read_values
from segmeter.errors import DataError
from segmeter.remote import zarr_names as module
from segmeter.remote.trees import local_path
from segmeter.remote.zarr_names import zarr_names

CODINGS = [
    {"zarr_format": 2},
    {"zarr_format": 2, "chunk_key_encoding": {"name": "v2", "separator": "/"}},
    {"zarr_format": 3},
    {"zarr_format": 3, "chunk_key_encoding": {"name": "default", "separator": "."}},
    {"zarr_format": 3, "chunk_key_encoding": {"name": "v2", "separator": "."}},
    {"zarr_format": 3, "shards": (32, 32)},
]

NOT_YET_OF_VERSION_3 = pytest.mark.filterwarnings("ignore:Consolidated metadata is currently not part")


def reader(folder):
    def read(name):
        return (folder / name).read_bytes() if (folder / name).is_file() else None

    return read


def files_of(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def numbers(*shape):
    return np.arange(1, 1 + np.prod(shape, dtype=int)).astype(np.uint16).reshape(shape)


@pytest.mark.parametrize("coding", CODINGS, ids=str)
@pytest.mark.parametrize("shape", [(50, 70), (3, 33), (0, 9)], ids=str)
def test_names_are_those_of_the_files_that_zarr_writes(tmp_path, coding, shape):
    """Mutations seen to fail: chunks rounded down; another separator; the chunks inside of shards."""
    zarr.create_array(str(tmp_path), data=numbers(*shape), chunks=(16, 16), attributes={"a": 1}, **coding)
    names = zarr_names("u", reader(tmp_path))
    assert len(names) == len(set(names))
    assert set(names) == files_of(tmp_path)


@pytest.mark.parametrize("version", [2, 3])
def test_an_array_without_axes_has_one_chunk(tmp_path, version):
    zarr.create_array(str(tmp_path), data=np.array(5, np.uint8), zarr_format=version)
    assert files_of(tmp_path) <= set(zarr_names("u", reader(tmp_path)))
    assert (zarr_names("u", reader(tmp_path))[-1] == "c") == (version == 3)


def write_picture(folder, version):
    """OME-Zarr of two levels with a label map of its own two levels."""
    group = zarr.create_group(str(folder), zarr_format=version)
    axes = [{"name": name, "type": "space"} for name in "yx"]
    steps = [[{"type": "scale", "scale": [2.0**n] * 2}] for n in (0, 1)]
    scales = {"axes": axes, "datasets": [{"path": str(n), "coordinateTransformations": steps[n]} for n in (0, 1)]}
    labels = group.create_group("labels")
    cells = labels.create_group("cells")
    for place, note in ((group, {"multiscales": [scales]}), (cells, {"multiscales": [scales]})):
        place.attrs.update({"ome": {"version": "0.5", **note}} if version == 3 else note)
        for number, size in ((0, 40), (1, 20)):
            place.create_array(str(number), data=numbers(size, size), chunks=(16, 16))
    labels.attrs.update({"ome": {"labels": ["cells"]}} if version == 3 else {"labels": ["cells"]})


@NOT_YET_OF_VERSION_3
@pytest.mark.parametrize("consolidated", [False, True])
@pytest.mark.parametrize("version", [2, 3])
def test_the_names_of_a_picture_with_labels(tmp_path, version, consolidated):
    write_picture(tmp_path, version)
    if consolidated:
        zarr.consolidate_metadata(str(tmp_path))
    assert files_of(tmp_path) <= set(zarr_names("u", reader(tmp_path)))


def test_zarr_on_a_web_server_is_read_as_here(web):
    """With a chunk of zeros, which has no file. Mutation seen to fail: an absent chunk taken for a lost one."""
    root, url = web
    labels = numbers(50, 70) % 3
    labels[16:32, :16] = 0
    zarr.create_array(str(root / "a.zarr"), data=labels, chunks=(16, 16), dimension_names=("y", "x"))
    path = local_path(f"{url}/a.zarr")
    assert path.name == "a.zarr"
    np.testing.assert_array_equal(read_values(path, max_pixels=10**6).values, labels)


def test_a_picture_on_a_web_server_has_its_levels_and_labels(web):
    root, url = web
    write_picture(root / "p.ome.zarr", 3)
    path = local_path(f"{url}/p.ome.zarr")
    with open_array(path, level=1) as second:
        assert (second.header.levels, second.shape, second.read()[0, 1]) == (2, (20, 20), 2)
    assert label_names(path) == ["labels/cells"]


def test_a_chunk_that_changes_after_it_was_looked_at_is_refused(web):
    root, url = web
    zarr.create_array(str(root / "a.zarr"), data=numbers(20, 20), chunks=(16, 16), dimension_names=("y", "x"))
    path = local_path(f"{url}/a.zarr")
    (root / "a.zarr/c/1/1").unlink()
    with pytest.raises(DataError, match=r"a.zarr/c/1/1: expected `object` to be there"):
        read_values(path, max_pixels=10**6)


@NOT_YET_OF_VERSION_3
def test_what_names_nothing_is_refused(web):
    root, url = web
    (root / "empty.zarr").mkdir()
    with pytest.raises(DataError, match=r"empty.zarr: expected `Zarr folder` to have zarr.json, .zarray or .zgroup"):
        local_path(f"{url}/empty.zarr")
    group = zarr.create_group(str(root / "plain.zarr"))
    group.create_array("a", data=numbers(4, 4))
    with pytest.raises(DataError, match=r"to name its arrays, as a web server lists nothing, got none. Consolidate"):
        local_path(f"{url}/plain.zarr")
    zarr.consolidate_metadata(str(root / "plain.zarr"))
    np.testing.assert_array_equal(read_values(local_path(f"{url}/plain.zarr"), max_pixels=10**6).values, numbers(4, 4))


def spoilt(**changes):
    def change(note):
        note.update(changes)

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (spoilt(shape=[10**12, 10**12]), "at most 100000 chunks"),
        (spoilt(shape=[1.5, 4]), "shape"),
        (spoilt(shape=[4]), "argument"),
        (spoilt(chunk_grid={"name": "regular", "configuration": {"chunk_shape": [0, 4]}}), "chunks"),
        (spoilt(chunk_grid={"name": "rectilinear"}), "rectilinear"),
        (spoilt(chunk_key_encoding={"name": "default", "configuration": {"separator": "/../"}}), "separator"),
        (spoilt(node_type="table"), "node_type 'table'"),
        (lambda note: note.pop("shape"), "KeyError"),
    ],
)
def test_hostile_metadata_are_refused(tmp_path, change, message):
    zarr.create_array(str(tmp_path), data=numbers(4, 4))
    note = json.loads((tmp_path / "zarr.json").read_text())
    change(note)
    (tmp_path / "zarr.json").write_text(json.dumps(note))
    with pytest.raises(DataError, match=message) as caught:
        zarr_names("u", reader(tmp_path))
    assert str(caught.value).count("expected") == 1  # the line itself, not a line about it


def test_names_are_counted_over_all_arrays(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MOST_NAMES", 20)
    write_picture(tmp_path, 3)
    with pytest.raises(DataError, match="at most 20 chunks"):
        zarr_names("u", reader(tmp_path))


def test_a_level_that_leads_elsewhere_is_refused(web):
    root, url = web
    write_picture(root / "p.zarr", 3)
    shutil.copytree(root / "p.zarr", root / "other.zarr")
    note = json.loads((root / "p.zarr/zarr.json").read_text())
    note["attributes"]["ome"]["multiscales"][0]["datasets"][0]["path"] = "../other.zarr/0"
    (root / "p.zarr/zarr.json").write_text(json.dumps(note))
    with pytest.raises(DataError, match=r"to have names that can be those of files, got '../other.zarr/0/zarr.json'"):
        local_path(f"{url}/p.zarr")


@NOT_YET_OF_VERSION_3
def test_a_consolidated_label_does_not_hide_its_neighbours(tmp_path):
    """Mutation seen to fail: no group is searched after the first that is consolidated."""
    write_picture(tmp_path, 3)
    labels = zarr.open_group(str(tmp_path / "labels"))
    labels.attrs["ome"] = {"labels": ["a", "b", "c"]}
    for name in "abc":
        shutil.copytree(tmp_path / "labels/cells", tmp_path / "labels" / name)
    shutil.rmtree(tmp_path / "labels/cells")
    zarr.consolidate_metadata(str(tmp_path / "labels/b"))
    assert files_of(tmp_path) <= set(zarr_names("u", reader(tmp_path)))


@NOT_YET_OF_VERSION_3
def test_an_array_that_consolidated_metadata_name_and_that_is_gone_is_refused(tmp_path):
    zarr.create_group(str(tmp_path)).create_array("gone", data=numbers(4, 4))
    zarr.consolidate_metadata(str(tmp_path))
    shutil.rmtree(tmp_path / "gone")
    with pytest.raises(DataError, match=r"^u/gone: expected `Zarr folder` to have .* If it was deleted, take"):
        zarr_names("u", reader(tmp_path))


def test_a_refusal_to_read_is_said_as_it_is():
    def read(name):
        raise DataError(f"{name}: 403")

    with pytest.raises(DataError, match=r"^zarr.json: 403$"):
        zarr_names("u", read)


def test_metadata_nested_too_deep_are_refused_at_once(web):
    """Mutation seen to fail: RecursionError not caught, so that the store asks again and again."""
    root, url = web
    (root / "deep.zarr").mkdir()
    (root / "deep.zarr/zarr.json").write_text("[" * 200_000)
    with pytest.raises(DataError, match="`metadata` to be those of Zarr 2 or 3, got RecursionError"):
        local_path(f"{url}/deep.zarr")


@NOT_YET_OF_VERSION_3
def test_arrays_of_a_group_are_read_at_once(tmp_path):
    group = zarr.create_group(str(tmp_path))
    for name in "abcd":
        group.create_array(name, data=numbers(4, 4))
    zarr.consolidate_metadata(str(tmp_path))
    together = Barrier(4, timeout=20)

    def read(name):
        if "/" in name:
            together.wait()
        return reader(tmp_path)(name)

    assert files_of(tmp_path) == set(zarr_names("u", read))
