"""What a schema declares of its keys: types, ranges, choices, units and meanings, in words."""

import types
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, Union, get_args, get_origin, runtime_checkable

import annotated_types as bounds
from pydantic import BaseModel
from pydantic.fields import FieldInfo

MISSING: Any = object()  # where a value was not given

_KIND = {bool: "true or false", int: "an integer", float: "a number", str: "text", Path: "a path", type(None): "null"}
_SIGN = {bounds.Ge: ">=", bounds.Gt: ">", bounds.Le: "<=", bounds.Lt: "<"}
_LONGEST = 200  # characters of a given value that a line repeats


@runtime_checkable
class Choice(Protocol):
    """A field's marker whose values choose their own schema by name, such as a component of a registry."""

    group: str

    def names(self) -> list[str]:
        """What can be chosen."""
        ...

    def schema_of(self, values: Any) -> type[BaseModel] | None:
        """The schema that the values choose, or None where they choose none."""
        ...

    def having(self, key: str) -> list[str]:
        """The choices that have a key of this name."""
        ...


def arms(hint: Any) -> Iterator[Any]:
    """The alternatives of a type, without what annotates them."""
    origin = get_origin(hint)
    if origin is Annotated:
        yield from arms(get_args(hint)[0])
    elif origin in (Union, types.UnionType):
        yield from chain.from_iterable(arms(arm) for arm in get_args(hint))
    else:
        yield hint


def leaves(hint: Any) -> Iterator[Any]:
    """Every scalar type, model and kind of literal within a type."""
    for arm in arms(hint):
        if get_origin(arm) is Literal:
            yield from (type(name) for name in get_args(arm))
        elif get_args(arm):
            yield from chain.from_iterable(leaves(inner) for inner in get_args(arm) if inner is not ...)
        else:
            yield arm


def inner_hints(hint: Any) -> Iterator[Any]:
    """The types of what a list holds."""
    for arm in arms(hint):
        if get_origin(arm) is tuple:
            yield from (inner for inner in get_args(arm) if inner is not ...)


def marks(hint: Any) -> list[Any]:
    """What annotates a type: bounds, units, markers."""
    if get_origin(hint) is not Annotated:
        return []
    found: list[Any] = []
    for mark in (*get_args(hint)[1:], *marks(get_args(hint)[0])):
        found += mark.metadata if isinstance(mark, FieldInfo) else [mark]
    return found


def hint_of(field: FieldInfo) -> Any:
    """The type of a model's field with all that annotates it."""
    return Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation


def describe(hint: Any) -> str:
    """Say in words what a type takes: "an integer >= 1 or null", "one of gaussian, uniform"."""
    return " or ".join(dict.fromkeys(_describe(hint, ())))


def _describe(hint: Any, outer: tuple[Any, ...]) -> Iterator[str]:
    found = (*marks(hint), *outer)
    inner = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    if get_origin(inner) in (Union, types.UnionType):
        for arm in get_args(inner):
            yield from _describe(arm, found)
    elif any(hasattr(mark, "words") for mark in found) and inner is not type(None):
        yield next(mark.words() for mark in found if hasattr(mark, "words"))
    elif get_origin(inner) is Literal:
        yield f"one of {', '.join(show(name).strip(chr(39)) for name in get_args(inner))}"
    else:
        yield _describe_one(inner, found)


def _describe_one(hint: Any, found: tuple[Any, ...]) -> str:
    if get_origin(hint) is tuple:
        items = get_args(hint)
        if items[-1] is ...:
            return f"a list, each {describe(items[0])}{_range(found, ', of length ')}"
        return f"a list of {len(items)}, each {describe(items[0])}"
    if get_origin(hint) is dict:
        return f"a mapping, each value {describe(get_args(hint)[1])}"
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return "a group of keys"
    bounded = _range(found, "of length " if hint is str else "") if hint in (int, float, str) else ""
    return _KIND.get(hint, "a value") + bounded


def _range(found: tuple[Any, ...], prefix: str = "") -> str:
    parts = []
    for mark in found:
        for kind, sign in _SIGN.items():
            if isinstance(mark, kind):
                parts.append(f"{sign} {_number(getattr(mark, kind.__name__.lower()))}")
        if isinstance(mark, bounds.MultipleOf):
            parts.append(f"a multiple of {mark.multiple_of}")
        if isinstance(mark, bounds.MinLen) and prefix:
            parts.append(f"{prefix}>= {mark.min_length}")
    text = " and ".join(parts)
    return f" {text}" if text and not text.startswith(",") else text


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:g}"


def choices(hint: Any) -> list[str]:
    """The words that a key may be: those of a Literal or of a marker that lists them."""
    named = [str(show(name)).strip("'") for arm in arms(hint) if get_origin(arm) is Literal for name in get_args(arm)]
    return named + [name for mark in marks(hint) for name in getattr(mark, "choices", ())]


def choice_of(hint: Any) -> Choice | None:
    """The marker of a type whose values choose their own schema."""
    return next((mark for mark in marks(hint) if isinstance(mark, Choice)), None)


def unit_of(hint: Any) -> str:
    """The unit of a number, or of the numbers in a list; "" where there is none."""
    for mark in marks(hint):
        if hasattr(mark, "unit"):
            return str(mark.unit)
    inner = get_args(hint)[:1] if get_origin(hint) is Annotated else get_args(hint)
    return next(filter(None, map(unit_of, inner)), "")


def meaning(field: FieldInfo) -> str:
    """What a key means: its docstring, on one line."""
    return " ".join((field.description or "").split())


def child(model: Any, values: Any, key: str) -> type[BaseModel] | None:
    """The schema of the group that lies at a key, the one that the values choose where there are several."""
    field = model.model_fields.get(key) if model is not None else None
    if field is None:
        return None
    choice = choice_of(hint_of(field))
    inner = choice.schema_of(item_of(values, key)) if choice else field.annotation
    return inner if isinstance(inner, type) and issubclass(inner, BaseModel) else None


def item_of(value: Any, part: int | str) -> Any:
    """The item or attribute of a value, or `MISSING`."""
    if isinstance(value, Mapping):
        return value.get(part, value.get(int(part), MISSING) if str(part).isdigit() else MISSING)
    if isinstance(value, list | tuple) and isinstance(part, int):
        return value[part] if part < len(value) else MISSING
    return getattr(value, str(part), MISSING)


def name_of(values: Any) -> str:
    """The name in the values of a component, which may also be written alone."""
    name = values.get("name") if isinstance(values, Mapping) else getattr(values, "name", values)
    return name if isinstance(name, str) else ""


def show(value: Any) -> str:
    """A value as YAML writes it, but for text, which is quoted; cut where it is very long."""
    if value is None or isinstance(value, bool):
        text = {None: "null", True: "true", False: "false"}[value]
    elif isinstance(value, list | tuple):
        text = f"[{', '.join(show(item) for item in value)}]"
    elif isinstance(value, Mapping):
        text = f"{{{', '.join(f'{key}: {show(item)}' for key, item in value.items())}}}"
    else:
        text = repr(str(value) if isinstance(value, Path) else value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."


def known_keys(schema: type[BaseModel], values: Any, prefix: str = "") -> Iterator[str]:
    """Every key of a schema, with those of the components that the values choose."""
    for name in schema.model_fields:
        yield f"{prefix}{name}"
        if inner := child(schema, values, name):
            yield from known_keys(inner, item_of(values, name), f"{prefix}{name}.")
