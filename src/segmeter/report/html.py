"""A run's folder -> report.html: one file, nothing fetched, every name escaped."""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from segmeter.checks import expected
from segmeter.classes import ClassSpec
from segmeter.errors import InputError
from segmeter.files import write_bytes
from segmeter.metrics.cases.stored import open_cases, read_spec
from segmeter.metrics.cases.table import CaseRow, stack_totals
from segmeter.metrics.pixels.overlap import score_totals
from segmeter.open_files import read_json_lines
from segmeter.report import figures
from segmeter.report.charts import calibration_charts, curves, heat_map, histogram
from segmeter.report.config import ReportConfig
from segmeter.report.gallery import worst_first
from segmeter.report.pictures import Picture, load_pictures

MOST_ROWS = 1000  # of the table of cases; cases.csv has them all
_PAGE = Path(__file__).parent / "page"
_LONGEST_CONFIG = 200_000  # characters shown


def write_report(run_folder: Path, config: ReportConfig | None = None) -> Path:
    """Write report.html from what the run's folder holds; an older report stays until the new one is complete.

    An evaluation's folder has metrics.json, cases.parquet and overlays/, a training's folder history.jsonl, and one of
    predict predictions/ and overlays/; run.json and config.yaml are shown where they are. The page loads nothing, and
    its content policy forbids all but its own style and script.

    Parameters
    ----------
    run_folder
        A folder under runs/.
    config
        How many pictures it shows; None is the default.

    Returns
    -------
    The path of report.html.

    Raises
    ------
    InputError
        The folder has nothing of that, or one of its files can't be read.
    """
    summary, history = _load(run_folder / "metrics.json"), _load_lines(run_folder / "history.jsonl")
    pictures = _pictures(run_folder, config or ReportConfig()) if summary is None and history is None else []
    if summary is None and history is None and not pictures and not (run_folder / "predictions").is_dir():
        rule = "to hold metrics.json, history.jsonl or predictions"
        raise InputError(expected("write_report", "run_folder", rule, str(run_folder), "Give a run's folder."))
    page = render(
        "report.html",
        title=run_folder.resolve().name,
        run=_load(run_folder / "run.json") or {},
        config_text=_config_text(run_folder / "config.yaml"),
        charts=curves(history or []),
        pictures=pictures,
        evaluation=_evaluation(run_folder, summary, config or ReportConfig()) if summary else None,
    )
    path = run_folder / "report.html"
    write_bytes(path, page)
    return path


def render_summary(summary: Mapping[str, Any]) -> str:
    """A short table of metrics.json for notebooks, as HTML without style or script."""
    rows = figures.aggregates(summary)
    page = render("summary.html", aggregates=rows, classes=figures.classes(summary), notes=figures.notes(summary))
    return page.decode()


def render(template: str, **values: Any) -> bytes:
    """Fill a template of the folder page/ with values, all of them escaped; it gets our style and script."""
    environment = Environment(
        loader=FileSystemLoader(_PAGE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(
        number=figures.number, quantity=figures.quantity, interval=figures.interval, facts=_facts
    )
    style, script = (_PAGE / "style.css").read_text("utf-8"), (_PAGE / "report.js").read_text("utf-8")
    own = {"policy": _policy(style, script), "style": Markup(style), "script": Markup(script)}  # our files, not data
    return environment.get_template(template).render(**own, **values).encode("utf-8", "replace")


def _policy(style: str, script: str) -> str:
    """The content policy: data URIs for pictures, one style and one script by their hashes, nothing else."""
    hashes = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script))
    style_hash, script_hash = hashes
    return (
        f"default-src 'none'; img-src data:; style-src 'sha256-{style_hash}'; script-src 'sha256-{script_hash}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _evaluation(folder: Path, summary: Mapping[str, Any], config: ReportConfig) -> dict[str, Any]:
    rows, spec = open_cases([folder]), read_spec(folder)
    scores, cases = _cases(rows, spec, summary)
    worst, others = load_pictures(folder / "overlays", scores, config)
    matrix = summary.get("confusion_matrix")
    return {
        "notes": figures.notes(summary),
        "headline": figures.headline(spec.task, spec.names),
        "aggregates": figures.aggregates(summary),
        "classes": figures.classes(summary),
        "groups": figures.groups(summary),
        "colours": dict(zip(spec.names, spec.colours, strict=True)),
        "measures": figures.measures(summary),
        "conventions": figures.conventions(summary),
        "headlines": figures.headlines(summary),
        "refused": figures.refused(summary),
        "calibration": figures.calibration(summary),
        "calibration_classes": (summary.get("calibration") or {}).get("per_class", {}),
        "calibration_charts": calibration_charts(summary["calibration"]) if summary.get("calibration") else [],
        "loss": summary.get("loss") or {},
        "heat": heat_map(matrix, summary["classes"]) if matrix else None,
        "histogram": histogram([score for score in scores.values() if score is not None]),
        "cases": cases,
        "n_cases": len(scores),
        "worst": worst,
        "others": others,
    }


def _pictures(folder: Path, config: ReportConfig) -> list[Picture]:
    """Load pictures of cases without a reference: as many as an evaluation shows, spread evenly."""
    scores = dict.fromkeys(path.stem for path in (folder / "overlays").glob("*.png"))
    even = config.replace(worst=0, others=min(100, config.worst + config.others))
    return load_pictures(folder / "overlays", scores, even)[1]


def _cases(
    rows: Sequence[CaseRow], spec: ClassSpec, summary: Mapping[str, Any]
) -> tuple[dict[str, float | None], list[dict[str, Any]]]:
    """The headline of every case, the worst first, and entries of the first `MOST_ROWS`.

    Means run over the classes that the summary's run over.
    """
    counted = [spec.names.index(name) for name in summary.get("mean_classes", spec.names)]
    scores = score_totals(stack_totals(rows, spec), task=spec.task, classes=counted)
    headline = figures.headline_scores(scores, spec.task)
    places = {row.case_id: i for i, row in enumerate(rows)}
    found = {name: _plain(headline[i]) for name, i in places.items()}
    worst = {name: found[name] for name in worst_first(found)}

    def entry(name: str) -> dict[str, Any]:
        i, row = places[name], rows[places[name]]
        return {
            "id": row.case_id,
            "score": worst[name],
            "size": (row.width, row.height),
            "mean_iou": _plain(scores.mean_iou[i]),
            "mean_dice": _plain(scores.mean_dice[i]),
            "pixel_accuracy": _plain(scores.pixel_accuracy[i]),
            "loss": row.loss,
            "weakest": _weakest(scores.iou[i], spec, counted),
            "changed": sum(row.changed_pixels.values()) if row.changed_pixels else None,
        }

    return worst, [entry(name) for name in list(worst)[:MOST_ROWS]]


def _weakest(iou: Any, spec: ClassSpec, counted: list[int]) -> tuple[str, float] | None:
    """Name and IoU of the class with the lowest defined IoU."""
    defined = [k for k in counted if not np.isnan(iou[k])]
    if not defined:
        return None
    lowest = min(defined, key=lambda k: float(iou[k]))
    return spec.names[lowest], float(iou[lowest])


def _plain(value: Any) -> float | None:
    return None if np.isnan(value) else float(value)


def _facts(record: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Names and texts of a nested record, in order; lists on one line."""
    found: list[tuple[str, str]] = []
    for name, value in record.items():
        if isinstance(value, Mapping):
            found += _facts(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            found.append((f"{prefix}{name}", ", ".join(map(str, value))))
        else:
            found.append((f"{prefix}{name}", "" if value is None else str(value)))
    return found


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
