"""An evaluation's folder -> the values of its page."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from segmeter.classes import ClassSpec
from segmeter.files import safe_id
from segmeter.metrics.cases.stored import open_cases, read_spec
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.summary.directions import find_direction
from segmeter.report import figures
from segmeter.report.config import ReportConfig
from segmeter.report.data.cases import HEADLINE, ID, STATUS_WORDS, case_columns
from segmeter.report.data.cells import cell_cases
from segmeter.report.data.columns import Column, pack_page, within
from segmeter.report.page.charts import calibration_charts
from segmeter.report.pictures.chosen import Shown, choose_pictures

DATA_BYTES = 3_200_000  # of the columns' numbers before they are compressed, to about half

SCRIPTS = (
    *("dom", "numbers", "state", "cases", "axes", "sorting"),
    *("table", "toolbar", "charts", "confusion", "layers", "gallery", "case", "explorer", "evaluation"),
)


def evaluation_values(folder: Path, summary: Mapping[str, Any], config: ReportConfig) -> dict[str, Any]:
    """Gather what the template shows of an evaluation: ``evaluation``, ``explorer`` and ``sections``."""
    rows, spec = open_cases([folder]), read_spec(folder)
    columns = {column.key: column for column in [*case_columns(rows, spec, summary), *_files(folder, rows)]}
    headlines = zip(columns[ID].values, columns[HEADLINE].values, strict=True)
    scores = {case_id: None if np.isnan(value) else float(value) for case_id, value in headlines}
    shown = choose_pictures(folder, scores, config, of_class=_worst_of_classes(rows, columns, spec))
    matrix = summary.get("confusion_matrix")
    evaluation = {
        "notes": figures.notes(summary),
        "headline": figures.headline(spec.task, spec.names),
        "aggregates": figures.aggregates(summary),
        "classes": _classes(summary, columns),
        "groups": figures.groups(summary),
        "colours": dict(zip(spec.names, spec.colours, strict=True)),
        "measures": _measures(summary, columns),
        "slices": figures.slices(summary),
        "slice_title": figures.slice_title(summary) if summary.get("slices") else "",
        "conventions": figures.conventions(summary),
        "headlines": figures.headlines(summary),
        "refused": figures.refused(summary),
        "calibration": figures.calibration(summary),
        "calibration_classes": (summary.get("calibration") or {}).get("per_class", {}),
        "calibration_charts": calibration_charts(summary["calibration"]) if summary.get("calibration") else [],
        "loss": summary.get("loss") or {},
        "confusion": bool(matrix) and not spec.is_multilabel,
    }
    facts = {"matrix": matrix, "sort": HEADLINE, "size": "objects"}
    arrays = cell_cases(rows, spec)
    explorer = explorer_values(list(columns.values()), spec, shown, config, facts=facts, arrays=arrays)
    return {"evaluation": evaluation, "explorer": explorer, "sections": _sections(evaluation)}


def explorer_values(
    columns: Sequence[Column],
    spec: ClassSpec,
    shown: Shown,
    config: ReportConfig,
    *,
    facts: Mapping[str, Any],
    arrays: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Gather what the section of cases needs: ``data`` and ``layers``, as the scripts read them, and ``notes``.

    Parameters
    ----------
    columns
        The most important first; what is too much for a page is left out, and said.
    facts
        ``sort``, the key of the column that orders the cases, ``size``, that of the other axis, and further ones.
    arrays
        Further whole numbers by name.
    """
    kept, left = within(columns, DATA_BYTES)
    common = {
        "classes": list(spec.names),
        "colours": [list(colour) for colour in spec.colours],
        "task": spec.task,
        "linked": config.pictures == "link",
        "noPictures": "No pictures were kept: they need the images (images= of score), and report.overlays above 0.",
        "noPicture": _no_picture(shown),
        "pictured": len(shown.cases),
    }
    notes = [] if not left else [f"Left out of this page, not of cases.csv: {', '.join(_groups(left))}."]
    if shown.left_out:
        some = ", ".join(shown.left_out[:8]) + (" and others" if len(shown.left_out) > 8 else "")
        count = len(shown.left_out)
        notes.append(f"{count} kept pictures left out by report.picture_mb={config.picture_mb:g}: {some}.")
    return {
        "data": Markup(pack_page(common | dict(facts), kept, dict(arrays or {}))),  # Base64
        "layers": script_json(shown.cases),
        "notes": notes,
    }


def script_json(content: Any) -> Markup:
    """JSON that can stand in a script element: no name in it ends the element."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace").decode()
    return Markup(text.replace("<", "\\u003c"))  # every "<" is inside a string


def _files(folder: Path, rows: Sequence[CaseRow]) -> Iterator[Column]:
    """Where each case's prediction is, of a run that wrote label maps."""
    place = folder / "predictions" / "labels"
    names = {path.stem: path.name for path in place.iterdir()} if place.is_dir() else {}
    if names:
        texts = [names.get(safe_id(row.case_id), "") for row in rows]
        files = [f"{place.relative_to(folder)}/{text}" if text else "" for text in texts]
        yield Column(key="file", label="prediction", values=files, kind="text", group="case")


def _no_picture(shown: Shown) -> str:
    kept = "the worst cases, the worst of each class and a sample" if shown.cases else "no case"
    remedy = "report.overlays=-1 keeps all, and report.pictures=link shows all of them."
    return f"No picture of this case: the page holds those of {kept}. {remedy}"


def _groups(columns: Sequence[Column]) -> list[str]:
    return [f"{group} ({count})" for group, count in Counter(column.group for column in columns).items()]


def _worst_of_classes(rows: Sequence[CaseRow], columns: Mapping[str, Column], spec: ClassSpec) -> list[str]:
    """For each class that occurs, the case where it is worst."""
    found = []
    for k in range(spec.num_classes):
        values = np.asarray(columns[f"iou/{k}"].values)
        if len(values) and not np.isnan(values).all():
            found.append(rows[int(np.nanargmin(values))].case_id)
    return found


def _classes(summary: Mapping[str, Any], columns: Mapping[str, Column]) -> list[dict[str, Any]]:
    """Rows of the table of classes, each with the number of cases by what became of it."""
    words = [STATUS_WORDS["prediction_empty"], STATUS_WORDS["target_empty"]]
    rows = figures.classes(summary)
    for k, row in enumerate(rows):
        counts = Counter(columns[f"status/{k}"].values)
        row["statuses"] = {word: counts[word] for word in words}
    return rows


def _measures(summary: Mapping[str, Any], columns: Mapping[str, Column]) -> list[dict[str, Any]]:
    """Rows of the table of measures, each with the key of its cases' column, and which values are better."""
    rows = figures.measures(summary)
    for row in rows:
        key = f"measure/{row['metric']}/{row['region']}"
        found = columns.get(key)
        row |= {"column": found and key, "better": find_direction(row["metric"])}
        row["of_class"] = None if found is None else found.of_class
    return rows


def _sections(evaluation: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Sections of the page as its contents list them: id and words."""
    there = {
        "classes": True,
        "confusion-matrix": evaluation["confusion"],
        "cases": True,
        "measures": evaluation["measures"],
        "slices": evaluation["slices"],
        "conventions": evaluation["conventions"],
        "probabilities": evaluation["calibration"],
        "run": True,
    }
    words = {"confusion-matrix": "Confusion"}
    return [(name, words.get(name, name.capitalize())) for name, shown in there.items() if shown]


__all__ = ["DATA_BYTES", "ID", "SCRIPTS", "evaluation_values", "explorer_values", "script_json"]
