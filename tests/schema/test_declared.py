"""What a schema declares is said in words, and found by key."""

from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field

from segmeter.losses.config import SumConfig
from segmeter.schema import Config, Unit
from segmeter.schema.declared import (
    MISSING,
    arms,
    child,
    choices,
    describe,
    item_of,
    known_keys,
    leaves,
    name_of,
    show,
    unit_of,
)


class Inner(Config):
    """A group."""

    size: Annotated[int, Unit("pixels")] = Field(3, ge=1)
    """How large."""


class Outer(Config):
    """A group of groups."""

    inner: Inner = Inner()
    """The group."""
    names: tuple[str, ...] = ()
    """Names."""


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        (Annotated[int, Field(ge=1, le=8)], "an integer >= 1 and <= 8"),
        (Annotated[float, Field(gt=0)] | None, "a number > 0 or null"),
        (Literal["a", "b"], "one of a, b"),
        (tuple[float, float], "a list of 2, each a number"),
        (tuple[Annotated[int, Field(ge=0)], ...], "a list, each an integer >= 0"),
        (dict[str, int], "a mapping, each value an integer"),
        (str | Path | None, "text or a path or null"),
        (Inner, "a group of keys"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_type_is_described_as_an_engineer_would(hint, words):
    assert describe(hint) == words


def test_alternatives_scalars_choices_and_units_are_found():
    assert list(arms(Annotated[int, Field(ge=1)] | None)) == [int, type(None)]
    assert set(leaves(tuple[int, ...] | dict[str, float])) == {int, str, float}
    assert choices(Literal["a", "b"] | None) == ["a", "b"]
    assert unit_of(tuple[Annotated[float, Unit("mm")], ...]) == "mm"
    assert unit_of(float) == ""


def test_groups_and_keys_are_followed_also_where_values_choose_the_schema():
    assert child(Outer, {}, "inner") is Inner
    assert child(Outer, {}, "names") is None
    assert list(known_keys(Outer, {})) == ["inner", "inner.size", "names"]
    assert "focal.gamma" in known_keys(SumConfig, {})
    assert (item_of({"a": [5]}, "a"), item_of([5], 0), item_of([5], 1)) == ([5], 5, MISSING)
    assert (name_of("unet"), name_of({"name": "unet"}), name_of(3)) == ("unet", "unet", "")


def test_values_are_shown_as_yaml_has_them_and_cut():
    assert show({"a": [None, True, 1.5, "x"]}) == "{a: [null, true, 1.5, 'x']}"
    assert show("y" * 500).endswith("y ...")
