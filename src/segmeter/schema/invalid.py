"""A pydantic ValidationError -> our lines: what was expected of a key, what was given, what to do."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from segmeter.checks import close_name, expected, nearest
from segmeter.errors import ConfigError
from segmeter.schema.declared import (
    MISSING,
    Choice,
    arms,
    choice_of,
    choices,
    describe,
    hint_of,
    item_of,
    known_keys,
    leaves,
    name_of,
    show,
)


class RuleError(ValueError):
    """A rule between keys that is broken; raised by a function that `segmeter.schema.rule` declares.

    Parameters
    ----------
    rule
        Completes "expected `key` ...", for example "to be 5 values, one per level of model.depth".
    remedy
        What to do, a sentence; "" where the rule says it.
    key
        Another key, from the same model on, that the line is about; "" for the declared one.
    """

    def __init__(self, rule: str, remedy: str = "", *, key: str = "") -> None:
        super().__init__(rule)
        self.rule, self.remedy, self.key = rule, remedy, key


@dataclass(frozen=True, kw_only=True)
class Written:
    """How a value was written, and where: "no" at mine.yaml:3; `place` is "" for the command line."""

    text: str
    place: str = ""


@dataclass(frozen=True, kw_only=True)
class _Spot:
    """Where an error is: its key, what is declared for it, what was given, and the schema that holds it."""

    key: str
    hint: Any
    given: Any
    holder: type[BaseModel] | None = None
    choice: Choice | None = None
    chosen: str = ""


def problem_lines(error: ValidationError, schema: type[BaseModel], values: Any, *, where: str) -> list[str]:
    """Write one line per key that is wrong: `problems_by_key` without the keys."""
    return [line for lines in problems_by_key(error, schema, values, where=where).values() for line in lines]


def problems_by_key(
    error: ValidationError,
    schema: type[BaseModel],
    values: Any,
    *,
    where: str = "config",
    written: Callable[[str], Written | None] = lambda key: None,
    advice: Callable[[str], str] = lambda key: "",
) -> dict[str, list[str]]:
    """Write one line per key that is wrong: expected, given, remedy.

    Parameters
    ----------
    error
        What ``schema.model_validate(values)`` raised.
    where
        The word that begins each line.
    written
        From a key to how and where its value was written, or to None where that is not known.
    advice
        From an unknown key to where the known ones are told.
    """
    lines: dict[str, list[str]] = {}
    for item in error.errors(include_url=False):
        cause, loc = item.get("ctx", {}).get("error"), item["loc"]
        if isinstance(cause, RuleError) and cause.key:
            loc = (*loc[:-1], *cause.key.split("."))
        spot = _follow(schema, values, loc)
        key = spot.key
        if key in lines:
            continue
        if item["type"] == "missing" and key.endswith(str(loc[-1])):
            lines[key] = [required(key, where)]
        elif item["type"] == "extra_forbidden":
            lines[key] = [f"{_unknown(spot, schema, values, where)} {advice(key)}".rstrip()]
        elif isinstance(cause, ConfigError):
            lines[key] = list(cause.problems)
        else:
            lines[key] = [_broken(spot, key, cause, item["input"], where, written(key))]
    return lines


def required(key: str, where: str = "config") -> str:
    """The line for a key that has no default and was not set."""
    return f"{where}: `{key}` is required. Set {key}=VALUE."


def _broken(spot: _Spot, key: str, cause: Exception | None, found: Any, where: str, written: Written | None) -> str:
    given = found if spot.given is MISSING else spot.given
    shown = f"{show(given)} ({written.place})" if written and written.place else show(given)
    if isinstance(cause, RuleError):
        return expected(where, key, cause.rule, shown, cause.remedy)
    if cause is not None:  # a validator of somebody else's schema
        return f"{where}: `{key}`: {cause}"
    return expected(where, key, f"to be {describe(spot.hint)}", shown, _remedy(spot.hint, given, written))


def _remedy(hint: Any, given: Any, written: Written | None) -> str:
    kinds, words = [*leaves(hint)], choices(hint)
    if str in kinds and isinstance(given, bool | int | float) and written and (not words or written.text in words):
        quoted = f"'{written.text}'"
        return f"Write {quoted}, in quotes." if written.place else f'Quote it twice, once for the shell: "{quoted}".'
    if isinstance(given, str | int | float) and any(get_origin(arm) is tuple for arm in arms(hint)):
        return "Write [a,b]." if not choices(hint) else close_name(str(given), choices(hint))
    if any(get_origin(arm) is dict for arm in arms(hint)):
        return "Write {key: value}."
    return close_name(str(given), choices(hint))


def _follow(schema: type[BaseModel], values: Any, loc: tuple[int | str, ...]) -> _Spot:
    """Walk to where an error is; what pydantic adds to the way (the arm of a union) ends the walk."""
    spot = _Spot(key="", hint=schema, given=values)
    for part in loc:
        following = _step(spot, part)
        if following is None:
            break
        spot = following
    return spot


def _step(spot: _Spot, part: int | str) -> _Spot | None:
    choice = choice_of(spot.hint)
    real = [arm for arm in arms(spot.hint) if arm is not type(None)]
    model = choice.schema_of(spot.given) if choice else real[0] if len(real) == 1 else None
    if isinstance(model, type) and issubclass(model, BaseModel):
        field = model.model_fields.get(str(part))
        chosen = name_of(spot.given) if choice else ""
        key = f"{spot.key}.{part}" if spot.key else str(part)
        hint = hint_of(field) if field else None
        return _Spot(key=key, hint=hint, given=item_of(spot.given, part), holder=model, choice=choice, chosen=chosen)
    items = get_args(model)
    if get_origin(model) is tuple and isinstance(part, int) and item_of(spot.given, part) is not MISSING:
        hint = items[0] if items[-1] is ... else items[min(part, len(items) - 1)]
        return _Spot(key=f"{spot.key}[{part}]", hint=hint, given=item_of(spot.given, part))
    if get_origin(model) is dict:
        return _Spot(key=f"{spot.key}.{part}", hint=items[1], given=item_of(spot.given, part))
    return None


def _unknown(spot: _Spot, schema: type[BaseModel], values: Any, where: str) -> str:
    parent, _, last = spot.key.rpartition(".")
    if last.startswith("_") and last.endswith("_"):
        return f"{where}: {spot.key!r} is not allowed: a configuration here holds values and never names code to run."
    if spot.choice and (others := spot.choice.having(last)):
        group = spot.choice.group
        return (
            f"{where}: unknown key {spot.key!r}: {group}={spot.chosen} has no {last}. "
            f"Those that have it: {', '.join(others)}."
        )
    known = [*known_keys(schema, values)]
    beside = [f"{parent}.{name}".lstrip(".") for name in spot.holder.model_fields] if spot.holder else known
    key, given = spot.key, spot.given
    while isinstance(given, Mapping) and len(given) == 1:  # a group that is unknown is named with its key
        ((name, given),) = given.items()
        key = f"{key}.{name}"
    same = [name for name in known if name.rpartition(".")[2] == last]
    close = close_name(spot.key, beside)
    hint = f"Did you mean {same[0]!r}?" if same and not close else nearest(spot.key, beside)
    return f"{where}: unknown key {key!r}. {hint}"
