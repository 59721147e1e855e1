"""name -> schema and builder: how a component is chosen in the configuration without naming code there."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeVar

from segmeter.checks import nearest
from segmeter.errors import ConfigError

Schema = TypeVar("Schema", bound=type)
Builder = Callable[..., Any]


@dataclass(frozen=True)
class Entry:
    """One component: its schema, and its builder or the "module:function" where that is found."""

    schema: type
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

    def register(self, name: str, *, builder: str | Builder) -> Callable[[Schema], Schema]:
        """Register the decorated frozen dataclass as the schema of `name`.

        Parameters
        ----------
        name
            What the configuration says, for example ``loss=focal``.
        builder
            Called as ``builder(config, **context)``; "module:function" is imported on first use.

        Raises
        ------
        ConfigError
            The name is taken.
        """

        def add(schema: Schema) -> Schema:
            if name in self._entries and self._entries[name].schema.__qualname__ != schema.__qualname__:
                raise ConfigError(f"{self.group}: expected a new name, got {name!r}, which is registered already.")
            self._entries[name] = Entry(schema, builder)
            return schema

        return add

    def names(self) -> list[str]:
        return sorted(self._entries)

    def schema(self, name: str) -> type:
        """The dataclass of `name`; a ConfigError names the nearest name if there is none."""
        return self._entry(name).schema

    def build(self, config: Any, **context: Any) -> Any:
        """Build the component that ``config.name`` names."""
        builder = self._entry(config.name).builder
        if isinstance(builder, str):
            module, _, function = builder.partition(":")
            builder = getattr(import_module(module), function)
        return builder(config, **context)

    def _entry(self, name: str) -> Entry:
        if name not in self._entries:
            raise ConfigError(f"{self.group}: expected a registered name, got {name!r}. {nearest(name, self._entries)}")
        return self._entries[name]
