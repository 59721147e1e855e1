"""Shows a composed configuration as YAML, with the meaning of each key beside it: ``--cfg job``."""

import shutil
import textwrap
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
from segmeter.schema.declared import Node, node_of

_OBVIOUS = ("a group of keys", "true or false", "text", "a path")  # from the value beside it


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
    node: Node | None = node_of(root)
    for name in part.split(".") if part else ():
        if not isinstance(values, dict) or name not in values:
            known = nearest(name, map(str, values)) if isinstance(values, dict) else ""
            raise ConfigError(f"config: there is no {part!r} to show. {known}".rstrip())
        node, values = _inner(node, values, name), values[name]
    if not isinstance(values, dict):
        return f"{as_yaml(values)}\n"
    return "".join(f"{line}\n" for line in _lines(node, values, ""))


def _inner(node: Node | None, values: dict[Any, Any], key: str) -> Node | None:
    found = node.keys.get(key) if node else None
    return found.group(values[key]) if found else None


def _lines(node: Node | None, values: dict[Any, Any], indent: str) -> Iterator[str]:
    for key, value in values.items():
        declared = node.keys.get(str(key)) if node else None
        comment = _comment(str(key), declared) if declared else ""
        if isinstance(value, dict) and value:
            yield from _commented(f"{as_yaml(key)}:", comment, indent)
            yield from _lines(_inner(node, values, key), value, f"{indent}  ")
        else:
            yield from _commented(f"{as_yaml(key)}: {as_yaml(value)}", comment, indent)


def _commented(text: str, comment: str, indent: str) -> list[str]:
    """Put a comment beside a key, or above it where a terminal has no room beside it."""
    line = f"{indent}{text}  # {comment}" if comment else f"{indent}{text}"
    room = shutil.get_terminal_size((len(line), 1)).columns
    if not comment or len(line) <= room:
        return [line]
    sign = f"{indent}# "
    return [*textwrap.wrap(comment, room, initial_indent=sign, subsequent_indent=sign), f"{indent}{text}"]


def _comment(key: str, node: Node) -> str:
    """Return the first sentence of a key's meaning, and what it takes."""
    if is_component_name(key, node):
        return ""
    takes = ", ".join(filter(None, (node.describe(), node.unit)))
    first = node.meaning.partition(". ")[0].rstrip(".")
    return first + ("" if takes in _OBVIOUS or node.choice else f" [{takes}]")
