"""A key is described in words from its JSON Schema, and found by following values."""

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from segmeter.losses.config import SumConfig
from segmeter.schema import Config, Unit
from segmeter.schema.declared import MISSING, item_of, known_keys, node_of, show
from segmeter.schema.registry import name_of


class Inner(Config):
    """A group."""

    size: Annotated[int, Unit("pixels")] = Field(3, ge=1)
    """How
    large."""


class Outer(Config):
    """A group of groups."""

    inner: Inner = Inner()
    """The group."""
    names: tuple[str, ...] = ()
    """Names."""
    bounded: Annotated[int, Field(ge=1, le=8)]
    positive: Annotated[float, Field(gt=0)] | None
    word: Literal["a", "b"] | None
    pair: tuple[Annotated[float, Unit("mm")], float]
    counts: tuple[Annotated[int, Field(ge=0)], ...]
    many: tuple[int, ...] = Field((), min_length=2)
    table: dict[str, int]
    place: str | Path | None
    text: str = Field("x", min_length=1)
    large: int = Field(0, le=2**32 - 1)
    multiple: int = Field(4, multiple_of=4)
    either: Literal["auto", True]
    whatever: Any = None


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("bounded", "an integer >= 1 and <= 8"),
        ("positive", "a number > 0 or null"),
        ("word", "one of a, b or null"),
        ("pair", "a list of 2, each a number"),
        ("counts", "a list, each an integer >= 0"),
        ("many", "a list, each an integer, of length >= 2"),
        ("table", "a mapping, each value an integer"),
        ("place", "text or a path or null"),
        ("text", "text of length >= 1"),
        ("large", "an integer <= 4294967295"),
        ("multiple", "an integer a multiple of 4"),
        ("either", "one of auto, true"),
        ("whatever", "a value"),
        ("inner", "a group of keys"),
    ],
)
def test_a_type_is_described_as_an_engineer_would(key, words):
    assert node_of(Outer).keys[key].describe() == words


def test_kinds_choices_units_defaults_and_meanings_are_found():
    keys = node_of(Outer).keys
    assert keys["table"].kinds == {"integer"}
    assert keys["place"].kinds == {"string", "path", "null"}
    assert keys["either"].kinds == {"string", "boolean"}
    assert keys["word"].choices == ["a", "b"]
    assert (keys["pair"].unit, keys["counts"].unit) == ("mm", "")
    assert (keys["text"].default, keys["bounded"].default) == ("x", MISSING)
    assert node_of(Inner).keys["size"].meaning == "How large."


def test_groups_and_keys_are_followed_also_where_values_choose_the_schema():
    assert list(node_of(Outer).keys["inner"].group({}).keys) == ["size"]
    assert node_of(Outer).keys["names"].group({}) is None
    assert list(known_keys(node_of(Outer), {}))[:3] == ["inner", "inner.size", "names"]
    assert "focal.gamma" in known_keys(node_of(SumConfig), {})
    assert (item_of({"a": [5]}, "a"), item_of([5], 0), item_of([5], 1)) == ([5], 5, MISSING)
    assert (name_of("unet"), name_of({"name": "unet"}), name_of(3)) == ("unet", "unet", "")


def test_values_are_shown_as_yaml_has_them_and_cut():
    assert show({"a": [None, True, 1.5, "x"]}) == "{a: [null, true, 1.5, 'x']}"
    assert show("y" * 500).endswith("y ...")
