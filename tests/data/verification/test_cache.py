"""What is kept from one start to the next, and when it is not believed."""

import os

import numpy as np

from segmeter.data.verification import verify
from segmeter.data.verification.verify import load_rows, save_rows

DTYPE = np.dtype([("pixels", np.int64), ("sum", np.uint8, (3,))])


def rows(*pixels):
    found = np.zeros(len(pixels), DTYPE)
    found["pixels"] = pixels
    return found


def loaded(path, dtype=DTYPE):
    places, found = load_rows(path, dtype)
    return {name: int(found[place]["pixels"]) for name, place in places.items()}


def test_rows_are_found_again_and_newer_ones_replace_older(tmp_path):
    path = tmp_path / "a.verified"
    assert loaded(path) == {}
    save_rows(path, ["a", "b"], rows(1, 2))
    save_rows(path, ["b", "c"], rows(20, 3))
    assert loaded(path) == {"a": 1, "b": 20, "c": 3}
    assert loaded(path, np.dtype([("pixels", np.int32)])) == {}


def test_a_damaged_cache_never_gives_other_rows(tmp_path):
    path, outcomes = tmp_path / "a.verified", []
    save_rows(path, ["a", "b"], rows(1, 2))
    content = path.read_bytes()
    for at in range(len(content)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        outcomes.append(loaded(path))
    assert {} in outcomes
    assert all(found in ({}, {"a": 1, "b": 2}) for found in outcomes)
    for size in (0, 40, len(content) - 1):
        path.write_bytes(content[:size])
        assert loaded(path) == {}


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    save_rows(tmp_path / "cache" / "a.verified", ["a"], rows(1))
    assert loaded(tmp_path / "cache" / "a.verified") == {}


def test_what_was_used_least_recently_goes_first(tmp_path, monkeypatch):
    monkeypatch.setattr(verify, "MAX_FILES", 2)
    paths = [tmp_path / f"{number}.verified" for number in range(3)]
    for age, path in ((300, paths[0]), (100, paths[1])):
        save_rows(path, ["a"], rows(1))
        then = path.stat().st_mtime - age
        os.utime(path, (then, then))
    save_rows(paths[2], ["a"], rows(1))
    assert [path.exists() for path in paths] == [False, True, True]
