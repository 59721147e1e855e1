"""Components by name, each with its schema and builder, so that a configuration chooses one without naming code."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeVar

from annotated_types import BaseMetadata
from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from segmeter.checks import nearest
from segmeter.errors import ConfigError
from segmeter.schema.declared import CHOICES, name_of
from segmeter.schema.invalid import RuleError
from segmeter.schema.model import Config

Schema = TypeVar("Schema", bound=type[Config])
Builder = Callable[..., Any]


@dataclass(frozen=True)
class Entry:
    """One component: its schema, and its builder or the "module:function" where that is found."""

    schema: type[Config]
    builder: str | Builder


class Registry:
    """The components of one configuration group.

    Builders are named as "module:function" and imported on first use, so that schemas can be read without torch.

    Parameters
    ----------
    group
        The configuration group, for example "loss".
    """

    def __init__(self, group: str) -> None:
        self.group = group
        self._entries: dict[str, Entry] = {}
        CHOICES.setdefault(group, self)

    def register(self, name: str, *, builder: str | Builder) -> Callable[[Schema], Schema]:
        """Register the decorated `Config` as the schema of `name`.

        Parameters
        ----------
        name
            What the configuration says, for example ``loss=focal``.
        builder
            Called as ``builder(config, **context)``; "module:function" is imported on first use.

        Raises
        ------
        ConfigError
            The name is taken, or the class is no `Config`.
        """

        def add(schema: Schema) -> Schema:
            if not (isinstance(schema, type) and issubclass(schema, Config)):
                raise ConfigError(f"{self.group}: the schema of {name!r} must derive from segmeter.schema.Config.")
            if name in self._entries and self._entries[name].schema.__qualname__ != schema.__qualname__:
                raise ConfigError(f"{self.group}: expected a new name, got {name!r}, which is registered already.")
            self._entries[name] = Entry(schema, builder)
            return schema

        return add

    def names(self) -> list[str]:
        """The registered names, sorted."""
        return sorted(self._entries)

    def schema(self, name: str) -> type[Config]:
        """The schema of `name`; ConfigError with the nearest name where there is none."""
        return self._entry(name).schema

    def schema_of(self, values: Any) -> type[Config] | None:
        """The schema that a configuration's values choose, or None if they choose none."""
        entry = self._entries.get(name_of(values))
        return None if entry is None else entry.schema

    def build(self, config: Any, **context: Any) -> Any:
        """Build the component that ``config.name`` names."""
        builder = self._entry(config.name).builder
        if isinstance(builder, str):
            module, _, function = builder.partition(":")
            builder = getattr(import_module(module), function)
        try:
            inspect.signature(builder).bind(config, **context)
        except TypeError as error:  # a plugin's
            called = ", ".join(["config", *(f"{name}=..." for name in context)])
            raise ConfigError(f"{self.group}: the builder of {config.name!r} must take ({called}): {error}.") from error
        return builder(config, **context)

    def _entry(self, name: str) -> Entry:
        if name not in self._entries:
            raise ConfigError(f"{self.group}: expected a registered name, got {name!r}. {nearest(name, self._entries)}")
        return self._entries[name]


class Component(BaseMetadata):
    """Marks a field that holds a component: its values choose their schema by `name`, or are that name alone.

    Examples
    --------
    ``loss: Annotated[Any, Component(LOSSES)]`` takes "dice" as well as ``{"name": "focal", "gamma": 1.0}``.
    """

    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._check)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"component": self.registry.group}  # resolved where it is read: plugins may add components

    def _check(self, values: Any) -> Config:
        if isinstance(values, Config):
            return values
        registry = self.registry
        if not name_of(values):
            raise RuleError(f"to name a {registry.group}, one of {', '.join(registry.names())}")
        return registry.schema(name_of(values)).model_validate({"name": values} if isinstance(values, str) else values)
