"""Errors: their lines and the exit codes that scripts rely on."""

import pytest

from segmeter import errors


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.SegmeterError, 3),
        (errors.RunError, 3),
        (errors.InputError, 2),
        (errors.ConfigError, 2),
        (errors.DataError, 2),
        (errors.CheckpointError, 2),
        (errors.Interrupted, 3),
    ],
)
def test_each_kind_of_error_has_its_exit_code_and_bad_input_is_a_value_error(kind, code):
    assert kind("one line").exit_code == code
    assert issubclass(kind, ValueError) == (code == 2)


def test_an_error_keeps_its_lines_and_shows_all_of_them():
    error = errors.DataError(["a.png: is empty.", "b.png: is empty."])
    assert error.problems == ("a.png: is empty.", "b.png: is empty.")
    assert str(error) == "a.png: is empty.\nb.png: is empty."
    assert errors.RunError("the disk is full").problems == ("the disk is full",)
    assert errors.OverflowedError("NaN", case_id="a").case_id == "a"
    assert errors.Interrupted("stopped", exit_code=143).exit_code == 143  # that of its signal
