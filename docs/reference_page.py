"""Writes the reference page of the configuration from the schemas, so that it can't disagree with the program."""

import re
from collections.abc import Iterator

from segmeter.cli.commands import COMMANDS
from segmeter.cli.config.groups import GROUPS, ROOTS, groups_of, schemas_of
from segmeter.cli.config.reference import Key, as_yaml, keys_of, option, options_of, own_keys, parts_of
from segmeter.schema.json_schema import node_of

MARK = "<!-- reference: inserted by make docs -->"  # in docs/configuration.md


def reference() -> str:
    """Every command and every group with each of its keys, as Markdown tables."""
    lines = [line for command in ROOTS for line in _command_page(command)]
    lines += [line for group in GROUPS for line in _group_page(group)]
    return "\n".join(lines)


def _command_page(command: str) -> Iterator[str]:
    yield from (f"## segmeter {command}", "", f"{COMMANDS[command][0].upper()}{COMMANDS[command][1:]}.", "")
    chosen = [f"`{group}={default or 'null'}`" for group, default in groups_of(command).items()]
    yield from (f"Groups and their defaults: {', '.join(chosen)}.", "", *_table(own_keys(command)), "")


def _group_page(group: str) -> Iterator[str]:
    yield from (f"## {group}", "")
    names = schemas_of(group)
    others = [name for name in options_of("train", group) if name not in names]
    for name, schema in names.items():
        yield from (
            f"### {group}={name}",
            "",
            node_of(schema).meaning,
            "",
            *_table(keys_of(node_of(schema), {}, f"{group}.")),
            "",
        )
    for name in others:
        _, values = option(group, name)
        shown = ", ".join(f"`{group}.{key}={as_yaml(value)}`" for key, value in values.items())
        yield from (f"### {group}={name}", "", f"Sets {shown}.", "")
    for schema in dict.fromkeys(names.values()):
        for key, choice in parts_of(schema):
            for member in choice.names():
                if inner := choice.schema_of(member):
                    yield from (f"### in `{group}.{key}`: {member}", "", node_of(inner).meaning, "")
                    yield from (*_table(keys_of(node_of(inner), {})), "")


def _table(keys: Iterator[Key]) -> list[str]:
    rows = [f"| `{key.path}` | `{key.default}` | {_cell(key.range)} | {_cell(key.node.meaning)} |" for key in keys]
    return ["| key | default | takes | meaning |", "|---|---|---|---|", *rows] if rows else ["It has no keys."]


def _cell(text: str) -> str:
    return re.sub(r"<(?=[a-z])", "&lt;", text.replace("|", "\\|"))
