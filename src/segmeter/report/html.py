"""Writes the report of a run: one HTML file that loads nothing and escapes every name."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from segmeter.checks import expected
from segmeter.classes import ClassSpec
from segmeter.errors import InputError
from segmeter.files import write_bytes
from segmeter.metrics.summary.agreement import Agreement
from segmeter.records import Form, Summary, read_json_lines
from segmeter.report.columns import CaseColumn
from segmeter.report.config import ReportConfig
from segmeter.report.decisions import Shown, show_plan, show_tuned
from segmeter.report.page.comparison import SCRIPTS as COMPARISON_SCRIPTS
from segmeter.report.page.comparison import comparison_values
from segmeter.report.page.evaluation import SCRIPTS, evaluation_values, explorer_values
from segmeter.report.page.render import config_text, if_there, load_json, load_run, render
from segmeter.report.page.training import SCRIPTS as TRAINING_SCRIPTS
from segmeter.report.page.training import training_values
from segmeter.report.pictures.chosen import Ranking, choose_pictures, read_notes, take_turns
from segmeter.report.pictures.layers import FOLDER, NOTES
from segmeter.report.readers import show_agreement
from segmeter.report.suspects import show_label_next, show_suspects


class _Comparison(Form):
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
    scripts: Sequence[str]
    values: Callable[[Path, Any, ReportConfig], dict[str, Any]]
    form: Any = dict[str, Any]


def _decision(name: str, show: Callable[[Any], Shown], form: Any = dict[str, Any]) -> _Page:
    return _Page(name, "decision.html", _PLAIN, lambda folder, read, config: {"shown": show(read)}, form)


def _suspected(folder: Path, read: Any, config: ReportConfig) -> dict[str, Any]:
    return {"shown": show_suspects(read, folder)}


_PLAIN = ("dom", "sorting")
_PAGES = {
    "plan.json": _decision("report.html", show_plan),
    "tune.json": _decision("report.html", show_tuned),
    "agree.json": _decision("agree.html", show_agreement, Agreement),
    "suspects.json": _Page("suspects.html", "decision.html", _PLAIN, _suspected),
    "label_next.json": _decision("label_next.html", show_label_next),
    "compare.json": _Page("compare.html", "compare.html", COMPARISON_SCRIPTS, comparison_values, _Comparison),
    "metrics.json": _Page("report.html", "report.html", SCRIPTS, evaluation_values, Summary),
    "history.jsonl": _Page("report.html", "train.html", TRAINING_SCRIPTS, training_values),
}


def write_report(run_folder: Path, config: ReportConfig | None = None) -> Path:
    """Write report.html from the files in the run's folder. An older report stays until the new one is complete.

    An evaluation has metrics.json, cases.parquet and pictures/, a training history.jsonl, a comparison compare.json,
    an agreement agree.json, and a prediction predictions/ and pictures/. The page also shows run.json and config.yaml,
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
        read = if_there(read_json_lines, path) if path.suffix == ".jsonl" else load_json(path, page.form)
        if read is not None:
            return _write(run_folder, page, _checked(path, page, read, config), config=config)
    if not ((run_folder / "predictions").is_dir() or (run_folder / FOLDER).is_dir()):
        rule = "to hold metrics.json, history.jsonl, compare.json or predictions"
        raise InputError(expected("write_report", "run_folder", rule, str(run_folder), "Give a run's folder."))
    values = prediction_values(run_folder, config)
    page = _PAGES["metrics.json"]._replace(scripts=SCRIPTS if values["explorer"] else _PLAIN)
    return _write(run_folder, page, values, config=config)


def _checked(path: Path, page: _Page, read: Any, config: ReportConfig) -> dict[str, Any]:
    """Gather the values of a page; the error names a file that lacks something or belongs to other cases."""
    try:
        return page.values(path.parent, read, config)
    except InputError:
        raise
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        rule, remedy = "to be what the run wrote beside its other files", "Restore it, or run again."
        given = f"{path} ({type(error).__name__}: {error})"
        raise InputError(expected("write_report", path.name, rule, given, remedy)) from error


def _write(folder: Path, page: _Page, values: Mapping[str, Any], *, config: ReportConfig) -> Path:
    """Fill a template with its values and the facts of the run."""
    known = {
        "title": folder.resolve().name,
        "run": load_run(folder),
        "config_text": config_text(folder / "config.yaml"),
    }
    linked = config.pictures == "link"
    write_bytes(folder / page.name, render(page.template, scripts=page.scripts, linked=linked, **known, **values))
    return folder / page.name


def prediction_values(folder: Path, config: ReportConfig) -> dict[str, Any]:
    """Gather the cases that have a picture, which have no scores."""
    notes = [read_notes(path.parent) for path in sorted((folder / FOLDER).glob(f"*/{NOTES}"))]
    if not notes:
        return {"evaluation": None, "explorer": None}
    ids = sorted(each["case"] for each in notes)
    (shown,), left_out = choose_pictures([folder], take_turns(Ranking(case_ids=ids)), config, page=folder)
    columns = [CaseColumn("id", "case", ids, "text", "case", shown=True)]
    facts = {"kind": "prediction", "sort": "id", "size": "id"}
    explorer = explorer_values(columns, _drawn_spec(notes), shown, config, facts=facts, unshown=left_out)
    return {"evaluation": None, "explorer": explorer}


def _drawn_spec(notes: list[dict[str, Any]]) -> ClassSpec:
    """Rebuild the classes from the notes of the pictures; classes that occur in none are named by their number."""
    found = {int(k): entry for each in notes for k, entry in each["classes"].items()}
    looks = [found.get(k, {"name": f"class {k}", "colour": (0, 0, 0)}) for k in range(max([1, *found]) + 1)]
    names, colours = tuple(each["name"] for each in looks), tuple(tuple(each["colour"]) for each in looks)
    return ClassSpec(task=notes[0]["task"], names=names, colours=colours)
