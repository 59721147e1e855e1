"""schemas -> the reference in docs/configuration.md."""

import re
from collections.abc import Iterator

from segmeter.cli.command_list import COMMANDS
from segmeter.cli.config.groups import GROUPS, schemas_of
from segmeter.cli.config.reference import (
    Key,
    as_yaml,
    default_option,
    groups_of,
    keys_of,
    option,
    options_of,
    own_keys,
    parts_of,
    summary,
)
from segmeter.cli.config.schema import ROOTS

START, END = "<!-- reference: written from the schemas -->", "<!-- end of the reference -->"


def insert_reference(page: str) -> str:
    """Replace what stands between the two marks of a page by the reference."""
    before, _, rest = page.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n\n{reference()}\n{END}{after}"


def reference() -> str:
    """Every command and every group with each of its keys, as Markdown tables."""
    lines = [line for command in ROOTS for line in _command(command)]
    lines += [line for group in GROUPS for line in _group(group)]
    return "\n".join(lines)


def _command(command: str) -> Iterator[str]:
    yield from (f"## segmeter {command}", "", f"{COMMANDS[command][0].upper()}{COMMANDS[command][1:]}.", "")
    chosen = [f"`{group}={default_option(command, group) or 'null'}`" for group in groups_of(command)]
    yield from (f"Groups and their defaults: {', '.join(chosen)}.", "", *_table(own_keys(command)), "")


def _group(group: str) -> Iterator[str]:
    yield from (f"## {group}", "")
    names = schemas_of(group)
    others = [name for name in options_of("train", group) if name not in names]
    for name, schema in names.items():
        yield from (f"### {group}={name}", "", summary(schema), "", *_table(keys_of(schema, {}, f"{group}.")), "")
    for name in others:
        _, values = option(group, name)
        shown = ", ".join(f"`{group}.{key}={as_yaml(value)}`" for key, value in values.items())
        yield from (f"### {group}={name}", "", f"Sets {shown}.", "")
    for schema in dict.fromkeys(names.values()):
        for key, choice in parts_of(schema):
            for member in choice.names():
                if inner := choice.schema_of(member):
                    yield from (f"### in `{group}.{key}`: {member}", "", summary(inner), "")
                    yield from (*_table(keys_of(inner, {})), "")


def _table(keys: Iterator[Key]) -> list[str]:
    rows = [f"| `{key.path}` | `{key.default}` | {_cell(key.range)} | {_cell(key.meaning)} |" for key in keys]
    return ["| key | default | takes | meaning |", "|---|---|---|---|", *rows] if rows else ["It has no keys."]


def _cell(text: str) -> str:
    return re.sub(r"<(?=[a-z])", "&lt;", text.replace("|", "\\|"))
