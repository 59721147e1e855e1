"""Writes terminal help from the schemas, so that it can't disagree with the program."""

import shutil
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from segmeter.checks import close_name, expected, nearest
from segmeter.cli.app import plugins_of
from segmeter.cli.commands import COMMANDS, FLAGS, PLAIN, USAGE, read_arguments
from segmeter.cli.config.groups import CONFIGS, PRESETS, TRAINED, groups_of, load_plugins
from segmeter.cli.config.hydra_rules import check_files
from segmeter.cli.config.reference import Key, keys_of, option, options_of, own_keys, parts_of, preset_summary
from segmeter.errors import ConfigError
from segmeter.schema.json_schema import node_of

_WIDTH = 110
TRAINED_SUMMARY = (
    "The data set that the checkpoint was trained on, with its classes and how its files are read; set data.root where "
    "it lies elsewhere. Keys of its kind can be set too: --help data data=folder. All kinds have:"
)


PLUGINS = Path(__file__).with_name("plugins.txt")  # shows an example of a component, and how builders are called


def help_text(command: str, arguments: Sequence[str] = ()) -> str:
    """Write the help of one command, or of the groups named in `arguments`.

    Parameters
    ----------
    command
        "train", "eval" and so on.
    arguments
        Groups whose keys are listed ("augment"), overrides that choose their options ("loss=focal"), and flags.

    Raises
    ------
    ConfigError
        The command has no such group, or the group has no such option.
    """
    head = _wrapped(f"segmeter {command}: {COMMANDS[command]}.", "", "  ")
    head += ["", "usage:", *_wrapped(USAGE[command], "  ", "      ")]
    if command in PLAIN:
        return "\n".join(head) + "\n"
    args = read_arguments(command, arguments)
    chosen = dict(word.split("=", 1) for word in args.overrides if "=" in word)
    load_plugins(plugins_of(args.overrides))
    folders = [CONFIGS]
    if args.config_dir:
        check_files(Path(args.config_dir))
        folders.append(Path(args.config_dir))
    wanted_groups = [word for word in args.overrides if "=" not in word]
    if wanted_groups == ["plugins"]:
        return PLUGINS.read_text("utf-8")
    lines = [line for group in wanted_groups for line in _one_group(command, group, chosen, folders)]
    if not wanted_groups:
        flags = [line for flag, text in FLAGS.items() for line in _wrapped(text, f"  {flag:<20} ", " " * 23)]
        lines = head
        groups = groups_of(command)
        if groups:
            usage = f"GROUP=OPTION chooses, GROUP.KEY=VALUE sets; segmeter {command} --help GROUP lists keys"
            lines += ["", *_wrapped(f"groups ({usage}):", "", "  ")]
        for group, default in groups.items():
            names = [f"{name} (default)" if name == default else name for name in options_of(command, group, folders)]
            lines += _wrapped(", ".join(names), f"  {group:<12} ", " " * 15)
        lines += ["", "keys:", *_keys(own_keys(command)), "", "flags:", *flags]
    return "\n".join(lines) + "\n"


def _keys(keys: Iterable[Key]) -> Iterator[str]:
    for key in keys:
        yield f"  {key.path} = {key.default}"
        for text in (key.node.meaning, f"[{key.range}]"):
            yield from _wrapped(text, "      ", "      ")


def _one_group(command: str, group: str, chosen: dict[str, str], folders: Sequence[Path]) -> Iterator[str]:
    known = groups_of(command)
    if group not in known:
        raise ConfigError(f"config: {command} has no group {group!r}. {nearest(group, known)}")
    options = options_of(command, group, folders)
    yield from _wrapped(f"{group}: {', '.join(options)}", "", "  ")
    if len(options) > 1 and group not in (*PRESETS, *chosen):
        yield from _wrapped(f"The keys of another option: segmeter {command} {group}=OPTION --help {group}", "", "  ")
    if group in PRESETS:
        for name in options:
            yield from _wrapped(preset_summary(group, name, folders), f"  {name:<12} ", " " * 15)
        command_line = f"segmeter {command} {group}=NAME --cfg job"
        yield from _wrapped(f"Each sets keys of several groups; {command_line} shows all of them.", "", "  ")
        return
    name = chosen.get(group, known[group])
    if name not in options:
        rule = f"to be one of {', '.join(options)}"
        raise ConfigError(expected("config", group, rule, repr(name), close_name(name, options)))
    schema, values = option(group, name, folders)
    summary = TRAINED_SUMMARY if name == TRAINED else node_of(schema).meaning
    yield from ("", *_wrapped(f"{group}={name}: {summary}", "", "  "), "")
    yield from _keys(keys_of(node_of(schema), values, f"{group}."))
    for key_name, choice in parts_of(schema):
        for member in choice.names():
            if inner := choice.schema_of(member):
                text = f"in {group}.{key_name}, {{name: {member}, ...}}: {node_of(inner).meaning}"
                yield from ("", *_wrapped(text, "", "  "), *_keys(keys_of(node_of(inner), {})))


def _wrapped(text: str, first: str, rest: str) -> list[str]:
    width = min(_WIDTH, shutil.get_terminal_size((_WIDTH, 1)).columns)
    return textwrap.wrap(text, width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)
