"""key -> how its value was written: in which file and line of the user's own, or on the command line."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from segmeter.schema.declared import item_of
from segmeter.schema.invalid import Written


def find_written(key: str, overrides: Sequence[str], values: Any, folders: Sequence[Path]) -> Written | None:
    """Find what set a key: the command line wins, then the user's files; None where it was neither.

    Parameters
    ----------
    key
        For example "data.classes[0]".
    overrides
        Those of the job, as they were written.
    values
        The job's values; a file that sets the key to another one was not what set it.
    folders
        The user's own.
    """
    for override in reversed(overrides):
        name, _, text = override.lstrip("+").partition("=")
        if name == key.partition("[")[0]:
            return Written(text=_item(text, key))
    for part in key.replace("[", ".").replace("]", "").split("."):
        values = item_of(values, int(part) if part.isdigit() else part)
    found = [written for folder in folders for path in sorted(folder.rglob("*.yaml"))
             for written in _in_file(key, values, path, folder)]  # fmt: skip
    return found[-1] if found else None


def _item(text: str, key: str) -> str:
    """The text of one item of a list that was written on the command line."""
    index = key.partition("[")[2].partition("]")[0]
    items = text.strip("[]").split(",")
    return items[int(index)].strip() if index.isdigit() and int(index) < len(items) else text


def _in_file(key: str, value: Any, path: Path, folder: Path) -> Iterator[Written]:
    node, package = _read(path)
    group = path.parent.relative_to(folder).as_posix()
    prefix = package if package is not None else "" if group == "." else group.replace("/", ".")
    for name, scalar in _scalars(node, prefix) if node else ():
        if name == key and yaml.SafeLoader("").construct_object(scalar) == value:
            yield Written(text=scalar.value, place=f"{path}:{scalar.start_mark.line + 1}")


def _read(path: Path) -> tuple[Node | None, str | None]:
    """The nodes of a file and the package that its first lines name; what can't be parsed is for Hydra to say."""
    text = path.read_text(encoding="utf-8", errors="replace")
    package = next((line.split()[-1] for line in text.splitlines() if line.startswith("# @package ")), None)
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        return None, package
    return node, "" if package == "_global_" else None if package == "_group_" else package


def _scalars(node: Node, path: str | None) -> Iterator[tuple[str, ScalarNode]]:
    if isinstance(node, MappingNode):
        for key, value in node.value:
            yield from _scalars(value, f"{path}.{key.value}" if path else str(key.value))
    elif isinstance(node, SequenceNode):
        for index, value in enumerate(node.value):
            yield from _scalars(value, f"{path}[{index}]")
    elif isinstance(node, ScalarNode):
        yield path or "", node
