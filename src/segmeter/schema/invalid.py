"""Turns a pydantic ValidationError into our messages: one line per key, with the rule, the given value and a remedy."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from segmeter.checks import close_name, expected, nearest
from segmeter.errors import ConfigError
from segmeter.schema.json_schema import MISSING, Node, item_of, known_keys, node_of, text_of, text_with_quotes
from segmeter.schema.registry import Registry, name_of


class RuleError(ValueError):
    """A broken rule between keys. A function that `segmeter.schema.rule` declares raises it.

    Parameters
    ----------
    rule
        Completes "expected `key` ...", for example "to be 5 values, one per level of model.depth".
    remedy
        A sentence that says what to do; "" where the rule says it already.
    key
        The key that the line is about, as a path within the same model; "" for the key of the rule itself.
    """

    def __init__(self, rule: str, remedy: str = "", *, key: str = "") -> None:
        super().__init__(rule)
        self.rule, self.remedy, self.key = rule, remedy, key


@dataclass(frozen=True)
class _Spot:
    """Where an error is.

    Parameters
    ----------
    key, node, given
        The key, its schema, and the value given.
    group, group_values
        The schema of the group that holds the key, and its values; None for items of lists and mappings.
    choice
        The components from which a name in `group_values` chose the group's schema.
    """

    key: str
    node: Node | None
    given: Any
    group: Node | None = None
    choice: Registry | None = None
    group_values: Any = None


def problems_by_key(
    error: ValidationError,
    schema: type[BaseModel],
    values: Any,
    *,
    where: str = "config",
    advice: Callable[[str], str] = lambda key: "",
) -> dict[str, list[str]]:
    """Write one line per key that is wrong: expected, given, remedy.

    Parameters
    ----------
    error
        Raised by ``schema.model_validate(values)``.
    where
        The word that begins each line.
    advice
        Called with an unknown key, it returns a sentence to add to the key's line.
    """
    lines: dict[str, list[str]] = {}
    for item in error.errors(include_url=False):
        cause = item.get("ctx", {}).get("error")
        loc = item["loc"]
        if isinstance(cause, RuleError) and cause.key:
            loc = (*loc[:-1], *cause.key.split("."))
        spot = _follow(schema, values, loc)
        key = spot.key
        if key in lines:
            continue
        given = item["input"] if spot.given is MISSING else spot.given
        if item["type"] == "missing" and key.endswith(str(loc[-1])):
            lines[key] = [f"{where}: `{key}` is required. Set {key}=VALUE."]
        elif item["type"] == "extra_forbidden":
            lines[key] = [f"{_unknown(spot, schema, values, where)} {advice(key)}".rstrip()]
        elif isinstance(cause, ConfigError):
            lines[key] = list(cause.problems)
        elif isinstance(cause, RuleError):
            lines[key] = [expected(where, key, cause.rule, text_with_quotes(given), cause.remedy)]
        elif cause is not None or spot.node is None:  # a plugin's own validator failed
            lines[key] = [f"{where}: `{key}`: {cause}"]
        else:
            rule = f"to be {spot.node.describe()}"
            lines[key] = [expected(where, key, rule, text_with_quotes(given), _remedy(spot.node, given))]
    return lines


def _remedy(node: Node, given: Any) -> str:
    words = [text_of(choice) for choice in node.choices]
    is_number = isinstance(given, bool | int | float)
    takes_list = any(arm.items for arm in node.arms) and all(arm.schema.get("type") != "string" for arm in node.arms)
    if takes_list and (is_number or isinstance(given, str)):
        return close_name(str(given), words) if words else "Write [a,b]."
    if is_number and node.kinds & {"string", "path"} and (not words or text_with_quotes(given) in words):
        return "Write it in quotes. In a shell, write two pairs: \"'TEXT'\"."
    if any(arm.value for arm in node.arms):
        return "Write {key: value}, in quotes in a shell."
    return close_name(str(given), words)


def _follow(schema: type[BaseModel], values: Any, loc: tuple[int | str, ...]) -> _Spot:
    """Walk to where an error is. The walk ends at the name of a union's arm, which pydantic adds to the path."""
    spot = _Spot("", node_of(schema), values)
    for part in loc:
        arms = [arm for arm in spot.node.arms if arm.schema.get("type") != "null"] if spot.node else []
        if len(arms) != 1:
            break
        (node,) = arms
        given = item_of(spot.given, part)
        if (group := node.group(spot.given)) is not None:
            key = f"{spot.key}.{part}" if spot.key else str(part)
            spot = _Spot(key, group.keys.get(str(part)), given, group, node.choice, spot.given)
        elif node.items and isinstance(part, int) and given is not MISSING:
            spot = _Spot(f"{spot.key}[{part}]", node.items[min(part, len(node.items) - 1)], given)
        elif node.value:
            spot = _Spot(f"{spot.key}.{part}", node.value, given)
        else:
            break
    return spot


def _unknown(spot: _Spot, schema: type[BaseModel], values: Any, where: str) -> str:
    parent, _, last = spot.key.rpartition(".")
    if last.startswith("_") and last.endswith("_"):
        return f"{where}: {spot.key!r} is not allowed: a configuration here holds values and never names code to run."
    if spot.choice:
        others = [name for name in spot.choice.names() if last in spot.choice.schema(name).model_fields]
        if others:
            chosen = f"{spot.choice.group}={name_of(spot.group_values)} has no {last}"
            return f"{where}: unknown key {spot.key!r}: {chosen}. Those that have it: {', '.join(others)}."
    known = [*known_keys(node_of(schema), values)]
    siblings = [f"{parent}.{name}".lstrip(".") for name in spot.group.keys] if spot.group else known
    namesakes = [name for name in known if name.rpartition(".")[2] == last]
    close = close_name(spot.key, siblings)
    hint = f"Did you mean {namesakes[0]!r}?" if namesakes and not close else nearest(spot.key, siblings)
    return f"{where}: unknown key {spot.key!r}. {hint}"
