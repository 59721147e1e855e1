"""Writes pages, each one HTML file that loads nothing and escapes every name.

A page shows one run, or an index of all runs below a folder.
"""

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from pydantic import Field

from segmeter import records
from segmeter.checks import expected, some
from segmeter.classes import ClassSpec
from segmeter.errors import InputError
from segmeter.files import write_bytes
from segmeter.metrics.summary.agreement import Agreement
from segmeter.report import figures
from segmeter.report.columns import CaseColumn
from segmeter.report.config import ReportConfig
from segmeter.report.decisions import Shown, show_plan, show_tuned
from segmeter.report.labels import show_agreement, show_label_next, show_suspects
from segmeter.report.page.comparison import comparison_values
from segmeter.report.page.evaluation import evaluation_values, explorer_values
from segmeter.report.page.render import PLAIN, if_there, plain_text, render
from segmeter.report.page.training import training_values
from segmeter.report.pictures.chosen import Ranking, read_notes, take_turns
from segmeter.report.pictures.layers import FOLDER, NOTES
from segmeter.report.tables import Cell, Column, Table

_LOG = logging.getLogger(__name__)
MOST_KEYS = 12  # A table shows at most this many keys of configurations.
_LONGEST_CONFIG = 200_000  # A page shows at most this many characters of a configuration.
_LINKED = ("report.html", "compare.html", "agree.html", "suspects.html", "label_next.html")
_OF_NO_INTEREST = ("run.", "report.", "logger.")  # Keys that begin like this change no result.


class _Comparison(records.Form):
    """The form of compare.json."""

    folders: dict[str, str]
    metrics: dict[str, dict[str, Any]]
    order: list[str]
    rank_by: str
    other_orders: dict[str, list[str]] = Field(default_factory=dict)


class _Page(NamedTuple):
    """A page that shows one file of results."""

    name: str
    template: str
    values: Callable[[Path, Any, ReportConfig], dict[str, Any]]
    form: Any = dict[str, Any]


def _shown(show: Callable[[Any], Shown], folder: Path, content: Any, config: ReportConfig) -> dict[str, Any]:
    return {"shown": show(content)}


_PAGES = {
    "plan.json": _Page("report.html", "decision.html", partial(_shown, show_plan)),
    "tune.json": _Page("report.html", "decision.html", partial(_shown, show_tuned)),
    "agree.json": _Page("agree.html", "decision.html", partial(_shown, show_agreement), Agreement),
    "suspects.json": _Page(
        "suspects.html", "decision.html", lambda folder, content, config: {"shown": show_suspects(content, folder)}
    ),
    "label_next.json": _Page("label_next.html", "decision.html", partial(_shown, show_label_next)),
    "compare.json": _Page("compare.html", "compare.html", comparison_values, _Comparison),
    "metrics.json": _Page("report.html", "report.html", evaluation_values, records.Summary),
    "history.jsonl": _Page("report.html", "train.html", training_values),
}


def write_report(run_folder: Path, config: ReportConfig | None = None) -> Path:
    """Write report.html from the files in the run's folder. An older report stays until the new one is complete.

    An evaluation has metrics.json, cases.parquet and pictures/, a training history.jsonl, a comparison compare.json,
    an agreement agree.json, and a prediction predictions/ and pictures/. The page also shows run.json and config.yaml
    if they exist. It loads nothing, and its content policy allows only its own style and script.

    Parameters
    ----------
    run_folder
        A folder under runs/.
    config
        Whether pictures are embedded, and how many bytes of them; None is the default.

    Returns
    -------
    The path of report.html, or of a comparison's compare.html.

    Raises
    ------
    InputError
        The folder has none of these files, or one of them can't be read.
    """
    if not run_folder.is_dir():
        rule = "to be the folder of a run"
        raise InputError(expected("write_report", "run_folder", rule, str(run_folder), "Give a run's folder."))
    config = config or ReportConfig()
    for name, page in _PAGES.items():
        path = run_folder / name
        is_lines = path.suffix == ".jsonl"
        content = if_there(records.read_json_lines, path) if is_lines else if_there(records.read_json, path, page.form)
        if content is None:
            continue
        try:
            values = page.values(run_folder, content, config)
        except InputError:
            raise
        except (LookupError, TypeError, AttributeError, ValueError) as error:  # the file has other cases, or lacks some
            rule, remedy = "to be what the run wrote beside its other files", "Restore it, or run again."
            given = f"{path} ({type(error).__name__}: {error})"
            raise InputError(expected("write_report", name, rule, given, remedy)) from error
        break
    else:
        if not ((run_folder / "predictions").is_dir() or (run_folder / FOLDER).is_dir()):
            rule = "to hold metrics.json, history.jsonl, compare.json or predictions"
            raise InputError(expected("write_report", "run_folder", rule, str(run_folder), "Give a run's folder."))
        page, values = _PAGES["metrics.json"], prediction_values(run_folder, config)
        values["scripts"] = None if values["explorer"] else PLAIN
    config_text = (if_there(records.read_own, run_folder / records.CONFIG) or b"").decode(errors="replace")
    values |= {"title": run_folder.resolve().name, "run": if_there(records.read_run, run_folder) or {}}
    linked = config.pictures == "link"
    html = render(page.template, linked=linked, config_text=config_text[:_LONGEST_CONFIG], **values)
    write_bytes(run_folder / page.name, html)
    return run_folder / page.name


