from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from segmeter.errors import ConfigError
from segmeter.schema import REQUIRED, Component, Config, OneOf, Registry, as_plain, defaults, rule
from segmeter.schema.invalid import RuleError

SHAPES = Registry("shape")


@SHAPES.register("disc", builder=lambda config: config)
class Disc(Config, title="shape"):
    name: str = "disc"
    radius: float = Field(1.0, ge=0)


@SHAPES.register("square", builder=lambda config: config)
class Square(Config, title="shape"):
    name: str = "square"
    edge: float = Field(1.0, gt=0)


class Inner(Config, title="inner"):
    depth: int = Field(3, ge=1, le=7)
    channels: tuple[int, ...] | None = None
    mode: Literal["auto", True, False] = "auto"

    @rule("mode")
    @classmethod
    def _one_per_level(cls, mode, given):
        if given.channels is not None and len(given.channels) != given.depth:
            raise RuleError(f"to be {given.depth} numbers, one per level of depth", "Add some.", key="channels")


class Root(Config, title="config"):
    path: Path
    names: tuple[str, ...] = ()
    tags: str | tuple[str, ...] = ()
    pair: tuple[int, int] = (1, 2)
    weights: tuple[float, ...] | Literal["auto"] | None = None
    scale: Literal["valid"] | Annotated[float, Field(gt=0)] = "valid"
    style: Annotated[str, OneOf("plain", "fancy", prefixes=("x-",))] = "plain"
    surface: Literal["border_pixels", "marching_cubes"] = "border_pixels"
    connectivity: Literal["4", "8"] = "8"
    table: dict[str, int] = Field(default_factory=dict)
    inner: Inner = Inner()
    shape: Annotated[Any, Component(SHAPES)]
    shapes: tuple[Annotated[Any, Component(SHAPES)], ...] = ()


GOOD = {"path": "a/b", "shape": {"name": "disc"}}


def problems_of(**values):
    with pytest.raises(ConfigError) as caught:
        Root(**{**GOOD, **values})
    assert not any("\n" in line for line in caught.value.problems)
    return list(caught.value.problems)


def test_plain_values_become_every_kind_of_field():
    groups = {
        "inner": {"depth": 2.0, "mode": False},
        "shape": {"name": "disc", "radius": 2},
        "shapes": [{"name": "disc"}],
    }
    root = Root(path="a/b", names=["x"], pair=[3, 4], weights=[1, 2.5], table={255: 1}, **groups)
    typed = {"inner": Inner(depth=2, mode=False), "shape": Disc(radius=2.0), "shapes": (Disc(),)}
    assert root == Root(path=Path("a/b"), names=("x",), pair=(3, 4), weights=(1.0, 2.5), table={"255": 1}, **typed)
    assert isinstance(root.shape.radius, float)
    assert type(root.inner.depth) is int  # a whole float is a count


def test_defaults_and_as_plain_round_trip():
    values = defaults(Root) | GOOD
    assert values["path"] == "a/b"
    assert defaults(Root)["path"] == "???"
    assert "shape" not in defaults(Root)
    assert as_plain(Root(**values)) == values | {"shape": {"name": "disc", "radius": 1.0}, "shapes": []}


def test_a_configuration_that_was_only_validated_within_another_becomes_plain():
    """pydantic before 2.14 refuses this: until someone asks for the inner one itself, its serializer isn't built."""

    class Within(Config):
        depth: int

    class Around(Config):
        within: Within
        shape: Annotated[Any, Component(SHAPES)] = None

    class Copied(Config):  # as in another process, which didn't validate it
        size: int

    assert as_plain(Around.model_validate({"within": {"depth": 2}, "shape": "disc"}).within) == {"depth": 2}
    copied = Around(within=Within(depth=2), shape=Copied.model_construct(size=3))
    assert as_plain(copied) == {"within": {"depth": 2}, "shape": {"size": 3}}


