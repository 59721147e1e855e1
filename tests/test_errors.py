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
    ],
)
def test_each_kind_of_error_has_its_exit_code(kind, code):
    assert kind("one line").exit_code == code


def test_an_error_keeps_its_lines_and_shows_all_of_them():
    error = errors.DataError(["a.png: is empty.", "b.png: is empty."])
    assert error.problems == ("a.png: is empty.", "b.png: is empty.")
    assert str(error) == "a.png: is empty.\nb.png: is empty."
    assert errors.RunError("the disk is full").problems == ("the disk is full",)


def test_bad_input_is_a_value_error_and_a_fault_while_running_is_none():
    assert issubclass(errors.InputError, ValueError)
    assert not issubclass(errors.RunError, ValueError)


def test_an_interruption_has_the_code_of_its_signal():
    assert errors.Interrupted("stopped", exit_code=143).exit_code == 143
    assert errors.Interrupted.exit_code == 3
    assert errors.OverflowedError("NaN", case_id="a").case_id == "a"
