"""A key is described in words from its JSON Schema; a registered name gives a schema and a builder."""

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from segmeter.errors import ConfigError
from segmeter.losses.config import SumConfig
from segmeter.schema import Config, Registry, Unit
from segmeter.schema.json_schema import MISSING, item_of, known_keys, node_of, text_with_quotes
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
    large: int = Field(0, le=2**63 - 1)
    multiple: int = Field(4, multiple_of=4)
    either: Literal["auto", True]
    whatever: Any = None


@pytest.mark.parametrize(("key", "words"), [
    ("bounded", "an integer >= 1 and <= 8"),
    ("positive", "a number > 0 or null"),
    ("word", "one of a, b or null"),
    ("pair", "a list of 2, each a number"),
    ("counts", "a list, each an integer >= 0"),
    ("many", "a list, each an integer, of length >= 2"),
    ("table", "a mapping, each value an integer"),
    ("place", "text or a path or null"),
    ("text", "text of length >= 1"),
    ("large", "an integer <= 9223372036854775807"),
    ("multiple", "an integer a multiple of 4"),
    ("either", "one of auto, true"),
    ("whatever", "a value"),
    ("inner", "a group of keys"),
])  # fmt: skip
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
    assert text_with_quotes({"a": [None, True, 1.5, "x"]}) == "{a: [null, true, 1.5, 'x']}"
    assert text_with_quotes("y" * 500).endswith("y ...")


class Square(Config, title="square"):
    name: str = "square"
    edge: int = 2


class Other(Config, title="other"):
    name: str = "late"
    edge: int = 5


def area(config, *, factor):
    return factor * config.edge**2


@pytest.fixture
def shapes():
    found = Registry("figure")
    found.register("square", builder=area)(Square)
    return found


def test_a_registered_name_gives_its_schema_and_is_built(shapes):
    assert shapes.names() == ["square"]
    assert shapes.schema("square") is Square
    assert shapes.build(Square(edge=3), factor=10) == 90


def test_a_builder_named_by_text_is_imported_when_something_is_built(shapes):
    shapes.register("late", builder="tests.schema.test_json_schema:area")(Other)
    shapes.register("nowhere", builder="no.such.module:build")(Square)  # not imported, as it is never built
    assert shapes.names() == ["late", "nowhere", "square"]
    assert shapes.build(Other(), factor=1) == 25


def test_an_unknown_name_is_refused_with_the_nearest_one(shapes):
    with pytest.raises(ConfigError, match=r"figure: expected a registered name, got 'sqare'\. Did you mean 'square'\?"):
        shapes.schema("sqare")


def test_a_name_is_taken_once_by_a_config_that_may_be_registered_again(shapes):
    shapes.register("square", builder=area)(Square)  # as when a module is imported twice
    with pytest.raises(ConfigError, match="expected a new name, got 'square'"):
        shapes.register("square", builder=area)(Other)
    with pytest.raises(ConfigError, match=r"must derive from segmeter\.schema\.Config"):
        shapes.register("line", builder=area)(dict)


def test_a_builder_with_other_arguments_is_one_line(shapes):
    with pytest.raises(ConfigError, match=r"builder of 'square' must take \(config, colour=\.\.\.\): .*'factor'"):
        shapes.build(Square(), colour="red")
