"""A composed configuration as YAML, with the meaning of each key beside it."""

from collections.abc import Iterator
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel

from segmeter.checks import nearest
from segmeter.cli.config.compose import Composed
from segmeter.cli.config.hydra_rules import one_line
from segmeter.cli.config.reference import as_yaml, is_component_name
from segmeter.errors import ConfigError
from segmeter.schema.declared import child, choice_of, describe, hint_of, meaning, unit_of

_GROUPS = ("a group of keys", "true or false", "text", "a path")  # what a line need not say


def yaml_text(root: type[BaseModel], job: Composed, *, part: str | None, resolve: bool) -> str:
    """Write a job's configuration as YAML that can be read back.

    Parameters
    ----------
    part
        The key of a group to show instead of the whole.
    resolve
        Whether ``${...}`` is replaced by its value.

    Raises
    ------
    ConfigError
        There is no such part, or it can't be resolved.
    """
    try:
        values = OmegaConf.to_container(job.config, resolve=resolve) if job.config is not None else {}
    except OmegaConfBaseException as error:
        raise ConfigError(one_line(error)) from error
    model: Any = root
    for name in part.split(".") if part else ():
        if not isinstance(values, dict) or name not in values:
            known = nearest(name, map(str, values)) if isinstance(values, dict) else ""
            raise ConfigError(f"config: there is no {part!r} to show. {known}".rstrip())
        model, values = child(model, values, name), values[name]
    if not isinstance(values, dict):
        return f"{as_yaml(values)}\n"
    return "".join(f"{line}\n" for line in _lines(model, values, ""))


def _lines(model: Any, values: dict[Any, Any], indent: str) -> Iterator[str]:
    for key, value in values.items():
        comment = _comment(model, str(key))
        if isinstance(value, dict) and value:
            yield f"{indent}{as_yaml(key)}:{comment}"
            yield from _lines(child(model, values, str(key)), value, f"{indent}  ")
        else:
            yield f"{indent}{as_yaml(key)}: {as_yaml(value)}{comment}"


def _comment(model: Any, key: str) -> str:
    """The first sentence of a key's meaning, and what it takes."""
    field = model.model_fields.get(key) if model is not None else None
    if field is None or is_component_name(key, field.annotation):
        return ""
    hint = hint_of(field)
    takes = ", ".join(filter(None, (describe(hint), unit_of(hint))))
    first = meaning(field).partition(". ")[0].rstrip(".")
    return f"  # {first}" + ("" if takes in _GROUPS or choice_of(hint) else f" [{takes}]")
