"""Writes the report of a run: one HTML file that loads nothing and escapes every name."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from segmeter.checks import expected
from segmeter.classes import ClassSpec
from segmeter.errors import InputError
from segmeter.files import link_error, write_bytes
from segmeter.metrics.summary.agreement import Agreement
from segmeter.records import Form, Summary, read_json_lines
from segmeter.report.columns import Column
from segmeter.report.config import ReportConfig
from segmeter.report.decisions import DECISIONS, decision_values
from segmeter.report.page.comparison import SCRIPTS as COMPARISON_SCRIPTS
from segmeter.report.page.comparison import comparison_values
from segmeter.report.page.evaluation import SCRIPTS, evaluation_values, explorer_values
from segmeter.report.page.render import config_text, if_there, load_json, load_run, render
from segmeter.report.page.training import SCRIPTS as TRAINING_SCRIPTS
from segmeter.report.page.training import training_values
from segmeter.report.pictures.chosen import Ranking, choose_pictures, read_notes, take_turns
from segmeter.report.pictures.layers import FOLDER, NOTES
from segmeter.report.readers import AGREED, agreement_values
from segmeter.report.suspects import LABEL_NEXT, SUSPECTS, label_next_values, suspects_values


class _Comparison(Form):
    """The form of compare.json."""

    folders: dict[str, str]
    metrics: dict[str, dict[str, Any]]
    order: list[str]
    rank_by: str
    other_orders: dict[str, list[str]] = Field(default_factory=dict)


OWN_PAGES = ("compare.html", "agree.html", "suspects.html", "label_next.html")  # the others are called report.html


class _Page(NamedTuple):
    """A page that shows one file of results."""

    template: str
    values: Callable[[Path, Any, ReportConfig], dict[str, Any]]
    scripts: Sequence[str]
    form: Any = dict[str, Any]


_PAGES = {
    "compare.json": _Page("compare.html", comparison_values, COMPARISON_SCRIPTS, _Comparison),
    AGREED: _Page("agree.html", lambda folder, read, _: agreement_values(folder, read), ("dom", "sorting"), Agreement),
    SUSPECTS: _Page(
        "suspects.html", lambda folder, read, _: suspects_values(folder, read), ("dom", "sorting", "suspects")
    ),
    LABEL_NEXT: _Page("label_next.html", lambda _, read, __: label_next_values(read), ("dom", "sorting")),
}
_NOTHING: dict[str, Any] = {"evaluation": None, "explorer": None, "sections": [("run", "Run")]}


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
    for name, show in DECISIONS.items():
        if (decided := load_json(run_folder / name)) is not None:
            shown = _checked(run_folder, name, lambda: decision_values(show(decided)))  # noqa: B023
            return _write(run_folder, "decision.html", shown, scripts=("sorting",), config=config)
    for name, page in _PAGES.items():
        if (read := load_json(run_folder / name, page.form)) is not None:
            values = _checked(run_folder, name, lambda: page.values(run_folder, read, config))  # noqa: B023
            return _write(run_folder, page.template, values, scripts=page.scripts, config=config)
    summary = load_json(run_folder / "metrics.json", Summary)
    history = if_there(read_json_lines, run_folder / "history.jsonl")
    if summary is not None:
        if (run_folder / "cases.parquet").is_symlink():  # pyarrow would follow it
            raise link_error(run_folder / "cases.parquet")
        found = _checked(run_folder, "metrics.json", lambda: evaluation_values(run_folder, summary, config))
    elif history is not None:
        values = training_values(run_folder, history, config)
        return _write(run_folder, "train.html", values, scripts=TRAINING_SCRIPTS, config=config)
    elif (run_folder / "predictions").is_dir() or (run_folder / FOLDER).is_dir():
        found = prediction_values(run_folder, config)
    else:
        rule = "to hold metrics.json, history.jsonl, compare.json or predictions"
        raise InputError(expected("write_report", "run_folder", rule, str(run_folder), "Give a run's folder."))
    scripts = SCRIPTS if found.get("explorer") else ("dom", "sorting")
    return _write(run_folder, "report.html", _NOTHING | found, scripts=scripts, config=config)


def _checked(folder: Path, name: str, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Gather the values of a page; the error names a file that lacks something or belongs to other cases."""
    try:
        return work()
    except InputError:
        raise
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        rule, remedy = "to be what the run wrote beside its other files", "Restore it, or run again."
        given = f"{folder / name} ({type(error).__name__}: {error})"
        raise InputError(expected("write_report", name, rule, given, remedy)) from error


def _write(
    folder: Path, template: str, values: Mapping[str, Any], *, scripts: Sequence[str], config: ReportConfig
) -> Path:
    """Fill a template with its values and the facts of the run."""
    page = render(
        template,
        scripts=scripts,
        linked=config.pictures == "link",
        title=folder.resolve().name,
        run=load_run(folder),
        config_text=config_text(folder / "config.yaml"),
        **values,
    )
    path = folder / (template if template in OWN_PAGES else "report.html")
    write_bytes(path, page)
    return path


def prediction_values(folder: Path, config: ReportConfig) -> dict[str, Any]:
    """Gather the cases that have a picture, which have no scores."""
    notes = [read_notes(path.parent) for path in sorted((folder / FOLDER).glob(f"*/{NOTES}"))]
    if not notes:
        return {"sections": [("run", "Run")]}
    ids = sorted(each["case"] for each in notes)
    (shown,), left_out = choose_pictures([folder], take_turns(Ranking(case_ids=ids)), config, page=folder)
    columns = [Column(key="id", label="case", values=ids, kind="text", group="case", shown=True)]
    facts = {"kind": "prediction", "sort": "id", "size": "id"}
    explorer = explorer_values(columns, _drawn_spec(notes), shown, config, facts=facts, unshown=left_out)
    return {"explorer": explorer, "sections": [("cases", "Cases"), ("run", "Run")]}


def _drawn_spec(notes: list[dict[str, Any]]) -> ClassSpec:
    """Rebuild the classes from the notes of the pictures; classes that occur in none are named by their number."""
    found = {int(k): entry for each in notes for k, entry in each["classes"].items()}
    size = max([1, *found]) + 1
    return ClassSpec(
        task=notes[0]["task"],
        names=tuple(found[k]["name"] if k in found else f"class {k}" for k in range(size)),
        colours=tuple(tuple(found[k]["colour"]) if k in found else (0, 0, 0) for k in range(size)),
    )
