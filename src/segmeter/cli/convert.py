"""plain values -> frozen dataclasses, with every problem of a configuration said at once."""

import types
from collections.abc import Mapping
from dataclasses import MISSING, asdict, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from segmeter.checks import expected, nearest
from segmeter.errors import ConfigError
from segmeter.registry import Registry

Schema = TypeVar("Schema")

UNSET = "???"  # what Hydra writes where a value must be given
_FAILED = object()
_KIND = {bool: "true or false", int: "an integer", float: "a number", str: "text", Path: "a path"}


def component(registry: Registry) -> Any:
    """Declare a field that holds one component, its schema chosen by the `name` in its values."""
    return field(metadata={"registry": registry})


def convert(schema: type[Schema], values: Mapping[str, Any]) -> Schema:
    """Turn the plain values of a composed configuration into its frozen dataclass.

    Parameters
    ----------
    schema
        A dataclass; its fields may be dataclasses, components of a registry, or typed values.
    values
        Strings, numbers, booleans, None, lists and mappings, as YAML gives them.

    Raises
    ------
    ConfigError
        One line per problem, all of them.
    """
    problems: list[str] = []
    built = _build(schema, values, "", problems)
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
    return built  # type: ignore[no-any-return]


def defaults(schema: type) -> dict[str, Any]:
    """The plain values that a schema starts from; components are left out, required values are "???".

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Schema:
    ...     size: int
    ...     names: tuple[str, ...] = ("a",)
    >>> defaults(Schema)
    {'size': '???', 'names': ['a']}
    """
    plain = {}
    for item in fields(schema):
        if "registry" in item.metadata and item.default is MISSING:
            continue
        default = item.default_factory() if item.default_factory is not MISSING else item.default
        plain[item.name] = UNSET if default is MISSING else as_plain(default)
    return plain


