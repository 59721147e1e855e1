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

MOST_POINTS = 600  # of one line; longer ones are thinned evenly
MOST_CURVES = 4  # in one chart
ERROR_TYPES = ("boundary", "extent", "segment")
Columns = Mapping[str, CaseColumn]  # that the page has, by key
Row = dict[str, Any]  # of a table, or a chart

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
    matrix = summary.get("confusion_matrix")
    charts = calibration_charts(summary["calibration"]) if summary.get("calibration") else []
    calibrated, groups = figures.calibration(summary), figures.classes(summary, groups=True)
    for row in calibrated[1]:
        row["links"] = {"name": _holding(spec.names.index(row["name"]), here)}
    for place, row in enumerate(groups):
        row["links"] = dict.fromkeys(("name", *figures.SCORES, "support"), _sorted(f"group/{place}", here))
    slices, outside = figures.slices(summary), _sorted("invalid", here, "above 0")
    for row in slices:
        key = f"{SLICE}{row['by']}"
        link = cases_link({f"is.{key}": row["slice"]}) if key in here else None
        row["links"] = dict.fromkeys(("label", "n", "value", "difference"), link)
    told = [(line, outside if line.endswith(figures.OUTSIDE) else None) for line in figures.notes(summary)]
    evaluation = {
        "notes": [*told, *((line, None) for line in unlisted)],
        "aggregates": aggregates(summary, here),
        "classes": classes(summary, here, columns),
        "groups": Table.of(GROUPS, groups, strong=()),
        "colours": dict(zip(spec.names, spec.colours, strict=True)),
        "errors": error_types(summary, here),
        "measures": Table.of(MEASURES, measures(summary, here), names=2, strong=()),
        "slices": slice_table(summary, slices),
        "conventions": convention_table(summary),
        "refused": [row["refused"] for row in figures.conventions(summary)[1] if row["refused"]],
        "calibration": [Table.of(*each, strong=()) for each in zip(CALIBRATION, calibrated, strict=True) if charts],
        "calibration_charts": charts,
        "calibration_curves": script_json(charts),
        "loss": (summary.get("loss") or {}) | {"link": _sorted("loss", here)},
        "confusion": bool(matrix) and not spec.is_multilabel,
    }
    invalid = [summary.get("invalid", {}).get(name, 0) for name in spec.names]
    facts = {"matrix": matrix, "outside": invalid, "sort": HEADLINE, "size": "objects"}
    arrays = cells.arrays() if cells else {}
    order = take_turns(Ranking.of(board))
    explorer = explorer_values(folder, kept, spec, config, order=order, facts=facts, left=left, arrays=arrays)
    return {"evaluation": evaluation, "explorer": explorer}


