"""Files of folders by name, and everything that keeps names from being paired."""

import pytest

from segmeter.data.pairing import list_files, missing_problem, only_alike, twice_problems
from segmeter.errors import DataError
from tests.data.crafted import put


def test_files_are_found_by_name_and_notes_passed_over(tmp_path):
    for name in ("b.png", "a.TIF", "a.b.npy", ".hidden.png", "notes.txt", "__MACOSX"):
        put(tmp_path / name, b"x")
    found = list_files(tmp_path, role="images")
    assert found == {"a": [tmp_path / "a.TIF"], "a.b": [tmp_path / "a.b.npy"], "b": [tmp_path / "b.png"]}


def test_a_double_suffix_is_one_where_that_is_asked_for(tmp_path):
    for name in ("a.nii.gz", "b.npz", "c.ome.tif"):
        put(tmp_path / name, b"x")
    assert sorted(list_files(tmp_path, role="masks", whole_suffix=True)) == ["a", "b", "c"]
    assert sorted(list_files(tmp_path, role="masks")) == ["a", "b", "c.ome"]


def test_text_files_are_masks_only_in_a_folder_of_nothing_else(tmp_path):
    for name in ("a.txt", "b.txt", "classes.txt"):
        put(tmp_path / name, b"x")
    assert sorted(list_files(tmp_path, role="masks")) == ["a", "b"]
    with pytest.raises(DataError, match="files, got none"):
        list_files(tmp_path, role="images")
    put(tmp_path / "c.png", b"x")
    assert sorted(list_files(tmp_path, role="masks")) == ["c"]


def test_two_files_of_one_name_and_names_alike_are_named():
    first, second = twice_problems({"a": ["a.png", "a.tif"], "Ä": ["Ä.png"], "a\u0308": ["a\u0308.png"]}, "masks")
    assert "as for 'a', got 2: a.png, a.tif" in first
    assert "differ in more than upper and lower case or Unicode form" in second


def test_missing_names_come_with_the_one_that_is_nearly_there():
    assert missing_problem(["a"], {"a": 1}, what="a mask", remedy="") == []
    (line,) = missing_problem(["a", "b"], {"A": 1}, what="a mask", remedy="Add it.")
    assert "none for 2: a, b. 'a' and 'A' differ only in upper and lower case" in line
    (line,) = missing_problem(["b"], {"A": 1}, what="a mask", remedy="Add it.")
    assert line.endswith("Add it.")
    assert only_alike(["a", "b", "C"], ["A", "C"]) == ["a"]
