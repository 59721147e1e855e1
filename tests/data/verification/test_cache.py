"""What is kept from one start to the next, and when it is not believed."""

import os

import numpy as np
import pytest

from segmeter.data.verification import cache
from segmeter.data.verification.cache import SETTLED_SECONDS, VerifiedFiles, is_settled

DTYPE = np.dtype([("pixels", np.int64), ("sum", np.uint8, (3,))])


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("SEGMETER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def rows(*pixels):
    found = np.zeros(len(pixels), DTYPE)
    found["pixels"] = pixels
    return found


def loaded(kept):
    places, found = kept.load()
    return {name: int(found[place]["pixels"]) for name, place in places.items()}


def test_rows_are_found_again_and_newer_ones_replace_older():
    kept = VerifiedFiles({"task": "binary"}, DTYPE)
    assert loaded(kept) == {}
    kept.save(["a", "b"], rows(1, 2))
    kept.save(["b", "c"], rows(20, 3))
    assert loaded(VerifiedFiles({"task": "binary"}, DTYPE)) == {"a": 1, "b": 20, "c": 3}


def test_other_settings_and_other_rows_share_nothing():
    VerifiedFiles({"task": "binary"}, DTYPE).save(["a"], rows(1))
    assert loaded(VerifiedFiles({"task": "multiclass"}, DTYPE)) == {}
    assert loaded(VerifiedFiles({"task": "binary"}, np.dtype([("pixels", np.int32)]))) == {}


def test_a_damaged_cache_never_gives_other_rows():
    kept = VerifiedFiles({}, DTYPE)
    kept.save(["a", "b"], rows(1, 2))
    content = kept.path.read_bytes()
    outcomes = []
    for at in range(len(content)):
        kept.path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        outcomes.append(loaded(kept))
    assert {} in outcomes
    assert all(found in ({}, {"a": 1, "b": 2}) for found in outcomes)
    for size in (0, 40, len(content) - 1):
        kept.path.write_bytes(content[:size])
        assert loaded(kept) == {}


def test_a_cache_that_cannot_be_written_is_no_error(folder):
    folder.write_text("a file where the folder should be")
    kept = VerifiedFiles({}, DTYPE)
    kept.save(["a"], rows(1))
    assert loaded(kept) == {}


def test_what_was_used_least_recently_goes_first(folder, monkeypatch):
    monkeypatch.setattr(cache, "MAX_FILES", 2)
    kept = [VerifiedFiles(number, DTYPE) for number in range(3)]
    for age, each in ((300, kept[0]), (100, kept[1])):
        each.save(["a"], rows(1))
        then = each.path.stat().st_mtime - age
        os.utime(each.path, (then, then))
    kept[2].save(["a"], rows(1))
    assert [each.path.exists() for each in kept] == [False, True, True]


def test_only_files_left_alone_for_long_enough_are_trusted():
    limit = int(SETTLED_SECONDS * 1e9)
    states = np.array([[9, 0, 0, 1], [9, limit, 0, 1], [9, 0, limit, 1]])
    assert is_settled(states, 2 * limit + 1).tolist() == [True, True, True]
    assert is_settled(states, 2 * limit).tolist() == [True, False, False]
    assert is_settled(states, limit).tolist() == [False, False, False]
