"""Defines the base class of every configuration: a frozen pydantic model with types, ranges, units and docstrings.

Everything that is shown about a key (in help, messages, the reference and editors) comes from these declarations.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, Self, get_args, get_origin

from annotated_types import BaseMetadata
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError, PydanticKnownError, core_schema, to_jsonable_python

from segmeter.errors import ConfigError
from segmeter.schema.invalid import RuleError, problems_by_key
from segmeter.schema.registry import Registry, name_of

REQUIRED = "???"  # Hydra and OmegaConf write this where a value must be given
# Keys that files of earlier versions hold and this version lacks, each with the value that asked for nothing.
RETIRED: dict[str, Any] = {"data.ignore_rim": 0, "logger.csv": False, "training.channels_last": True}
# Keys that files of earlier versions lack, each with the value that those versions used.
ADDED: dict[str, Any] = {"data.corners": "edges"}


def Unit(name: str) -> Any:
    """Give the unit of a number, for the help and the reference: ``Annotated[int, Unit("pixels")]``."""
    return Field(json_schema_extra={"unit": name})


class OneOf(BaseMetadata):
    """A text that is one of `choices`, or one of `prefixes` with more behind it: ``tu-`` and a timm model's name.

    Parameters
    ----------
    choices
        The words, in the order in which they are listed.
    prefixes
        The beginnings of other words that are allowed.
    words
        A description of the choices, if there are too many to list.
    """

    def __init__(self, *choices: str, prefixes: tuple[str, ...] = (), words: str = "") -> None:
        self.choices, self.prefixes = choices, prefixes
        self._words = words or ", ".join(("one of " + ", ".join(choices), *(f"{prefix}..." for prefix in prefixes)))

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        listed = {"type": "string", "enum": list(self.choices)}
        prefixed = [{"type": "string", "pattern": f"^{prefix}."} for prefix in self.prefixes]
        return {**({"anyOf": [listed, *prefixed]} if prefixed else listed), "words": self._words}

    def _check(self, value: Any) -> Any:
        is_prefixed = isinstance(value, str) and any(value.startswith(p) and value != p for p in self.prefixes)
        if isinstance(value, str) and value not in self.choices and not is_prefixed:
            raise PydanticCustomError("choice", "not one of the choices")
        return value


@dataclass(frozen=True)
class Component(BaseMetadata):
    """Marks a field that holds a component. Its value is a mapping whose `name` chooses the schema, or just the name.

    Examples
    --------
    ``loss: Annotated[Any, Component(LOSSES)]`` takes "dice" as well as ``{"name": "focal", "gamma": 1.0}``.
    """

    registry: Registry

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        serialization = core_schema.plain_serializer_function_ser_schema(as_plain, when_used="json")
        return core_schema.no_info_plain_validator_function(self._check, serialization=serialization)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"component": self.registry.group}  # resolved when it is read, as plugins may add components

    def _check(self, values: Any) -> Any:
        if isinstance(values, BaseModel):
            return values
        name = name_of(values)
        if not name:
            raise RuleError(f"to name a {self.registry.group}, one of {', '.join(self.registry.names())}")
        return self.registry.schema(name).model_validate({"name": values} if isinstance(values, str) else values)


class Given(SimpleNamespace):
    """The values of the keys that are declared above the rule's own key, `own_key`. Each key is an attribute.

    If a rule reads a key that failed, the rule is not applied.
    """


def rule(*keys: str) -> Callable[[Any], Any]:
    """Declare a rule between each of `keys` and keys above it: a method (cls, value, given) that raises `RuleError`.

    Examples
    --------
    >>> from segmeter.schema.invalid import RuleError
    >>> class Crop(Config):
    ...     least: int = 1
    ...     largest: int = 2
    ...     @rule("largest")
    ...     def _ordered(cls, largest: int, given: Given) -> None:
    ...         if largest < given.least:
    ...             raise RuleError("to be at least `least`")
    >>> Crop(least=3)
    Traceback (most recent call last):
    segmeter.errors.ConfigError: Crop: expected `largest` to be at least `least`, got 2.
    """

    def declare(check: Any) -> Any:
        check = getattr(check, "__func__", check)  # a rule may be decorated as a class method

        def apply(cls: Any, value: Any, info: ValidationInfo) -> Any:
            key = str(info.field_name)
            keys = [*cls.model_fields]
            given = Given(**info.data, own_key=key)
            try:
                check(cls, value, given)
            except AttributeError as error:  # the rule read a key that failed, and that key's line is enough
                if error.obj is not given or error.name not in keys[: keys.index(key)]:
                    raise
            return value

        return field_validator(*keys, mode="after")(classmethod(apply))

    return declare


class Config(BaseModel):
    """A frozen group of keys. Each has a type, a docstring below it, and where they apply a default, range and unit.

    Raises
    ------
    ConfigError
        With one line for every key that is wrong.
    """

    model_config = ConfigDict(
        defer_build=True,
        frozen=True,
        extra="forbid",
        strict=True,
        validate_default=True,
        allow_inf_nan=False,
        arbitrary_types_allowed=True,
    )

    def __init__(self, /, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            where = self.model_config.get("title") or type(self).__name__
            by_key = problems_by_key(error, type(self), values, where=where)
            raise ConfigError([line for lines in by_key.values() for line in lines]) from None

    # With this mark, pydantic doesn't call __init__ for nested values. Their errors must stay pydantic's own, which
    # say where the value is.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    def replace(self, **changes: Any) -> Self:
        """Return the same configuration with some values changed. The result is checked as a whole."""
        return type(self)(**{**dict(self), **changes})

    __replace__ = replace

    @model_validator(mode="before")
    @classmethod
    def _skip_retired(cls, values: Any) -> Any:
        group = f"{cls.model_config.get('title')}."
        retired = {key.removeprefix(group): value for key, value in RETIRED.items() if key.startswith(group)}
        if not isinstance(values, Mapping) or retired.keys().isdisjoint(values):
            return values
        return {key: value for key, value in values.items() if key not in retired or value != retired[key]}

    @field_validator("*", mode="before")
    @classmethod
    def _as_declared(cls, value: Any, info: ValidationInfo) -> Any:
        """Convert the lists, text and floats of YAML and JSON to the tuples, paths and whole numbers of a schema.

        "???" stands for a required value that is still missing.
        """
        if isinstance(value, str) and value == REQUIRED:
            raise PydanticKnownError("missing")
        return _as_declared(value, set(_leaves(cls.model_fields[str(info.field_name)].annotation)))


def _leaves(hint: Any) -> Iterator[Any]:
    """Yield the scalar types, models and types of literals within a type."""
    if get_origin(hint) is Literal:
        yield from map(type, get_args(hint))
    elif hasattr(hint, "__metadata__"):  # Annotated
        yield from _leaves(get_args(hint)[0])
    elif get_args(hint):
        yield from (leaf for inner in get_args(hint) if inner is not ... for leaf in _leaves(inner))
    else:
        yield hint


def _as_declared(value: Any, kinds: set[Any]) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_as_declared(item, kinds) for item in value)
    if isinstance(value, Mapping):
        return {str(k) if type(k) is int else k: _as_declared(item, kinds) for k, item in value.items()}
    if isinstance(value, Real) and not isinstance(value, bool | int | float):  # a NumPy number
        value = int(value) if isinstance(value, Integral) else float(value)
    if type(value) is float and int in kinds and float not in kinds and value.is_integer():
        return int(value)
    if type(value) is str and Path in kinds and str not in kinds:
        return Path(value)
    if type(value) in (int, float) and bool in kinds and not {int, float} & kinds:
        raise PydanticCustomError("choice", "not one of the choices")  # pydantic would take 1 for true in a Literal
    return value


def as_plain(value: Any) -> Any:
    """Turn a configuration, tuples and paths into values that YAML and JSON have."""
    if isinstance(value, BaseModel):
        type(value).model_rebuild()  # pydantic < 2.14 can't dump a model that was only validated inside another
    return to_jsonable_python(value)


def defaults(schema: type[BaseModel]) -> dict[str, Any]:
    """Return the plain defaults of a schema. Required values are "???", and components are left out.

    Examples
    --------
    >>> class Schema(Config):
    ...     size: int
    ...     names: tuple[str, ...] = ("a",)
    >>> defaults(Schema)
    {'size': '???', 'names': ['a']}
    """
    plain = {}
    for name, field in schema.model_fields.items():
        if not field.is_required():
            plain[name] = as_plain(field.get_default(call_default_factory=True))
        elif isinstance(field.annotation, type) and issubclass(field.annotation, Config):
            plain[name] = defaults(field.annotation)
        elif field.annotation is not Any:
            plain[name] = REQUIRED
    return plain
