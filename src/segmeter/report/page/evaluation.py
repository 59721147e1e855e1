"""Gathers what the page of an evaluation shows from its folder; every number of a table links to its cases."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
from markupsafe import Markup

from segmeter.classes import ClassSpec
from segmeter.files import link_error, safe_id
from segmeter.metrics.cases.stored import open_cases, read_spec
from segmeter.report import figures
from segmeter.report.cases import HEADLINE, SLICE, STATUS_WORDS, board_of, case_columns, slice_columns
from segmeter.report.columns import SCORE_STEPS, CaseColumn, CellLists, pack_page, part_columns, score_steps
from segmeter.report.config import ReportConfig
from segmeter.report.pictures.chosen import Ranking, choose_pictures, take_turns
from segmeter.report.summary import CALIBRATION, GROUPS, MEASURES, convention_table, slice_table
from segmeter.report.tables import Table

MOST_POINTS = 600  # Lines with more points are thinned evenly.
MOST_CURVES = 4  # A chart has at most this many curves.
ERROR_TYPES = ("boundary", "extent", "segment")
Columns = Mapping[str, CaseColumn]
"""Columns of the page, by key."""
Row = dict[str, Any]
"""A row of a table, or a chart."""

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
    board = board_of(rows, spec, summary)
    recorded_slices = summary.get("slices") or {"by": {}}
    hashes = dict.fromkeys(recorded_slices["by"]) | recorded_slices.get("hashes", {})
    sliced, unlisted = slice_columns(board, hashes, table=recorded_slices.get("table"))
    cells = None if spec.is_multilabel else CellLists(spec.num_classes)  # a multilabel pixel has several classes
    all_columns = case_columns(board, rows, summary, further=sliced, cells=cells)
    maps = folder / "predictions" / "labels"
    if names := {path.stem: path.relative_to(folder).as_posix() for path in (maps.iterdir() if maps.is_dir() else ())}:
        files = [names.get(safe_id(case_id), "") for case_id in board.run.case_ids]
        all_columns.append(CaseColumn("file", "prediction", files, "text", "case"))
    page_columns, left_out = part_columns(all_columns)
    columns = {column.key: column for column in page_columns}  # links may name these
    matrix = summary.get("confusion_matrix")
    charts = calibration_charts(summary["calibration"]) if summary.get("calibration") else []
    calibrated, groups = figures.calibration(summary), figures.classes(summary, groups=True)
    for row in calibrated[1]:
        row["links"] = {"name": _holding(spec.names.index(row["name"]), columns)}
    for number, row in enumerate(groups):
        row["links"] = dict.fromkeys(("name", *figures.SCORES, "support"), _sorted(f"group/{number}", columns))
    outside = _sorted("invalid", columns, "above 0")
    notes = [(line, outside if line.endswith(figures.OUTSIDE) else None) for line in figures.notes(summary)]
    evaluation = {
        "notes": [*notes, *((line, None) for line in unlisted)],
        "aggregates": aggregates(summary, columns),
        "classes": classes(summary, columns, {column.key: column for column in all_columns}),
        "groups": Table.of(GROUPS, groups, strong=()),
        "colours": dict(zip(spec.names, spec.colours, strict=True)),
        "errors": error_types(summary, columns),
        "measures": Table.of(MEASURES, measures(summary, columns), names=2, strong=()),
        "slices": slice_table(summary, _linked_slices(summary, columns)),
        "conventions": convention_table(summary),
        "refused": [row["refused"] for row in figures.conventions(summary)[1] if row["refused"]],
        "calibration": [Table.of(*parts, strong=()) for parts in zip(CALIBRATION, calibrated, strict=True) if charts],
        "calibration_charts": charts,
        "calibration_curves": script_json(charts),
        "loss": (summary.get("loss") or {}) | {"link": _sorted("loss", columns)},
        "confusion": bool(matrix) and not spec.is_multilabel,
    }
    invalid = [summary.get("invalid", {}).get(name, 0) for name in spec.names]
    facts = {"matrix": matrix, "outside": invalid, "sort": HEADLINE, "size": "objects"}
    arrays = cells.arrays() if cells else {}
    order = take_turns(Ranking.of(board))
    explorer = explorer_values(
        folder, page_columns, spec, config, order=order, facts=facts, left_out=left_out, arrays=arrays
    )
    return {"evaluation": evaluation, "explorer": explorer}


def _linked_slices(summary: Mapping[str, Any], columns: Mapping[str, CaseColumn]) -> list[dict[str, Any]]:
    """Return the rows of the slices' table, with links that show the cases of each slice."""
    slices = figures.slices(summary)
    for row in slices:
        key = f"{SLICE}{row['by']}"
        link = cases_link({f"is.{key}": row["slice"]}) if key in columns else None
        row["links"] = dict.fromkeys(("label", "n", "value", "difference"), link)
    return slices