def explorer_values(
    folder: Path,
    columns: Sequence[CaseColumn],
    spec: ClassSpec,
    config: ReportConfig,
    *,
    order: Sequence[str],
    facts: Mapping[str, Any],
    runs: Sequence[Path] = (),
    left: Sequence[CaseColumn] = (),
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
        ``sort``, the key of the column that orders the cases, ``size``, that of the other axis, and further ones.
    runs
        The folders of several runs, whose pictures are shown beside each other.
    left
        Columns that were left out; a note names them.
    arrays
        Further whole numbers by name.
    """
    found, unshown = choose_pictures(runs or [folder], order, config, page=folder)
    shown: Any = found if runs else found[0]
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


def calibration_charts(calibration: Mapping[str, Any]) -> list[Row]:
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
    reliability, curves = [_line("as said", [0, 1], [0, 1], None)], list[Row]()
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


def _line(name: str, xs: Sequence[Any], ys: Sequence[Any], last: float | None) -> Row:
    """Lay out a curve without empty bins."""
    points = [(x, y) for x, y in zip(xs, ys, strict=True) if x is not None and y is not None]
    kept = [*points[: -1 : math.ceil(len(points) / MOST_POINTS)], *points[-1:]] if points else []
    kept = kept[::-1] if kept and kept[0][0] > kept[-1][0] else kept
    return {"name": name, "xs": [round(x, 5) for x, _ in kept], "ys": [round(y, 5) for _, y in kept], "last": last}


def cases_link(choice: Mapping[str, str]) -> str:
    """Address a selection of cases on the page itself."""
    return f"#?{urlencode(choice)}"


def aggregates(summary: Mapping[str, Any], columns: Columns) -> list[Row]:
    """List the leading scores, each linked to all cases, the worst first, and to the cases where it is undefined."""
    rows = figures.aggregates(summary)
    places = {name: k for k, name in enumerate(summary["classes"])}
    for place, row in enumerate(rows):
        metric, _, region = row["score"].partition("/")
        own = f"{metric}/{places.get(region)}" if metric in figures.SCORES else f"measure/{row['score']}"
        key = HEADLINE if not place else own if region else metric
        undefined = cases_link({f"un.{key}": "undefined", "h": key}) if key in columns else None
        row |= {"link": _sorted(key, columns), "undefined": undefined}
    return rows


def classes(summary: Mapping[str, Any], columns: Columns, found: Columns) -> list[Row]:
    """List the classes, each linked to the cases that contain it, the worst first, and to missed and false ones.

    ``links`` has for each score the cases that have it, and for "support" those with such pixels, the most first.

    `found` are the columns of the run, of which a page may have left some out: these are counted, without a link.
    ``bars`` has how many cases have an IoU in each tenth, rounded as on the page, and ``key`` the column that the page
    has of it, or None.
    """
    words = [STATUS_WORDS["prediction_empty"], STATUS_WORDS["target_empty"]]
    rows = figures.classes(summary)
    for k, row in enumerate(rows):
        whole, iou, status = _holding(k, columns), f"iou/{k}", f"status/{k}"
        scores = {name: _sorted(f"{name}/{k}", columns, "defined") or whole for name in figures.SCORES}
        links = scores | {"support": _sorted(f"support/{k}", columns, "above 0") or whole}
        values = np.asarray(found[iou].values, np.float64)
        tenths = 10 * score_steps(values[~np.isnan(values)]) // SCORE_STEPS
        bars = np.bincount(tenths.clip(max=9), minlength=10).tolist()
        row |= {"link": whole, "links": links, "bars": bars, "key": iou if iou in columns else None}
        counts, is_here = Counter(found[status].values), status in columns
        row["statuses"] = [(counts[word], cases_link({f"is.{status}": word}) if is_here else None) for word in words]
    return rows


def _holding(k: int, columns: Columns) -> str:
    """Link to the cases that contain a class, the worst first."""
    score = f"iou/{k}" if f"iou/{k}" in columns else HEADLINE
    falling = score in columns and columns[score].better == "lower"
    return cases_link({"has": str(k), "sort": f"-{score}" if falling else score, "h": score})


def measures(summary: Mapping[str, Any], columns: Columns) -> list[Row]:
    """List the results of measures; names link to all cases, the worst first, and counts to the cases they count.

    A number of objects leads to the cases that have any, the most first. A gain of the data set has no value of a case,
    and leads to that of the errors themselves.
    """
    # the page's scripts name a class by its number, a group as "1-2", and the mean over classes as "0.1.2"
    places, members = {name: str(k) for k, name in enumerate(summary["classes"])}, summary.get("per_group") or {}
    measured = {region for entry in summary.get("measures", {}).values() for region in entry}
    averaged = [name for name in summary.get("mean_classes", places) if name in measured]
    regions = places | {name: "-".join(places[each] for each in entry["classes"]) for name, entry in members.items()}
    regions["mean"] = ".".join(places[name] for name in averaged)
    rows = figures.measures(summary)
    for row in rows:
        key = f"measure/{row['metric'].replace('_gain', '_errors')}/{row['region']}"
        if key not in columns:
            continue
        first = _sorted(key, columns, "above 0" if columns[key].kind == "count" else "")
        row["links"] = dict.fromkeys(("label", "dataset", "mean", "median"), first)
        counted = {"n_used": {f"un.{key}": "defined"}, "n_undefined": {f"un.{key}": "undefined"}}
        counted |= {"n_penalised": {"wrong": regions[row["region"]]}} if regions.get(row["region"]) else {}
        row["links"] |= {name: cases_link(choice | {"h": key}) for name, choice in counted.items() if row[name]}
    return rows


def error_types(summary: Mapping[str, Any], columns: Columns) -> list[Row]:
    """List classes and groups with their types of errors, linked to the cases with such errors, the most first.

    A row has ``region, iou, link`` and ``parts``, each ``name, share, gain, link``: the IoU and the shares of the union
    add up to 1, and the gain is by how much the IoU would rise without such errors. A part has ``left`` and ``width``
    too, from 0 to 100, of a bar that begins with the IoU.
    """
    found, rows = summary.get("measures", {}), []
    keys = {name: f"iou/{k}" for k, name in enumerate(summary["classes"])}
    keys |= {name: f"group/{number}" for number, name in enumerate(summary.get("per_group") or {})}
    for region in found.get(f"{ERROR_TYPES[0]}_errors", ()):
        shares = {name: found[f"{name}_errors"].get(region, {}).get("dataset") for name in ERROR_TYPES}
        if region == "mean" or not all(isinstance(share, float | int) for share in shares.values()):
            continue
        iou, parts = 1 - sum(shares.values()), list[Row]()
        for name, share in shares.items():
            left = 100 * iou + sum(part["width"] for part in parts)
            gain = found[f"{name}_gain"].get(region, {}).get("dataset")
            link = _sorted(f"measure/{name}_errors/{region}", columns, "above 0") if share else None
            parts.append({"name": name, "share": share, "gain": gain, "link": link, "left": left, "width": 100 * share})
        rows.append({"region": region, "iou": iou, "parts": parts, "link": _sorted(keys[region], columns, "defined")})
    return rows


def _sorted(key: str, columns: Columns, having: str = "") -> str | None:
    """Link to all cases sorted by a column, the worst first; or to those with a value "above 0", the highest first, or
    with a "defined" score.
    """
    if key not in columns:
        return None
    falling = having == "above 0" or (not having and columns[key].better == "lower")
    choice = {f"un.{key}": having} if having else {}
    return cases_link(choice | {"sort": f"-{key}" if falling else key, "h": key})
