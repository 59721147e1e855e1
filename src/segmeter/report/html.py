"""A run's folder -> report.html: one file, nothing fetched, every name escaped."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from segmeter.checks import expected
from segmeter.errors import InputError
from segmeter.files import write_bytes
from segmeter.open_files import read_json_lines
from segmeter.report import figures
from segmeter.report.config import ReportConfig
from segmeter.report.page.charts import curves
from segmeter.report.page.evaluation import SCRIPTS, evaluation_values
from segmeter.report.page.prediction import prediction_values
from segmeter.report.page.render import render
from segmeter.report.pictures.layers import FOLDER

_LONGEST_CONFIG = 200_000  # characters shown
_NOTHING: dict[str, Any] = {"evaluation": None, "explorer": None, "sections": [("run", "Run")]}


def write_report(run_folder: Path, config: ReportConfig | None = None) -> Path:
    """Write report.html from what the run's folder holds; an older report stays until the new one is complete.

    An evaluation's folder has metrics.json, cases.parquet and pictures/, a training's folder history.jsonl, and one of
    predict predictions/ and pictures/; run.json and config.yaml are shown where they are. The page loads nothing, and
    its content policy forbids all but its own style and script.

    Parameters
    ----------
    run_folder
        A folder under runs/.
    config
        Whether pictures are embedded, and how many bytes of them; None is the default.

    Returns
    -------
    The path of report.html.

    Raises
    ------
    InputError
        The folder has nothing of that, or one of its files can't be read.
    """
    config = config or ReportConfig()
    summary, history = _load(run_folder / "metrics.json"), _load_lines(run_folder / "history.jsonl")
    if summary is not None:
        found = evaluation_values(run_folder, summary, config)
    elif history is not None:
        found = {}
    elif (run_folder / "predictions").is_dir() or (run_folder / FOLDER).is_dir():
        found = prediction_values(run_folder, config)
    else:
        rule = "to hold metrics.json, history.jsonl or predictions"
        raise InputError(expected("write_report", "run_folder", rule, str(run_folder), "Give a run's folder."))
    page = render(
        "report.html",
        scripts=SCRIPTS if found.get("explorer") else ("dom", "sorting"),
        linked=config.pictures == "link",
        title=run_folder.resolve().name,
        run=_load(run_folder / "run.json") or {},
        config_text=_config_text(run_folder / "config.yaml"),
        charts=curves(history or []),
        **(_NOTHING | found),
    )
    path = run_folder / "report.html"
    write_bytes(path, page)
    return path


def render_summary(summary: Mapping[str, Any]) -> str:
    """A short table of metrics.json for notebooks, as HTML without style or script."""
    rows = figures.aggregates(summary)
    page = render(
        "summary.html", scripts=(), aggregates=rows, classes=figures.classes(summary), notes=figures.notes(summary)
    )
    return page.decode()


def _load(path: Path) -> Any:
    if not path.is_file():
        return None
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        raise InputError(expected("write_report", path.name, "to be JSON", f"{str(path)!r} ({error})")) from error


def _load_lines(path: Path) -> list[dict[str, Any]] | None:
    if not path.is_file():
        return None
    try:
        return read_json_lines(path)
    except ValueError as error:
        raise InputError(
            expected("write_report", path.name, "to be lines of JSON", f"{str(path)!r} ({error})")
        ) from error


def _config_text(path: Path) -> str:
    return path.read_text(errors="replace")[:_LONGEST_CONFIG] if path.is_file() else ""
