"""A validation error becomes one line per key: what was expected, what was given, what to do."""

from typing import Literal

import pytest
from pydantic import Field, ValidationError

from segmeter.schema import Config, Given, rule
from segmeter.schema.invalid import RuleError, problems_by_key


class Small(Config):
    """A group."""

    size: int = Field(3, ge=1)
    """How large."""
    surface: Literal["border_pixels", "marching_cubes"] = "border_pixels"
    """Which."""
    connectivity: Literal["4", "8"] = "8"
    """Neighbours."""
    most: int = 9
    """At most."""

    @rule("most")
    @classmethod
    def _ordered(cls, most: int, given: Given) -> None:
        if most < given.size:
            raise RuleError("to be at least `size`", "Raise it.", key="most")


def found(values, **options):
    try:
        Small.model_validate(values)
    except ValidationError as error:
        return problems_by_key(error, Small, values, **options)
    return {}


@pytest.mark.parametrize(
    ("values", "key", "line"),
    [
        ({"size": 0}, "size", "config: expected `size` to be an integer >= 1, got 0."),
        ({"size": "x"}, "size", "config: expected `size` to be an integer >= 1, got 'x'."),
        ({"siz": 1}, "siz", "Did you mean 'size'?"),
        ({"surface": "A"}, "surface", "got 'A'. It is called 'border_pixels' now."),
        ({"surface": "B"}, "surface", "It is called 'marching_cubes' now."),
        ({"connectivity": "corners"}, "connectivity", "It is called '8' now."),
        ({"connectivity": "sides"}, "connectivity", "It is called '4' now."),
        ({"size": 8, "most": 7}, "most", "config: expected `most` to be at least `size`, got 7. Raise it."),
    ],
)
def test_each_wrong_key_gets_its_line(values, key, line):
    (text,) = found(values)[key]
    assert line in text


def test_all_keys_are_said_and_a_rule_that_reads_a_failed_key_is_not():
    assert list(found({"size": 0, "most": -1, "surface": "x"})) == ["size", "surface"]


def test_the_place_of_known_keys_is_added_to_an_unknown_one():
    lines = found({"size": 0, "nosuch": 1}, advice=lambda key: "See the help.")
    assert lines["nosuch"][0].endswith("See the help.")


def test_a_key_without_default_is_required():
    class Needed(Config):
        checkpoint: str
        """Which."""

    with pytest.raises(ValidationError) as caught:
        Needed.model_validate({})
    lines = problems_by_key(caught.value, Needed, {}, where="eval")
    assert lines == {"checkpoint": ["eval: `checkpoint` is required. Set checkpoint=VALUE."]}
