"""Gathers what the page of an evaluation shows from its folder."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from segmeter.classes import ClassSpec
from segmeter.files import link_error, safe_id
from segmeter.metrics.cases.stored import open_cases, read_spec
from segmeter.report import figures
from segmeter.report.cases import HEADLINE, board_of, case_columns, slice_columns
from segmeter.report.columns import CaseColumn, CellLists, pack_page, within
from segmeter.report.config import ReportConfig
from segmeter.report.page import tables
from segmeter.report.pictures.chosen import Ranking, choose_pictures, take_turns
from segmeter.report.summary import calibration_tables, convention_table, group_table, measure_table, slice_table

DATA_BYTES = 3_600_000  # of the columns' numbers before they are compressed, to about half
CASE_BYTES = 120  # of each case where that is more: its scores, sizes, means of measures, and the IoU of 20 classes
MOST_BYTES = 12_000_000  # of any run
MOST_POINTS = 600  # of one line; longer ones are thinned evenly
MOST_CURVES = 4  # in one chart
Chart = dict[str, Any]

_NO_PICTURES = "This run has no pictures: they need images (images= of score) and report.overlays above 0."
_NO_PICTURE = (
    "This case has no picture: the page has those of the worst cases, the worst case of each class, and a sample. "
    "report.overlays=-1 draws all cases, and report.pictures=link shows all of them."
)


def evaluation_values(folder: Path, summary: Mapping[str, Any], config: ReportConfig) -> dict[str, Any]:
    """Gather the values of the template: ``evaluation`` and ``explorer``."""
    if (folder / "cases.parquet").is_symlink():  # pyarrow would follow it
        raise link_error(folder / "cases.parquet")
    rows, spec = open_cases([folder]), read_spec(folder)
    board, sections = board_of(rows, spec, summary), summary.get("slices") or {"by": {}}
    hashes = dict.fromkeys(sections["by"]) | sections.get("hashes", {})
    sliced, unlisted = slice_columns(board, hashes, table=sections.get("table"))
    cells = None if spec.is_multilabel else CellLists(spec.num_classes)  # pixels of multilabel have several classes
    found = case_columns(board, rows, summary, further=sliced, cells=cells)
    maps = folder / "predictions" / "labels"
    if names := {path.stem: path.relative_to(folder).as_posix() for path in (maps.iterdir() if maps.is_dir() else ())}:
        files = [names.get(safe_id(case_id), "") for case_id in board.run.case_ids]
        found.append(CaseColumn("file", "prediction", files, "text", "case"))
    kept, left = part_columns(found)
    columns, here = ({column.key: column for column in some} for some in (found, kept))  # links may name what is here
    order = take_turns(Ranking.of(board))
    (shown,), left_out = choose_pictures([folder], order, config, page=folder)
    matrix = summary.get("confusion_matrix")
    charts = calibration_charts(summary["calibration"]) if summary.get("calibration") else []
    evaluation = {
        "notes": [*tables.notes(summary, here), *((line, None) for line in unlisted)],
        "aggregates": tables.aggregates(summary, here),
        "classes": tables.classes(summary, here, columns),
        "groups": group_table(tables.groups(summary, here)),
        "colours": dict(zip(spec.names, spec.colours, strict=True)),
        "errors": tables.error_types(summary, here),
        "measures": measure_table(tables.measures(summary, here)),
        "slices": slice_table(summary, tables.slices(summary, here)),
        "conventions": convention_table(summary),
        "refused": [row["refused"] for row in figures.conventions(summary)[1] if row["refused"]],
        "calibration": calibration_tables(tables.calibration(summary, here)) if charts else [],
        "calibration_charts": charts,
        "calibration_curves": script_json(charts),
        "loss": (summary.get("loss") or {}) | {"link": tables.worst_first("loss", here)},
        "confusion": bool(matrix) and not spec.is_multilabel,
    }
    outside = [summary.get("invalid", {}).get(name, 0) for name in spec.names]
    facts = {"matrix": matrix, "outside": outside, "sort": HEADLINE, "size": "objects"}
    arrays = cells.arrays() if cells else {}
    explorer = explorer_values(kept, spec, shown, config, facts=facts, left=left, arrays=arrays, unshown=left_out)
    return {"evaluation": evaluation, "explorer": explorer}


def part_columns(columns: Sequence[CaseColumn]) -> tuple[list[CaseColumn], list[CaseColumn]]:
    """Split columns, the most important first, into those for the page and those that would make it too large."""
    grown = min(MOST_BYTES, CASE_BYTES * len(columns[0].values))
    return within(columns, max(DATA_BYTES, grown))


def explorer_values(
    columns: Sequence[CaseColumn],
    spec: ClassSpec,
    shown: Any,
    config: ReportConfig,
    *,
    facts: Mapping[str, Any],
    left: Sequence[CaseColumn] = (),
    arrays: Mapping[str, Any] | None = None,
    unshown: Sequence[str] = (),
) -> dict[str, Any]:
    """Gather the values of the section of cases: ``data`` and ``layers``, which scripts read, and ``notes``.

    Parameters
    ----------
    columns
        The columns of the page.
    shown
        Pictures by case, as `choose_pictures` loads them; a list of these for several runs.
    facts
        ``sort``, the key of the column that orders the cases, ``size``, that of the other axis, and further ones.
    left
        Columns that were left out; a note names them.
    arrays
        Further whole numbers by name.
    unshown
        Cases whose pictures did not fit; a note names them.
    """
    colours, linked = [list(colour) for colour in spec.colours], config.pictures == "link"
    common = {"classes": list(spec.names), "colours": colours, "task": spec.task, "linked": linked}
    common |= {"noPictures": _NO_PICTURES, "noPicture": _NO_PICTURE if any(shown) else _NO_PICTURES}
    groups = [f"{group} ({count})" for group, count in Counter(column.group for column in left).items()]
    notes = [f"Left out of this page, not of cases.csv: {', '.join(groups)}."] if groups else []
    if unshown:
        some = ", ".join(unshown[:8]) + (" and others" if len(unshown) > 8 else "")
        notes.append(f"report.picture_mb={config.picture_mb:g} leaves no room for {len(unshown)} pictures: {some}.")
    data = Markup(pack_page(common | dict(facts), columns, dict(arrays or {})))  # Base64
    return {"data": data, "layers": script_json(shown), "notes": notes}


def script_json(content: Any) -> Markup:
    """Write JSON for a script element; no name in it can end the element."""
    text = figures.clean(json.dumps(content, ensure_ascii=False, separators=(",", ":")))
    return Markup(text.replace("<", "\\u003c"))  # every "<" is inside a string


def calibration_charts(calibration: Mapping[str, Any]) -> list[Chart]:
    """Lay out the reliability diagram and the precision-recall curves, both from 0 to 1.

    A chart has ``title``, the names of both ``axes`` and ``lines``, each with ``name``, rising ``xs``, ``ys`` and
    ``last``, the number beside its name.

    Parameters
    ----------
    calibration
        The part of metrics.json of this name. With many classes, those with the lowest average precision get a curve.
    """
    entries = calibration["per_class"]
    sure = {"winning class": calibration} if calibration["reliability"] else entries
    reliability, curves = [_line("as said", [0, 1], [0, 1], None)], list[Chart]()
    for name, entry in list(sure.items())[:MOST_CURVES]:
        bins = entry["reliability"]
        reliability.append(_line(f"{name}, ECE", bins["confidence"], bins["accuracy"], entry["ece"]))
    precision = {name: entry["average_precision"] for name, entry in entries.items()}
    known = [name for name in precision if precision[name] is not None]
    for name in sorted(known, key=precision.__getitem__)[:MOST_CURVES]:
        curve = entries[name]["curve"]
        curves.append(_line(f"{name}, AP", curve["recall"], curve["precision"], precision[name]))
    charts = {
        ("reliability", ("probability", "share that came true")): [line for line in reliability if line["xs"]],
        ("precision and recall", ("recall", "precision")): [line for line in curves if line["xs"]],
    }
    return [{"title": title, "axes": axes, "lines": lines} for (title, axes), lines in charts.items() if lines]


def _line(name: str, xs: Sequence[Any], ys: Sequence[Any], last: float | None) -> Chart:
    """Lay out a curve without empty bins."""
    points = [(x, y) for x, y in zip(xs, ys, strict=True) if x is not None and y is not None]
    kept = [*points[: -1 : math.ceil(len(points) / MOST_POINTS)], *points[-1:]] if points else []
    kept = kept[::-1] if kept and kept[0][0] > kept[-1][0] else kept
    return {"name": name, "xs": [round(x, 5) for x, _ in kept], "ys": [round(y, 5) for _, y in kept], "last": last}
