from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from segmeter.checks import collecting
from segmeter.cli.convert import as_plain, component, convert, defaults
from segmeter.errors import ConfigError
from segmeter.registry import Registry

SHAPES = Registry("shape")


@SHAPES.register("disc", builder=lambda config: config)
@dataclass(frozen=True, kw_only=True)
class Disc:
    name: str = "disc"
    radius: float = 1.0

    def __post_init__(self) -> None:
        with collecting("shape") as problems:
            problems.in_range("radius", self.radius, 0)


@dataclass(frozen=True, kw_only=True)
class Inner:
    depth: int = 3
    mode: Literal["auto", True, False] = "auto"

    def __post_init__(self) -> None:
        with collecting("inner") as problems:
            problems.in_range("depth", self.depth, 1, 7)


@dataclass(frozen=True, kw_only=True)
class Root:
    path: Path
    names: tuple[str, ...] = ()
    pair: tuple[int, int] = (1, 2)
    weights: tuple[float, ...] | Literal["auto"] | None = None
    table: dict[str, int] = field(default_factory=dict)
    inner: Inner = field(default_factory=Inner)
    shape: Any = component(SHAPES)
    shapes: tuple[Any, ...] = field(default=(), metadata={"registry": SHAPES})


GOOD = {"path": "a/b", "shape": {"name": "disc"}}


def problems_of(**values: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        convert(Root, {**GOOD, **values})
    return list(caught.value.problems)


def test_convert_builds_every_kind_of_field() -> None:
    root = convert(
        Root,
        {
            "path": "a/b",
            "names": ["x"],
            "pair": [3, 4],
            "weights": [1, 2.5],
            "table": {255: 1},
            "inner": {"depth": 2, "mode": False},
            "shape": {"name": "disc", "radius": 2},
            "shapes": [{"name": "disc"}],
        },
    )
    assert root == Root(
        path=Path("a/b"),
        names=("x",),
        pair=(3, 4),
        weights=(1.0, 2.5),
        table={"255": 1},
        inner=Inner(depth=2, mode=False),
        shape=Disc(radius=2.0),
        shapes=(Disc(),),
    )
    assert isinstance(root.shape.radius, float)


def test_a_bare_name_is_a_component_with_its_defaults() -> None:
    root = convert(Root, {**GOOD, "shape": "disc", "shapes": ["disc", {"name": "disc", "radius": 3}]})
    assert root.shape == Disc()
    assert root.shapes == (Disc(), Disc(radius=3.0))


def test_defaults_and_as_plain_round_trip() -> None:
    values = defaults(Root) | GOOD
    assert values["path"] == "a/b"
    assert defaults(Root)["path"] == "???"
    assert as_plain(convert(Root, values)) == values | {"shape": {"name": "disc", "radius": 1.0}, "shapes": []}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"inner": {"dpth": 3}}, "unknown key 'inner.dpth'. Did you mean 'inner.depth'?"),
        ({"inner": {"depth": "banana"}}, "`inner.depth` to be an integer, got 'banana'"),
        ({"inner": {"depth": True}}, "`inner.depth` to be an integer, got True"),
        ({"inner": {"depth": 2.0}}, "`inner.depth` to be an integer, got 2.0"),
        ({"inner": {"depth": 0}}, "inner: expected `depth` >= 1 and <= 7, got 0"),
        ({"inner": {"mode": "atuo"}}, "one of auto, True, False, got 'atuo'. Did you mean 'auto'?"),
        ({"inner": {"mode": 1}}, "`inner.mode` to be one of"),
        ({"inner": 3}, "`inner` to be a group of keys, got 3"),
        ({"names": [False]}, "`names[0]` to be text, got False. Quote it"),
        ({"names": "x"}, "`names` to be a list (of text), got 'x'. Write [a,b]."),
        ({"pair": [1]}, "`pair` to have 2 values, got [1]"),
        ({"weights": "best"}, "`weights` to be a list (of a number) or one of auto or null, got 'best'"),
        ({"table": {"a": "b"}}, "`table.a` to be an integer, got 'b'"),
        ({"path": "???"}, "`path` is required. Set path=VALUE."),
        ({"shape": {"name": "dsic"}}, "got 'dsic'. Did you mean 'disc'?"),
        ({"shape": {"radius": 1}}, "`shape` to name a shape, one of disc"),
        ({"shapes": [{"name": "disc", "radius": -1}]}, "shape: expected `radius` >= 0"),
        ({"shapes": ["disc", "dsic"]}, "got 'dsic'. Did you mean 'disc'?"),
        ({"shapes": [{"name": ["disc"]}]}, "`shapes[0]` to name a shape, one of disc"),
        ({"_target_": "os.system"}, "'_target_' is not allowed: a configuration here holds values"),
        ({"shape": {"name": "disc", "_target_": "os.system"}}, "'shape._target_' is not allowed"),
    ],
)
def test_convert_names_what_is_wrong(values: dict[str, Any], message: str) -> None:
    (problem,) = problems_of(**values)
    assert message in problem
    assert "\n" not in problem


def test_convert_says_everything_at_once() -> None:
    problems = problems_of(names=[1], inner={"depth": 9, "mode": "x"}, shape={"name": "disc", "radius": -1}, nosuch=1)
    assert len(problems) == 5
    assert any("`depth` >= 1 and <= 7, got 9" in line for line in problems)  # checked although `mode` failed
