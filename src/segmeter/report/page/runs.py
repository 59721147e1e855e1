"""Writes an index of all runs below a folder: their headline scores, the settings in which they differ, and links."""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from segmeter.checks import expected, some
from segmeter.errors import InputError
from segmeter.files import TEMPORARY, write_bytes
from segmeter.records import CONFIG, RUN, Summary, flatten, read_run, read_yaml
from segmeter.report import figures
from segmeter.report.page.render import load_json, render
from segmeter.report.tables import Cell, Column, Table

_LOG = logging.getLogger(__name__)
MOST_KEYS = 12  # of a configuration in one table
_DEEPEST = 5  # folders below the root
_PAGES = ("report.html", "compare.html", "agree.html", "suspects.html", "label_next.html")
_OF_NO_INTEREST = ("run.", "report.", "logger.")  # keys that change no result


class Run(NamedTuple):
    """A run as the index shows it: `cell` names it and links to its page; `settings` is its flattened configuration."""

    cell: Cell
    record: Mapping[str, Any]
    figures: Mapping[str, float | str | None]
    cases: int | None
    settings: Mapping[str, Any]


def write_index(root: Path) -> Path:
    """Write index.html with one table per command of all runs below a folder, the newest first.

    Raises
    ------
    InputError
        There is no run, or a record is damaged.
    """
    runs = [_load(folder, root) for folder in _find(root)]
    if not runs:
        rule = "to hold finished or begun runs, each with run.json"
        raise InputError(expected("write_index", "runs", rule, f"{root}, which has none", "Give a folder as runs/."))
    commands = [str(run.record.get("command", "")) for run in runs]
    order = dict.fromkeys([*(name for name in ("eval", "score", "train", "compare") if name in commands), *commands])
    tables = [_table(name, [run for run, own in zip(runs, commands, strict=True) if own == name]) for name in order]
    facts: dict[str, Any] = {"kind": "runs", "when": f"{len(runs)} run{'s' if len(runs) != 1 else ''}"}
    page = render("list.html", title=root.resolve().name, tables=tables, **facts)
    path = root / "index.html"
    write_bytes(path, page)
    return path


def _find(root: Path, depth: int = 0) -> Iterator[Path]:
    """Find the folders with run.json; a run contains no other runs."""
    if (root / RUN).is_file():
        yield root
        return
    if depth == _DEEPEST:
        return
    with os.scandir(root) as entries:
        inner = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    for name in inner:
        if not name.startswith((".", TEMPORARY)):
            yield from _find(root / name, depth + 1)


def _load(folder: Path, root: Path) -> Run:
    """Load a run; the state of a damaged one is the message that describes the damage."""
    try:
        summary, record, settings = load_json(folder / "metrics.json", Summary), read_run(folder), _settings(folder)
        found = {row["name"]: row["dataset"] for row in figures.aggregates(summary)} if summary else {}
    except (InputError, LookupError, TypeError, AttributeError) as error:
        line = str(error) if isinstance(error, InputError) else f"{folder / 'metrics.json'}: is damaged ({error!r})."
        _LOG.warning("%s", line)
        summary, record, settings, found = None, {"command": folder.parent.name, "state": line}, {}, {}
    page, place = next((name for name in _PAGES if (folder / name).is_file()), None), folder.relative_to(root)
    link = None if page is None else "/".join(quote(os.fsencode(part)) for part in (*place.parts, page))
    cell = Cell(str(place) if folder != root else folder.resolve().name, link=link)
    found = found or {name: value for name, value in (record.get("result") or {}).items() if _is_number(value)}
    return Run(cell, record, found, summary.get("n_cases") if summary else None, settings)


def _is_number(value: Any) -> bool:
    return value in (None, "inf", "-inf") or (isinstance(value, int | float) and not isinstance(value, bool))


def _settings(folder: Path) -> dict[str, Any]:
    """Read the flattened configuration; empty if there is none or it may not be read."""
    with suppress(OSError):
        return flatten(read_yaml(folder / CONFIG))
    return {}


def _table(command: str, runs: Sequence[Run]) -> Table:
    """Lay out the runs of one command with the settings in which they differ, those that users set themselves first."""
    runs = sorted(runs, key=lambda run: str(run.record.get("start", "")), reverse=True)
    keys, names = _differing(runs), dict.fromkeys(name for run in runs for name in run.figures)
    columns = [Column(name, name) for name in ("run", "state", "start")]
    columns += [Column(name, f"figures.{name}", figures.quantity) for name in names]
    columns.append(Column("cases", "cases", lambda cases: "" if cases is None else f"{cases:,}"))
    columns += [Column(key, f"settings.{key}", _text) for key in keys[:MOST_KEYS]]
    rows = [
        {f"figures.{name}": run.figures.get(name, "") for name in names}
        | {f"settings.{key}": run.settings.get(key, "") for key in keys}
        | {"run": run.cell, "state": run.record.get("state"), "cases": run.cases}
        | {"start": str(run.record.get("start") or "")[:19].replace("T", " ")}
        for run in runs
    ]
    left = keys[MOST_KEYS:]
    more = f"They also differ in {some(left)}." if left else ""
    return Table.of(columns, rows, names=3, strong=(), title=command or "other runs", note=more)


def _differing(runs: Sequence[Run]) -> list[str]:
    keys = dict.fromkeys(key for run in runs for key in run.settings if not key.startswith(_OF_NO_INTEREST))
    given = {str(each).partition("=")[0].lstrip("+~") for run in runs for each in run.record.get("overrides") or ()}
    missing = object()
    differing = [key for key in keys if len({repr(run.settings.get(key, missing)) for run in runs}) > 1]
    return sorted(differing, key=lambda key: key not in given and key.rpartition(".")[0] not in given)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return "" if value is None else str(value)
