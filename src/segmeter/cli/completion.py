"""Tab completion of commands, groups, options, keys, choices and runs; the shell itself completes files.

A wheel holds an index of all of these, so that a shell need not wait until Hydra and the schemas are imported. An
editable install has none and reads the schemas themselves.
"""

import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from segmeter.cli.commands import COMMANDS, FLAGS, PLAIN
from segmeter.errors import ConfigError

INDEX = Path(__file__).with_name("completion.json")  # written by hatch_build.py
_RUN_KEYS = ("checkpoint", "runs", "resume", "run")  # the values of these keys are run folders
SHELLS = ("bash", "zsh", "fish")  # shell.NAME beside this module holds the code that each runs


def complete(arguments: Sequence[str]) -> None:
    """Answer ``-sc install=SHELL`` and, from the installed script, ``-sc query=SHELL``.

    Raises
    ------
    ConfigError
        The request or the shell is unknown.
    """
    request, _, shell = (arguments[0] if len(arguments) == 1 else "").partition("=")
    if request not in ("install", "query") or shell not in SHELLS:
        given = " ".join(arguments)
        raise ConfigError(f"completion: expected `-sc install=SHELL` with one of {', '.join(SHELLS)}, got {given!r}.")
    if request == "install":
        sys.stdout.write(Path(__file__).with_name(f"shell.{shell}").read_text("utf-8"))
    else:
        line = os.environ.get("COMP_LINE", "")
        line = line[: int(os.environ.get("COMP_POINT") or len(line))]
        sys.stdout.write("".join(f"{word}\n" for word in suggestions(line)))


def suggestions(line: str) -> list[str]:
    """Return the completions of the last word of a command line."""
    words = line.split()[1:]
    start = words.pop() if words and not line.endswith(" ") else ""
    if not words:
        return _starting(COMMANDS, start)
    command = words[0]
    if command not in COMMANDS:
        return []
    if command in PLAIN:
        return _starting(_plain(command), start)
    entry = _index()[command]
    chosen = dict(word.split("=", 1) for word in words if "=" in word)
    if start.startswith("-"):
        return _starting([flag.split(" ")[0].rstrip(",") for flag in FLAGS], start)
    if {"--help", "-h"} & set(words):
        return _starting(entry["groups"], start)
    if "=" in start:
        return _values(command, entry, chosen, start)
    return _keys(entry, chosen, start)


def _plain(command: str) -> Iterable[str]:
    if command == "schema":
        index = _index()
        return dict.fromkeys([*index, *(group for entry in index.values() for group in entry["groups"])])
    return [f"{folder}/" for folder in _runs(Path("runs"))] if command == "report" else ()


def _index() -> dict[str, Any]:
    index: dict[str, Any] = json.loads(INDEX.read_text("utf-8")) if INDEX.is_file() else completion_index()
    return index


def completion_index() -> dict[str, Any]:
    """Build the index: the keys and groups of each command, the options of each group, and the choices of each key."""
    from segmeter.cli.config.groups import PRESETS, ROOTS, groups_of, schemas_of
    from segmeter.cli.config.reference import keys_of, options_of, own_keys
    from segmeter.schema.json_schema import node_of

    def keys(group: str) -> dict[str, dict[str, Any]]:
        schemas = {} if group in PRESETS else schemas_of(group)
        return {
            name: {key.path: key.completions for key in keys_of(node_of(schema), {})}
            for name, schema in schemas.items()
        }

    return {
        command: {
            "keys": {key.path: key.completions for key in own_keys(command)},
            "groups": {
                group: {"default": default, "options": options_of(command, group), "keys": keys(group)}
                for group, default in groups_of(command).items()
            },
        }
        for command in ROOTS
    }


def _keys(entry: dict[str, Any], chosen: dict[str, str], start: str) -> list[str]:
    """Complete groups as `loss=` and `loss.`, and keys one level at a time."""
    prefix = start[: start.rfind(".") + 1]
    words = [f"{group}=" for group in entry["groups"]]
    for key in (*entry["keys"], *_group_keys(entry, chosen, start.partition(".")[0])):
        rest = key.removeprefix(prefix)
        if rest != key or "." not in start:
            head, dot, _ = rest.partition(".")
            words.append(f"{prefix}{head}{dot or '='}")
    words += [f"{group}." for group, details in entry["groups"].items() if any(details["keys"].values())]
    return [word for word in _starting(dict.fromkeys(words), start) if word != start]


def _group_keys(entry: dict[str, Any], chosen: dict[str, str], group: str) -> dict[str, Any]:
    """Return the keys of a group's chosen option, or of all its schemas if a file defines the option."""
    if group not in entry["groups"]:
        return {}
    details = entry["groups"][group]
    option = chosen.get(group, details["default"])
    schemas = [details["keys"][option]] if option in details["keys"] else details["keys"].values()
    return {f"{group}.{key}": choices for keys in schemas for key, choices in keys.items()}


def _values(command: str, entry: dict[str, Any], chosen: dict[str, str], start: str) -> list[str]:
    key, _, value = start.partition("=")
    if key in entry["groups"]:
        return [f"{key}={name}" for name in _starting(sorted(entry["groups"][key]["options"]), value)]
    choices = {**entry["keys"], **_group_keys(entry, chosen, key.partition(".")[0])}.get(key, [])
    complete_items = value[: max(value.rfind("["), value.rfind(",")) + 1]  # the items of a list before the last
    item = value[len(complete_items) :]
    if key in _RUN_KEYS:
        folders = _runs(Path(chosen.get("run.root", "runs")), command if key == "resume" else "")
        choices = [*folders, *(["auto"] if key == "resume" else [])]
    return [f"{key}={complete_items}{choice}" for choice in _starting(choices, item)]


def _runs(root: Path, command: str = "") -> list[str]:
    """Return the run folders under a root, of one command or of all, newest first."""
    folders = [path.parent for path in root.glob(f"{command or '*'}/*/run.json")]
    return [str(folder) for folder in sorted(folders, key=lambda folder: folder.name, reverse=True)]


def _starting(names: Iterable[str], start: str) -> list[str]:
    return [name for name in names if name.startswith(start)]
