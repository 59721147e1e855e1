"""Validators, the one message template, and errors with the exit codes that scripts rely on."""

import math
import os
from pathlib import Path

import numpy as np
import pytest

from segmeter import checks, errors
from segmeter.errors import InputError


def test_a_message_is_one_line_whatever_text_it_repeats():
    """A line break of a file's would look like a message of its own, and an escape would steer the terminal."""
    line = checks.expected("a.mha", "header", "to have a value", "x\ny\x1b[31m\u202e\x00 \u00b5m", "Mend it.")
    assert line == r"a.mha: expected `header` to have a value, got x\ny\x1b[31m\u202e\x00 µm. Mend it."
    assert checks.expected("loss", "gamma", ">= 0", -1, "Use 2.") == "loss: expected `gamma` >= 0, got -1. Use 2."


def test_equal_causes_are_said_once_and_their_places_listed(monkeypatch):
    lines = [checks.expected(f"m/{n}.png", "mask", "to be 3 x 4", f"{n} x 4") for n in range(14)]
    first, others, rest = checks.condense([*lines, "something else", lines[0]])
    assert (first, rest) == (lines[0], "something else")
    assert others.startswith("  the same in 13 more: 1.png, 2.png")
    assert others.endswith("10.png and 3 more")
    monkeypatch.setattr(os, "sep", "\\")  # on Windows
    found = checks.condense([checks.expected(rf"c:\data\{n}\a.png", "mask", "to be 3 x 4", "3 x 5") for n in "xyz"])
    assert found[1] == "  the same in 2 more: y/a.png, z/a.png"


def test_lists_are_cut_and_say_how_many_more_there_are():
    names = [f"n{i}" for i in range(5)]
    assert checks.shorten(names, most=5) == "n0, n1, n2, n3, n4"
    assert checks.shorten(names, most=2, separator="; ", rest="more values") == "n0; n1 and 3 more values"
    assert checks.shorten(["a\nb"]) == "'a\\nb'"  # one line stays one line
    assert checks.some(iter("ba")) == "2: a, b"


def test_numbers_of_any_type_become_plain_ones():
    found = [checks.whole_number("f", "n", given) for given in (3, 3.0, np.int8(3), np.float32(3))]
    assert [(each, type(each)) for each in found] == [(3, int)] * 4
    assert checks.real_number("f", "x", np.float64(0.5)) == 0.5
    assert checks.real_numbers("f", "x", np.array([1, 2])) == (1.0, 2.0)


@pytest.mark.parametrize(("check", "given", "rule"), [
    *((checks.whole_number, given, "a whole number") for given in (2.5, True, "3", None, math.nan, math.inf, [3])),
    *((checks.real_number, given, "a number") for given in (True, "1", None)),
    *((checks.real_numbers, given, "a sequence of numbers") for given in ("12", b"12", {1: 2}, [1, "2"], [True], 3)),
    *((checks.require_path, given, "a path") for given in ("", 3, None)),
], ids=lambda value: getattr(value, "__name__", str(value)))  # fmt: skip
def test_what_is_no_number_or_path_is_refused(check, given, rule):
    with pytest.raises(InputError, match=f"f: expected `n` to be {rule}"):
        check("f", "n", given)


def test_names_and_paths():
    assert checks.close_name("PQ/cell", ["sq/cell", "pq/cell", "iou/cell"]) == "Did you mean 'pq/cell'?"
    checks.require_name("f", "mode", "fast", ("fast", "slow"))
    with pytest.raises(InputError, match=r"to be one of fast, slow, got 'fats'\. Did you mean 'fast'\?"):
        checks.require_name("f", "mode", "fats", ("fast", "slow"))
    assert checks.require_path("f", "path", "a/b") == Path("a/b")


def test_a_folder_to_fill_is_new_or_empty_and_a_file_to_write_lies_in_one(tmp_path):
    for path in (tmp_path / "a" / "b", tmp_path, "nowhere"):
        assert checks.require_folder("f", "folder", path) == Path(path)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"f: expected `folder` to be new or empty, got .*Nothing is overwritten"):
        checks.require_folder("f", "folder", tmp_path)
    with pytest.raises(InputError, match=r"to lie in a folder, got .*b, below the file .*file"):
        checks.require_folder("f", "folder", tmp_path / "file" / "a" / "b")
    assert checks.require_file("f", "path", str(tmp_path / "a")) == tmp_path / "a"
    with pytest.raises(InputError, match="f: expected `path` to lie in an existing folder, got '"):
        checks.require_file("f", "path", tmp_path / "b" / "a")


def test_long_values_are_shown_by_their_type():
    assert checks.shown("a  b\n") == "'a b\\n'"
    assert checks.shown(np.zeros((40, 40))) == "ndarray of shape (40, 40)"
    assert checks.shown(list(range(100))) == "list"


KINDS = {"SegmeterError": 3, "RunError": 3, "Interrupted": 3}
KINDS |= {"InputError": 2, "ConfigError": 2, "DataError": 2, "CheckpointError": 2}


@pytest.mark.parametrize(("kind", "code"), KINDS.items())
def test_each_kind_of_error_has_its_exit_code_and_bad_input_is_a_value_error(kind, code):
    kind = getattr(errors, kind)
    assert kind("one line").exit_code == code
    assert issubclass(kind, ValueError) == (code == 2)


def test_an_error_keeps_its_lines_and_shows_all_of_them():
    error = errors.DataError(["a.png: is empty.", "b.png: is empty."])
    assert error.problems == ("a.png: is empty.", "b.png: is empty.")
    assert str(error) == "a.png: is empty.\nb.png: is empty."
    assert errors.RunError("the disk is full").problems == ("the disk is full",)
    assert errors.OverflowedError("NaN", case_id="a").case_id == "a"
    assert errors.Interrupted("stopped", exit_code=143).exit_code == 143  # that of its signal