@pytest.mark.parametrize(("values", "message"), [
    ({"inner": {"dpth": 3}}, "unknown key 'inner.dpth'. Did you mean 'inner.depth'?"),
    ({"radius": 3}, "unknown key 'radius'. Did you mean 'shape.radius'?"),
    ({"inner": {"depth": "banana", "channels": [1]}}, "`inner.depth` to be an integer"),  # not channels too
    ({"inner": {"channels": [1]}}, "`inner.channels` to be 3 numbers, one per level of depth, got [1]. Add some."),
    ({"inner": {"depth": True}}, "`inner.depth` to be an integer >= 1 and <= 7, got true"),
    ({"inner": {"depth": "3"}}, "`inner.depth` to be an integer >= 1 and <= 7, got '3'"),
    ({"inner": {"depth": 2.5}}, "`inner.depth` to be an integer >= 1 and <= 7, got 2.5"),
    ({"inner": {"depth": 0}}, "config: expected `inner.depth` to be an integer >= 1 and <= 7, got 0"),
    ({"inner": {"mode": "atuo"}}, "one of auto, true, false, got 'atuo'. Did you mean 'auto'?"),
    ({"inner": {"mode": 1}}, "`inner.mode` to be one of auto, true, false, got 1"),
    ({"inner": 3}, "`inner` to be a group of keys, got 3"),
    ({"names": [False]}, "`names[0]` to be text, got false."),
    ({"names": "x"}, "`names` to be a list, each text, got 'x'. Write [a,b]."),
    ({"tags": 7}, "`tags` to be text or a list, each text, got 7. Write it in quotes. In a shell, write two"),
    ({"pair": [1]}, "`pair` to be a list of 2, each an integer, got [1]"),
    ({"weights": "best"}, "`weights` to be a list, each a number or one of auto or null, got 'best'"),
    ({"weights": [True]}, "got [true]"),
    ({"weights": [float("nan")]}, "got [nan]"),
    ({"scale": "vlaid"}, "`scale` to be one of valid or a number > 0, got 'vlaid'. Did you mean 'valid'?"),
    ({"scale": 0}, "`scale` to be one of valid or a number > 0, got 0"),
    ({"style": "fany"}, "`style` to be one of plain, fancy, x-..., got 'fany'. Did you mean 'fancy'?"),
    ({"style": "x-"}, "got 'x-'"),
    ({"surface": "A"}, "got 'A'. It is called 'border_pixels' now."),
    ({"surface": "B"}, "It is called 'marching_cubes' now."),
    ({"connectivity": "corners"}, "It is called '8' now."),
    ({"connectivity": "sides"}, "It is called '4' now."),
    ({"table": {"a": "b"}}, "`table.a` to be an integer, got 'b'"),
    ({"table": 3}, "`table` to be a mapping, each value an integer, got 3. Write {key: value}, in quotes"),
    ({"shape": {"name": "dsic"}}, "got 'dsic'. Did you mean 'disc'?"),
    ({"shape": {"radius": 1}}, "`shape` to name a shape, one of disc, square"),
    ({"shape": {"name": "square", "radius": 1}}, "'shape.radius': shape=square has no radius. Those that have it"),
    ({"shapes": [{"name": "disc", "radius": -1}]}, "`shapes[0].radius` to be a number >= 0, got -1"),
    ({"shapes": ["disc", "dsic"]}, "got 'dsic'. Did you mean 'disc'?"),
    ({"shapes": [{"name": ["disc"]}]}, "`shapes[0]` to name a shape, one of disc"),
    ({"_target_": "os.system"}, "'_target_' is not allowed: a configuration here holds values"),
    ({"shape": {"name": "disc", "_target_": "os.system"}}, "'shape._target_' is not allowed"),
])  # fmt: skip
def test_what_is_wrong_is_named_in_one_line(values, message):
    (problem,) = problems_of(**values)
    assert message in problem


def test_a_required_key_is_named():
    with pytest.raises(ConfigError, match=r"config: `path` is required. Set path=VALUE\."):
        Root(shape="disc")
    assert problems_of(path=REQUIRED) == ["config: `path` is required. Set path=VALUE."]


def test_a_configuration_can_not_be_changed_and_replacing_a_value_checks_it():
    with pytest.raises(ValueError, match="frozen"):
        Disc().radius = 2.0
    assert Disc().replace(radius=2) == Disc(radius=2.0)
    with pytest.raises(ConfigError, match=r"shape: expected `radius` to be a number >= 0, got -1.\nshape: unknown key"):
        Disc().replace(radius=-1, edge=1)