def as_plain(value: Any) -> Any:
    """Turn dataclasses, tuples and paths into what YAML and JSON can say."""
    if is_dataclass(value) and not isinstance(value, type):
        return as_plain(asdict(value))
    if isinstance(value, Mapping):
        return {key: as_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _build(schema: type, values: Any, path: str, problems: list[str]) -> Any:
    if not isinstance(values, Mapping):
        return _refuse(path, "to be a group of keys", values, problems)
    hints = get_type_hints(schema)
    known = {item.name: item for item in fields(schema)}
    for key in values:
        if key not in known:
            problems.append(unknown_key(_join(path, key), [_join(path, name) for name in known]))
    arguments = {}
    for name, item in known.items():
        if name not in values:
            continue
        here, value = _join(path, name), values[name]
        registry = item.metadata.get("registry")
        if value == UNSET:
            problems.append(f"config: `{here}` is required. Set {here}=VALUE.")
        elif registry is None:
            arguments[name] = _value(hints[name], value, here, problems)
        elif isinstance(value, list):
            arguments[name] = tuple(_component(registry, v, f"{here}[{i}]", problems) for i, v in enumerate(value))
        elif get_origin(hints[name]) is tuple:
            known_names = ", ".join(registry.names())
            rule = f"to be a list of {registry.group}s, of {known_names}"
            arguments[name] = (_refuse(here, rule, value, problems, "Write [a,b]."),)
        else:
            arguments[name] = _component(registry, value, here, problems)
    groups = {name for name, item in known.items() if "registry" in item.metadata or is_dataclass(hints[name])}
    return _construct(schema, arguments, groups, problems)


def _construct(schema: type, arguments: dict[str, Any], groups: set[str], problems: list[str]) -> Any:
    """Build the dataclass, so that its ranges are checked even where a part of it failed.

    A value that failed takes its default, and a whole group that failed is None (a list of components: empty).
    """
    failed = {name for name, value in arguments.items() if value is _FAILED or _has_failed(value)}
    sound = {name: value for name, value in arguments.items() if name not in failed}
    sound |= {name: () if isinstance(arguments[name], tuple) else None for name in failed & groups}
    required = {item.name for item in fields(schema) if item.default is MISSING and item.default_factory is MISSING}
    if required - sound.keys():
        return _FAILED
    try:
        built = schema(**sound)
    except ConfigError as error:
        problems.extend(error.problems)
        return _FAILED
    return _FAILED if failed else built


def _has_failed(value: Any) -> bool:
    return isinstance(value, tuple) and any(item is _FAILED for item in value)


def _component(registry: Registry, values: Any, path: str, problems: list[str]) -> Any:
    values = {"name": values} if isinstance(values, str) else values
    if not isinstance(values, Mapping) or not isinstance(values.get("name"), str):
        known = ", ".join(registry.names())
        return _refuse(path, f"to name a {registry.group}, one of {known}", values, problems)
    try:
        schema = registry.schema(values["name"])
    except ConfigError as error:
        problems.extend(error.problems)
        return _FAILED
    return _build(schema, values, path, problems)


def _value(hint: Any, value: Any, path: str, problems: list[str]) -> Any:
    origin, arms = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin in (Union, types.UnionType):
        return _union(arms, value, path, problems)
    if origin is Literal:
        if any(type(value) is type(arm) and value == arm for arm in arms):
            return value
        close = nearest(str(value), [str(arm) for arm in arms])
        return _refuse(path, f"to be one of {_names(arms)}", value, problems, close)
    if origin in (tuple, list):
        return _sequence(hint, value, path, problems)
    if origin is dict:
        return _mapping(arms, value, path, problems)
    if is_dataclass(hint):
        return _build(hint, value, path, problems)  # type: ignore[arg-type]
    return _scalar(hint, value, path, problems)


def _scalar(hint: Any, value: Any, path: str, problems: list[str]) -> Any:
    allowed = {float: (int, float), Path: (str, Path)}.get(hint, (hint,))
    if isinstance(value, allowed) and (hint is bool or not isinstance(value, bool)):
        return hint(value)
    remedy = ""
    if hint is str and isinstance(value, bool | int | float):
        remedy = "Quote it twice, once for the shell: " + f"\"'{str(value).lower()}'\"."
    return _refuse(path, f"to be {_describe(hint)}", value, problems, remedy)


def _union(arms: tuple[Any, ...], value: Any, path: str, problems: list[str]) -> Any:
    if value is None and type(None) in arms:
        return None
    real = [arm for arm in arms if arm is not type(None)]
    if len(real) == 1:
        return _value(real[0], value, path, problems)
    for arm in real:
        tried: list[str] = []
        converted = _value(arm, value, path, tried)
        if not tried:
            return converted
    return _refuse(path, f"to be {' or '.join(_describe(arm) for arm in arms)}", value, problems)


def _sequence(hint: Any, value: Any, path: str, problems: list[str]) -> Any:
    arms = get_args(hint)
    if not isinstance(value, list | tuple):
        return _refuse(path, f"to be {_describe(hint)}", value, problems, "Write [a,b].")
    fixed = get_origin(hint) is tuple and arms[-1] is not ...
    if fixed and len(value) != len(arms):
        return _refuse(path, f"to have {len(arms)} values", value, problems)
    items = [_value(arms[i] if fixed else arms[0], item, f"{path}[{i}]", problems) for i, item in enumerate(value)]
    return _FAILED if _FAILED in items else get_origin(hint)(items)


def _mapping(arms: tuple[Any, ...], value: Any, path: str, problems: list[str]) -> Any:
    if not isinstance(value, Mapping):
        return _refuse(path, "to be a mapping", value, problems, "Write {key: value}.")
    key_type = arms[0]
    converted = {}
    for key, item in value.items():
        name = str(key) if key_type is str else _value(key_type, key, f"{path} key", problems)
        converted[name] = _value(arms[1], item, f"{path}.{key}", problems)
    return _FAILED if _FAILED in converted.values() or _FAILED in converted else converted


def unknown_key(key: str, known: list[str]) -> str:
    """The line for a key that the configuration does not have."""
    last = key.rpartition(".")[2]
    if last.startswith("_") and last.endswith("_"):
        return f"config: {key!r} is not allowed: a configuration here holds values and never names code to run."
    same = [name for name in known if name.rpartition(".")[2] == last]
    beside = [name for name in known if name.rpartition(".")[0] == key.rpartition(".")[0]]
    hint = f"Did you mean {same[0]!r}?" if same else nearest(key, beside or known)
    return f"config: unknown key {key!r}. {hint}"


def _describe(hint: Any) -> str:
    if hint is type(None):
        return "null"
    if get_origin(hint) is Literal:
        return f"one of {_names(get_args(hint))}"
    if get_origin(hint) in (tuple, list):
        return f"a list (of {_describe(get_args(hint)[0])})"
    return _KIND.get(hint, "a group of keys")


def _names(arms: tuple[Any, ...]) -> str:
    return ", ".join(str(arm) for arm in arms)


def _refuse(path: str, rule: str, value: Any, problems: list[str], remedy: str = "") -> object:
    problems.append(expected("config", path or "the configuration", rule, repr(value), remedy))
    return _FAILED


def _join(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)