def prediction_values(folder: Path, config: ReportConfig) -> dict[str, Any]:
    """Gather the cases of a prediction that have a picture; there are no scores.

    The notes of the pictures name the classes. A class that occurs in none of them is named by its number.
    """
    notes = [read_notes(path.parent) for path in sorted((folder / FOLDER).glob(f"*/{NOTES}"))]
    if not notes:
        return {"evaluation": None, "explorer": None}
    occurring = {int(k): entry for note in notes for k, entry in note["classes"].items()}
    classes = [occurring.get(k, {"name": f"class {k}", "colour": (0, 0, 0)}) for k in range(max([1, *occurring]) + 1)]
    names, colours = tuple(entry["name"] for entry in classes), tuple(tuple(entry["colour"]) for entry in classes)
    spec = ClassSpec(task=notes[0]["task"], names=names, colours=colours)
    ids = sorted(note["case"] for note in notes)
    columns = [CaseColumn("id", "case", ids, "text", "case", shown=True)]
    facts = {"kind": "prediction", "sort": "id", "size": "id"}
    order = take_turns(Ranking(case_ids=ids))
    return {"evaluation": None, "explorer": explorer_values(folder, columns, spec, config, order=order, facts=facts)}


def write_index(root: Path) -> Path:
    """Write index.html with one table per command of all runs below a folder, the newest first.

    Raises
    ------
    InputError
        There is no run, or a record is damaged.
    """
    runs = []
    for folder, subfolders, files in os.walk(root):
        if records.RUN in files:
            runs.append(_load(Path(folder), root))
        # a run contains no other runs
        subfolders[:] = [] if records.RUN in files else sorted(name for name in subfolders if not name.startswith("."))
    if not runs:
        rule = "to hold finished or begun runs, each with run.json"
        raise InputError(expected("write_index", "runs", rule, f"{root}, which has none", "Give a folder as runs/."))
    commands = [run["command"] for run in runs]
    order = dict.fromkeys([*(name for name in ("eval", "score", "train", "compare") if name in commands), *commands])
    tables = [_table(name, [run for run in runs if run["command"] == name]) for name in order]
    when = f"{len(runs)} run{'s' if len(runs) != 1 else ''}"
    page = render("list.html", title=root.resolve().name, tables=tables, kind="runs", when=when)
    write_bytes(root / "index.html", page)
    return root / "index.html"


def _load(folder: Path, root: Path) -> dict[str, Any]:
    """Load a run as a row of the index, with "figures.NAME" and "settings.KEY".

    The state of a damaged run is the message that describes the damage.
    """
    summary = None
    settings, scores = dict[str, Any](), dict[str, Any]()
    try:
        summary = if_there(records.read_json, folder / "metrics.json", records.Summary)
        record = records.read_run(folder)
        with suppress(OSError):  # there is no configuration, or it may not be read
            settings = records.flatten(records.read_yaml(folder / records.CONFIG))
        scores = {row["name"]: row["dataset"] for row in figures.aggregates(summary)} if summary else {}
    except InputError as error:
        _LOG.warning("%s", error)
        summary, record, settings = None, {"command": folder.parent.name, "state": str(error)}, {}
    for name, value in () if scores else (record.get("result") or {}).items():
        if value in (None, "inf", "-inf") or (isinstance(value, int | float) and not isinstance(value, bool)):
            scores[name] = value
    page = next((name for name in _LINKED if (folder / name).is_file()), None)
    path = folder.relative_to(root)
    link = None if page is None else "/".join(quote(os.fsencode(part)) for part in (*path.parts, page))
    run = Cell(str(path) if folder != root else folder.resolve().name, link=link)
    row = {"run": run, "state": record.get("state"), "cases": summary.get("n_cases") if summary else None}
    row |= {"command": record.get("command", ""), "overrides": record.get("overrides") or ()}
    began = str(record.get("start") or "")
    row |= {"began": began, "start": began[:19].replace("T", " ")}
    row |= {f"figures.{name}": value for name, value in scores.items()}
    return row | {f"settings.{key}": value for key, value in settings.items()}


def _table(command: str, runs: list[dict[str, Any]]) -> Table:
    """Lay out the runs of one command with the settings in which they differ; those that users set lead."""
    runs.sort(key=lambda run: run["began"], reverse=True)
    names = dict.fromkeys(name for run in runs for name in run)
    set_by_users = {override.partition("=")[0].lstrip("+~") for run in runs for override in run["overrides"]}
    missing = object()
    keys = [name.removeprefix("settings.") for name in names if name.startswith("settings.")]
    keys = [key for key in keys if len({repr(run.get(f"settings.{key}", missing)) for run in runs}) > 1]
    keys = [key for key in keys if not key.startswith(_OF_NO_INTEREST)]
    keys.sort(key=lambda key: key not in set_by_users and key.rpartition(".")[0] not in set_by_users)
    columns = [Column(name, name) for name in ("run", "state", "start")]
    scores = [name for name in names if name.startswith("figures.")]
    columns += [Column(name.removeprefix("figures."), name, figures.quantity) for name in scores]
    columns.append(Column("cases", "cases", lambda cases: "" if cases is None else f"{cases:,}"))
    columns += [Column(key, f"settings.{key}", plain_text) for key in keys[:MOST_KEYS]]
    rows = [dict.fromkeys(names, "") | run for run in runs]
    note = f"They also differ in {some(keys[MOST_KEYS:])}." if keys[MOST_KEYS:] else ""
    return Table.of(columns, rows, names=3, strong=(), title=command or "other runs", note=note)
