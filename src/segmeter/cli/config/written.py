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


def find_choice(key: str, overrides: Sequence[str], folders: Sequence[Path]) -> str:
    """Find the chosen file that sets a key, such as "experiment=mine"; "" where the command line names the key itself.

    Parameters
    ----------
    key
        For example "loss.gamma".
    overrides
        Those of the job, as they were written.
    folders
        Where the files of groups are.
    """
    split = [override.lstrip("+").partition("=") for override in overrides]
    if key in [name for name, *_ in split]:
        return ""
    for group, _, name in reversed(split):
        for folder in folders:
            path = folder / group / f"{name}.yaml"
            is_choice = (folder / group).is_dir() and path.is_relative_to(folder)  # else it is some key's value
            if is_choice and path.is_file() and key in _keys(path, folder):
                return f"{group}={name}"
    return ""


def _keys(path: Path, folder: Path) -> set[str]:
    """The keys that a file sets; a list counts as one."""
    node, prefix = _read(path, folder)
    return {name.partition("[")[0] for name, _ in _scalars(node, prefix)} if node else set()


def _item(text: str, key: str) -> str:
    """The text of one item of a list that was written on the command line."""
    index = key.partition("[")[2].partition("]")[0]
    items = text.strip("[]").split(",")
    return items[int(index)].strip() if index.isdigit() and int(index) < len(items) else text


def _in_file(key: str, value: Any, path: Path, folder: Path) -> Iterator[Written]:
    node, prefix = _read(path, folder)
    for name, scalar in _scalars(node, prefix) if node else ():
        if name == key and yaml.SafeLoader("").construct_object(scalar) == value:
            yield Written(text=scalar.value, place=f"{path}:{scalar.start_mark.line + 1}")


def _read(path: Path, folder: Path) -> tuple[Node | None, str]:
    """The nodes of a file, none where it can't be parsed, which Hydra says; and the package of its keys."""
    text = path.read_text(encoding="utf-8", errors="replace")
    package = next((line.split()[-1] for line in text.splitlines() if line.startswith("# @package ")), "_group_")
    group = path.parent.relative_to(folder).as_posix()
    prefix = ("" if group == "." else group.replace("/", ".")) if package == "_group_" else package
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        node = None
    return node, "" if prefix == "_global_" else prefix


def _scalars(node: Node, path: str | None) -> Iterator[tuple[str, ScalarNode]]:
    if isinstance(node, MappingNode):
        for key, value in node.value:
            yield from _scalars(value, f"{path}.{key.value}" if path else str(key.value))
    elif isinstance(node, SequenceNode):
        for index, value in enumerate(node.value):
            yield from _scalars(value, f"{path}[{index}]")
    elif isinstance(node, ScalarNode):
        yield path or "", node
