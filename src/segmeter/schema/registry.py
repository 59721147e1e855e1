"""Registers components by name, with schema and builder, so that a configuration chooses one without naming code."""

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, TypeVar

from pydantic import BaseModel

from segmeter.checks import nearest
from segmeter.errors import ConfigError

Schema = TypeVar("Schema", bound=type[BaseModel])
Builder = Callable[..., Any]


class Registry:
    """The components of one configuration group.

    Builders are given as "module:function" and imported on first use, so that schemas can be read without torch.

    Parameters
    ----------
    group
        The configuration group, for example "loss".
    """

    def __init__(self, group: str) -> None:
        self.group = group
        self._entries: dict[str, tuple[type[BaseModel], str | Builder | None]] = {}
        REGISTRIES.setdefault(group, self)

    def register(self, name: str, *, builder: str | Builder | None = None) -> Callable[[Schema], Schema]:
        """Register the decorated `Config` as the schema of `name`.

        Parameters
        ----------
        name
            The name in the configuration, for example ``loss=focal``.
        builder
            Called as ``builder(config, **context)``; "module:function" is imported on first use. None if the
            configuration is all there is.

        Raises
        ------
        ConfigError
            The name is taken, or the class is not a `Config`.
        """

        def add(schema: Schema) -> Schema:
            if not (isinstance(schema, type) and issubclass(schema, BaseModel)):
                raise ConfigError(f"{self.group}: the schema of {name!r} must derive from segmeter.schema.Config.")
            if name in self._entries and self.schema(name).__qualname__ != schema.__qualname__:
                raise ConfigError(f"{self.group}: expected a new name, got {name!r}, which is registered already.")
            self._entries[name] = (schema, builder)
            return schema

        return add

    def names(self) -> list[str]:
        """List the registered names, sorted."""
        return sorted(self._entries)

    def schema(self, name: str) -> type[BaseModel]:
        """Return the schema of `name`; ConfigError with the nearest name if there is none."""
        if name not in self._entries:
            raise ConfigError(f"{self.group}: expected a registered name, got {name!r}. {nearest(name, self._entries)}")
        return self._entries[name][0]

    def schema_of(self, values: Any) -> type[BaseModel] | None:
        """Return the schema that a configuration's values choose, or None if they choose none."""
        name = name_of(values)
        return self.schema(name) if name in self._entries else None

    def build(self, config: Any, **context: Any) -> Any:
        """Build the component that ``config.name`` names.

        Raises
        ------
        ConfigError
            The name is unknown, or a plugin's builder takes other arguments.
        """
        self.schema(config.name)  # refuses an unknown name
        builder = self._entries[config.name][1]
        assert builder is not None  # nobody builds the components of such a group
        if isinstance(builder, str):
            module, _, function = builder.partition(":")
            builder = getattr(import_module(module), function)
        try:
            inspect.signature(builder).bind(config, **context)
        except TypeError as error:
            called = ", ".join(["config", *(f"{name}=..." for name in context)])
            raise ConfigError(f"{self.group}: the builder of {config.name!r} must take ({called}): {error}.") from error
        return builder(config, **context)


# All registries by group. In a JSON Schema, {"component": GROUP} stands for any component of that group.
REGISTRIES: dict[str, Registry] = {}


def name_of(values: Any) -> str:
    """Return the name in the values of a component, or the values themselves if they are just a name."""
    name = values.get("name") if isinstance(values, Mapping) else getattr(values, "name", values)
    return name if isinstance(name, str) else ""
