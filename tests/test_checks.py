"""Validators and the one message template."""

import math
import os
from pathlib import Path

import numpy as np
import pytest

from segmeter.checks import (
    close_name,
    condense,
    expected,
    known_file,
    known_folder,
    known_name,
    known_path,
    real_number,
    real_numbers,
    shorten,
    shown,
    some,
    whole_number,
)
from segmeter.errors import InputError


def test_a_message_is_one_line_whatever_text_it_repeats():
    """A line break of a file's would look like a message of its own, and an escape would steer the terminal."""
    line = expected("a.mha", "header", "to have a value", "x\ny\x1b[31m\u202e\x00 \u00b5m", "Mend it.")
    assert line == r"a.mha: expected `header` to have a value, got x\ny\x1b[31m\u202e\x00 µm. Mend it."
    assert expected("loss", "gamma", ">= 0", -1, "Use 2.") == "loss: expected `gamma` >= 0, got -1. Use 2."


def test_equal_causes_are_said_once_and_their_places_listed():
    lines = [expected(f"m/{n}.png", "mask", "to be 3 x 4", f"{n} x 4") for n in range(14)]
    found = condense([*lines, "something else", lines[0]])
    assert len(found) == 3
    assert found[0] == lines[0]
    assert found[1].startswith("  the same in 13 more: 1.png, 2.png")
    assert found[1].endswith("10.png and 3 more")
    assert found[2] == "something else"


def test_places_with_the_separators_of_windows_are_shortened_too(monkeypatch):
    monkeypatch.setattr(os, "sep", "\\")
    found = condense([expected(rf"c:\data\{n}\a.png", "mask", "to be 3 x 4", "3 x 5") for n in "xyz"])
    assert found[1] == "  the same in 2 more: y/a.png, z/a.png"


def test_lists_are_cut_and_say_how_many_more_there_are():
    names = [f"n{i}" for i in range(5)]
    assert shorten(names) == "n0, n1, n2, n3, n4"
    assert shorten(names, most=5) == "n0, n1, n2, n3, n4"
    assert shorten(names, most=2, separator="; ", rest="more values") == "n0; n1 and 3 more values"
    assert shorten(["a\nb"]) == "'a\\nb'"  # one line stays one line
    assert some(iter("ba")) == "2: a, b"


@pytest.mark.parametrize("given", [3, 3.0, np.int8(3), np.float32(3)])
def test_whole_numbers_of_any_type_become_ints(given):
    found = whole_number("f", "n", given)
    assert (found, type(found)) == (3, int)


@pytest.mark.parametrize("given", [2.5, True, "3", None, math.nan, math.inf, [3]], ids=str)
def test_what_is_no_whole_number_is_refused(given):
    with pytest.raises(InputError, match="f: expected `n` to be a whole number"):
        whole_number("f", "n", given)


def test_real_numbers_are_floats_and_nothing_else_is_taken():
    assert real_number("f", "x", np.float64(0.5)) == 0.5
    assert real_numbers("f", "x", np.array([1, 2])) == (1.0, 2.0)
    for given in (True, "1", None):
        with pytest.raises(InputError, match="to be a number"):
            real_number("f", "x", given)
    for wrong in ("12", b"12", {1: 2}, [1, "2"], [True], 3):
        with pytest.raises(InputError, match="to be a sequence of numbers"):
            real_numbers("f", "x", wrong)


def test_names_and_paths():
    assert close_name("PQ/cell", ["sq/cell", "pq/cell", "iou/cell"]) == "Did you mean 'pq/cell'?"
    known_name("f", "mode", "fast", ("fast", "slow"))
    with pytest.raises(InputError, match=r"to be one of fast, slow, got 'fats'\. Did you mean 'fast'\?"):
        known_name("f", "mode", "fats", ("fast", "slow"))
    assert known_path("f", "path", "a/b") == Path("a/b")
    for given in ("", 3, None):
        with pytest.raises(InputError, match="to be a path"):
            known_path("f", "path", given)


def test_a_folder_to_fill_is_new_or_empty_and_a_file_to_write_lies_in_one(tmp_path):
    for path in (tmp_path / "a" / "b", tmp_path, "nowhere"):
        assert known_folder("f", "folder", path) == Path(path)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"f: expected `folder` to be new or empty, got .*Nothing is overwritten"):
        known_folder("f", "folder", tmp_path)
    with pytest.raises(InputError, match=r"to lie in a folder, got .*b, below the file .*file"):
        known_folder("f", "folder", tmp_path / "file" / "a" / "b")
    assert known_file("f", "path", str(tmp_path / "a")) == tmp_path / "a"
    with pytest.raises(InputError, match="f: expected `path` to lie in an existing folder, got '"):
        known_file("f", "path", tmp_path / "b" / "a")


def test_long_values_are_shown_by_their_type():
    assert shown("a  b\n") == "'a b\\n'"
    assert shown(np.zeros((40, 40))) == "ndarray of shape (40, 40)"
    assert shown(list(range(100))) == "list"
