from pathlib import Path

import pytest

from segmeter.data.files.sniff import is_junk, name_format, open_regular, show, stem_of, volume_format
from segmeter.errors import DataError
from tests.data.crafted import encoded, noise, put


def test_format_is_told_by_content_without_reading_on_and_suffixes_of_one_format_are_equal(tmp_path):
    jpeg = encoded(noise(), "JPEG")
    for name in ("x.jpg", "x.JPEG"):
        with open_regular(put(tmp_path / name, jpeg)) as file:
            assert name_format(tmp_path / name, file.peek(64)[:64]) == "jpeg"
            assert file.read() == jpeg


@pytest.mark.parametrize(
    ("name", "junk"),
    [(".x.png", True), ("._a.png", True), ("__MACOSX", True), ("notes.TXT", True), ("a.png", False), ("a.gif", False)],
)
def test_junk_is_what_is_no_data(tmp_path, name, junk):
    assert is_junk(tmp_path / name) == junk


def test_show_keeps_one_harmless_line(tmp_path):
    assert show(tmp_path / "a b") == str(tmp_path / "a b")
    assert show(tmp_path / "a\nb\x1b[0m").endswith(r"a\nb\x1b[0m'")


def test_a_fault_while_reading_names_the_file(tmp_path):
    path = put(tmp_path / "x.png", b"content")
    with pytest.raises(DataError, match=r"x.png: expected `file` to be readable, got Input/output error"):
        with open_regular(path):
            raise OSError(5, "Input/output error")


def test_a_stem_is_the_name_without_its_whole_suffix():
    names = ["a.nii.gz", "a.OME.tif", "a.b.png", "a.ome.zarr", "a", "a.nii"]
    assert [stem_of(Path(name)) for name in names] == ["a", "a", "a.b", "a", "a", "a"]


def test_volume_formats_are_told_by_suffix_and_folders_are_zarr(tmp_path):
    formats = {"a.NII.GZ": "nifti", "a.nii": "nifti", "a.npz": "npz", "a.zarr": "zarr", "a.npy": None, "a.png": None}
    assert {name: volume_format(tmp_path / name) for name in formats} == formats
    assert volume_format(tmp_path) == "zarr"