def explorer_values(
    folder: Path,
    columns: Sequence[CaseColumn],
    spec: ClassSpec,
    config: ReportConfig,
    *,
    order: Sequence[str],
    facts: Mapping[str, Any],
    runs: Sequence[Path] = (),
    left_out: Sequence[CaseColumn] = (),
    arrays: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Gather the values of the section of cases: ``data`` and ``layers``, which scripts read, and ``notes``.

    Parameters
    ----------
    folder
        The folder of the page, and of its pictures unless it compares `runs`.
    columns
        The columns of the page.
    order
        The cases, the most important first: their pictures are shown as far as there is room.
    facts
        ``sort``, the key of the column that orders the cases; ``size``, the key of the other axis; and further facts.
    runs
        The folders of several runs, whose pictures are shown beside each other.
    left_out
        Columns that were left out; a note names them.
    arrays
        Further whole numbers by name.
    """
    by_run, unshown = choose_pictures(runs or [folder], order, config, page=folder)
    layers: Any = by_run if runs else by_run[0]
    colours, linked = [list(colour) for colour in spec.colours], config.pictures == "link"
    common = {"classes": list(spec.names), "colours": colours, "task": spec.task, "linked": linked}
    common |= {"noPictures": _NO_PICTURES, "noPicture": _NO_PICTURE if any(layers) else _NO_PICTURES}
    groups = [f"{group} ({count})" for group, count in Counter(column.group for column in left_out).items()]
    notes = [f"Left out of this page, not of cases.csv: {', '.join(groups)}."] if groups else []
    if unshown:
        some = ", ".join(unshown[:8]) + (" and others" if len(unshown) > 8 else "")
        notes.append(f"report.picture_mb={config.picture_mb:g} leaves no room for {len(unshown)} pictures: {some}.")
    data = Markup(pack_page(common | dict(facts), columns, dict(arrays or {})))  # Base64
    return {"data": data, "layers": script_json(layers), "notes": notes}


def script_json(content: Any) -> Markup:
    """Write JSON for a script element; no name in it can end the element."""
    text = figures.clean(json.dumps(content, ensure_ascii=False, separators=(",", ":")))
    return Markup(text.replace("<", "\\u003c"))  # every "<" is inside a string


def calibration_charts(calibration: Mapping[str, Any]) -> list[Row]:
    """Lay out the reliability diagram and the precision-recall curves, both from 0 to 1.

    A chart has ``title``, the names of both ``axes`` and ``lines``. A line has ``name``, rising ``xs``, ``ys`` and
    ``last``, the number beside its name.

    Parameters
    ----------
    calibration
        The part of metrics.json of this name. With many classes, those with the lowest average precision get a curve.
    """
    entries = calibration["per_class"]
    with_bins = {"winning class": calibration} if calibration["reliability"] else entries
    reliability, curves = [_line("as said", [0, 1], [0, 1], None)], list[Row]()
    for name, entry in list(with_bins.items())[:MOST_CURVES]:
        bins = entry["reliability"]
        reliability.append(_line(f"{name}, ECE", bins["confidence"], bins["accuracy"], entry["ece"]))
    precision = {name: entry["average_precision"] for name, entry in entries.items()}
    defined = [name for name in precision if precision[name] is not None]
    for name in sorted(defined, key=precision.__getitem__)[:MOST_CURVES]:
        curve = entries[name]["curve"]
        curves.append(_line(f"{name}, AP", curve["recall"], curve["precision"], precision[name]))
    charts = {
        ("reliability", ("probability", "share that came true")): [line for line in reliability if line["xs"]],
        ("precision and recall", ("recall", "precision")): [line for line in curves if line["xs"]],
    }
    return [{"title": title, "axes": axes, "lines": lines} for (title, axes), lines in charts.items() if lines]


def _line(name: str, xs: Sequence[Any], ys: Sequence[Any], last: float | None) -> Row:
    """Lay out a curve without empty bins."""
    points = [(x, y) for x, y in zip(xs, ys, strict=True) if x is not None and y is not None]
    points = [*points[: -1 : math.ceil(len(points) / MOST_POINTS)], *points[-1:]] if points else []
    points = points[::-1] if points and points[0][0] > points[-1][0] else points
    return {"name": name, "xs": [round(x, 5) for x, _ in points], "ys": [round(y, 5) for _, y in points], "last": last}


def cases_link(choice: Mapping[str, str]) -> str:
    """Return the address of a selection of cases on the same page."""
    return f"#?{urlencode(choice)}"


def aggregates(summary: Mapping[str, Any], columns: Columns) -> list[Row]:
    """List the leading scores, each linked to all cases, the worst first, and to the cases where it is undefined."""
    rows = figures.aggregates(summary)
    class_numbers = {name: k for k, name in enumerate(summary["classes"])}
    for number, row in enumerate(rows):
        metric, _, region = row["score"].partition("/")
        of_region = f"{metric}/{class_numbers.get(region)}" if metric in figures.SCORES else f"measure/{row['score']}"
        key = HEADLINE if not number else of_region if region else metric
        undefined = cases_link({f"un.{key}": "undefined", "h": key}) if key in columns else None
        row |= {"link": _sorted(key, columns), "undefined": undefined}
    return rows


def classes(summary: Mapping[str, Any], columns: Columns, all_columns: Columns) -> list[Row]:
    """List the classes, each linked to the cases that contain it, the worst first, and to missed and false ones.

    ``links`` has the link of each score to the cases where it is defined, and the link of "support" to the cases with
    such pixels, the most first. ``bars`` has how many cases have an IoU in each tenth, rounded as on the page, and
    ``key`` the column of the IoU on the page, or None. `all_columns` are those of the run. Columns that the page has
    left out are counted, but have no link.
    """
    words = [STATUS_WORDS["prediction_empty"], STATUS_WORDS["target_empty"]]
    rows = figures.classes(summary)
    for k, row in enumerate(rows):
        iou, status = f"iou/{k}", f"status/{k}"
        holding = _holding(k, columns)
        scores = {name: _sorted(f"{name}/{k}", columns, "defined") or holding for name in figures.SCORES}
        links = scores | {"support": _sorted(f"support/{k}", columns, "above 0") or holding}
        values = np.asarray(all_columns[iou].values, np.float64)
        tenths = 10 * score_steps(values[~np.isnan(values)]) // SCORE_STEPS
        bars = np.bincount(tenths.clip(max=9), minlength=10).tolist()
        row |= {"link": holding, "links": links, "bars": bars, "key": iou if iou in columns else None}
        counts, has_link = Counter(all_columns[status].values), status in columns
        row["statuses"] = [(counts[word], cases_link({f"is.{status}": word}) if has_link else None) for word in words]
    return rows


def _holding(k: int, columns: Columns) -> str:
    """Link to the cases that contain a class, the worst first."""
    score = f"iou/{k}" if f"iou/{k}" in columns else HEADLINE
    falling = score in columns and columns[score].better == "lower"
    return cases_link({"has": str(k), "sort": f"-{score}" if falling else score, "h": score})


def measures(summary: Mapping[str, Any], columns: Columns) -> list[Row]:
    """List the results of measures; names link to all cases, the worst first, and counts to the cases they count.

    A number of objects links to the cases that have any, the most first. A gain has no value per case, so it links to
    the errors themselves.
    """
    # the page's scripts name a class by its number, a group as "1-2", and the mean over classes as "0.1.2"
    numbers = {name: str(k) for k, name in enumerate(summary["classes"])}
    measured = {region for entry in summary.get("measures", {}).values() for region in entry}
    averaged = [name for name in summary.get("mean_classes", numbers) if name in measured]
    groups = summary.get("per_group") or {}
    regions = {name: "-".join(numbers[member] for member in entry["classes"]) for name, entry in groups.items()}
    regions = numbers | regions
    regions["mean"] = ".".join(numbers[name] for name in averaged)
    rows = figures.measures(summary)
    for row in rows:
        key = f"measure/{row['metric'].replace('_gain', '_errors')}/{row['region']}"
        if key not in columns:
            continue
        link = _sorted(key, columns, "above 0" if columns[key].kind == "count" else "")
        row["links"] = dict.fromkeys(("label", "dataset", "mean", "median"), link)
        choices = {"n_used": {f"un.{key}": "defined"}, "n_undefined": {f"un.{key}": "undefined"}}
        choices |= {"n_penalised": {"wrong": regions[row["region"]]}} if regions.get(row["region"]) else {}
        row["links"] |= {name: cases_link(choice | {"h": key}) for name, choice in choices.items() if row[name]}
    return rows


def error_types(summary: Mapping[str, Any], columns: Columns) -> list[Row]:
    """List classes and groups with their types of errors, linked to the cases with such errors, the most first.

    A row has ``region, iou, link`` and ``parts``, each with ``name, share, gain, link``. The IoU and the shares of the
    union add up to 1. The gain is how much the IoU would rise without such errors. ``left`` and ``width`` of a part,
    from 0 to 100, place it on a bar that begins with the IoU.
    """
    measured, rows = summary.get("measures", {}), []
    keys = {name: f"iou/{k}" for k, name in enumerate(summary["classes"])}
    keys |= {name: f"group/{number}" for number, name in enumerate(summary.get("per_group") or {})}
    for region in measured.get(f"{ERROR_TYPES[0]}_errors", ()):
        shares = {name: measured[f"{name}_errors"].get(region, {}).get("dataset") for name in ERROR_TYPES}
        if region == "mean" or not all(isinstance(share, float | int) for share in shares.values()):
            continue
        iou, parts = 1 - sum(shares.values()), list[Row]()
        for name, share in shares.items():
            left = 100 * iou + sum(part["width"] for part in parts)
            gain = measured[f"{name}_gain"].get(region, {}).get("dataset")
            link = _sorted(f"measure/{name}_errors/{region}", columns, "above 0") if share else None
            parts.append({"name": name, "share": share, "gain": gain, "link": link, "left": left, "width": 100 * share})
        rows.append({"region": region, "iou": iou, "parts": parts, "link": _sorted(keys[region], columns, "defined")})
    return rows


def _sorted(key: str, columns: Columns, having: str = "") -> str | None:
    """Link to all cases sorted by a column, the worst first.

    `having` restricts them to the cases with a value "above 0", the highest first, or to those with a "defined" score.
    """
    if key not in columns:
        return None
    falling = having == "above 0" or (not having and columns[key].better == "lower")
    choice = {f"un.{key}": having} if having else {}
    return cases_link(choice | {"sort": f"-{key}" if falling else key, "h": key})
