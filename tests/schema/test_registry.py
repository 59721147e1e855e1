"""The registry: a name gives a schema and a builder, and never one that was not registered."""

import pytest

from segmeter.errors import ConfigError
from segmeter.schema import Config, Registry


class Square(Config, title="square"):
    name: str = "square"
    edge: int = 2


class Other(Config, title="other"):
    name: str = "square"


def area(config: Square, *, factor: int) -> int:
    return factor * config.edge**2


@pytest.fixture
def shapes() -> Registry:
    found = Registry("figure")
    found.register("square", builder=area)(Square)
    return found


def test_a_registered_name_gives_its_schema_and_is_built(shapes):
    assert shapes.names() == ["square"]
    assert shapes.schema("square") is Square
    assert shapes.build(Square(edge=3), factor=10) == 90


def test_a_builder_named_by_text_is_imported_when_something_is_built(shapes):
    shapes.register("late", builder="tests.schema.test_registry:area")(Other)
    shapes.register("nowhere", builder="no.such.module:build")(Square)  # not imported, as it is never built
    assert shapes.names() == ["late", "nowhere", "square"]

    class Late(Config, title="late"):
        name: str = "late"
        edge: int = 5

    assert shapes.build(Late(), factor=1) == 25


def test_an_unknown_name_is_refused_with_the_nearest_one(shapes):
    with pytest.raises(ConfigError, match=r"figure: expected a registered name, got 'sqare'\. Did you mean 'square'\?"):
        shapes.schema("sqare")


def test_a_name_is_taken_once_but_may_be_registered_again_by_the_same_schema(shapes):
    shapes.register("square", builder=area)(Square)  # as when a module is imported twice
    with pytest.raises(ConfigError, match="expected a new name, got 'square'"):
        shapes.register("square", builder=area)(Other)


def test_a_builder_with_other_arguments_is_one_line(shapes):
    with pytest.raises(ConfigError, match=r"builder of 'square' must take \(config, colour=\.\.\.\): .*'factor'"):
        shapes.build(Square(), colour="red")
