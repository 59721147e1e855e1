"""Lays out the rows of an evaluation page's tables. Every number links to the cases behind it."""

from collections import Counter
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import numpy as np

from segmeter.report import figures
from segmeter.report.cases import HEADLINE, STATUS_WORDS, slice_key
from segmeter.report.columns import SCORE_STEPS, CaseColumn, score_steps

Columns = Mapping[str, CaseColumn]  # that the page has, by key
Row = dict[str, Any]
ERROR_TYPES = ("boundary", "extent", "segment")


def cases_link(choice: Mapping[str, str]) -> str:
    """Address a selection of cases on the page itself."""
    return f"#?{urlencode(choice)}"


def notes(summary: Mapping[str, Any], columns: Columns) -> list[tuple[str, str | None]]:
    """List the notes below the scores, with a link for the one that counts pixels."""
    links = {figures.outside(summary): _by_value("invalid", columns)}
    return [(line, links.get(line)) for line in figures.notes(summary)]


def aggregates(summary: Mapping[str, Any], columns: Columns) -> list[Row]:
    """List the leading scores, each linked to all cases, the worst first, and to the cases where it is undefined."""
    rows = figures.aggregates(summary)
    places = {name: k for k, name in enumerate(summary["classes"])}
    for place, row in enumerate(rows):
        metric, _, region = row["score"].partition("/")
        own = f"{metric}/{places.get(region)}" if metric in figures.SCORES else f"measure/{row['score']}"
        key = HEADLINE if not place else own if region else metric
        undefined = cases_link({f"un.{key}": "undefined", "h": key}) if key in columns else None
        row |= {"link": worst_first(key, columns), "undefined": undefined}
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
        scores = {name: _by_value(f"{name}/{k}", columns, "defined") or whole for name in figures.SCORES}
        links = scores | {"support": _by_value(f"support/{k}", columns) or whole}
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
    return cases_link({"has": str(k), "sort": score, "h": score})


def groups(summary: Mapping[str, Any], columns: Columns) -> list[Row]:
    """List the groups of classes, each linked to all cases, the worst first."""
    names = ("name", *figures.SCORES, "support")
    rows = enumerate(figures.classes(summary, groups=True))
    return [row | {"links": dict.fromkeys(names, worst_first(f"group/{place}", columns))} for place, row in rows]


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
        first = _by_value(key, columns) if columns[key].kind == "count" else worst_first(key, columns)
        row["links"] = dict.fromkeys(("label", "dataset", "mean", "median"), first)
        counted = {"n_used": {f"un.{key}": "defined"}, "n_undefined": {f"un.{key}": "undefined"}}
        counted |= {"n_penalised": {"wrong": regions[row["region"]]}} if regions.get(row["region"]) else {}
        row["links"] |= {name: cases_link(choice | {"h": key}) for name, choice in counted.items() if row[name]}
    return rows


def slices(summary: Mapping[str, Any], columns: Columns) -> list[Row]:
    """List the slices, each linked to its cases."""
    rows = figures.slices(summary)
    for row in rows:
        key = slice_key(row["by"])
        link = cases_link({f"is.{key}": row["slice"]}) if key in columns else None
        row |= {"links": dict.fromkeys(("label", "n", "value", "difference"), link)}
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
            link = _by_value(f"measure/{name}_errors/{region}", columns) if share else None
            parts.append({"name": name, "share": share, "gain": gain, "link": link, "left": left, "width": 100 * share})
        rows.append({"region": region, "iou": iou, "parts": parts, "link": _by_value(keys[region], columns, "defined")})
    return rows


def calibration(summary: Mapping[str, Any], columns: Columns) -> tuple[list[Row], list[Row]]:
    """List how well probabilities are calibrated; a class is linked to the cases that contain it."""
    whole, classes = figures.calibration(summary)
    for row in classes:
        row["links"] = {"name": _holding(summary["classes"].index(row["name"]), columns)}
    return whole, classes


def _by_value(key: str, columns: Columns, having: str = "above 0") -> str | None:
    """Link to the cases with a value above 0 in a column, the highest first, or to those with a score, the worst
    first.
    """
    sort = f"-{key}" if having == "above 0" else key
    return cases_link({f"un.{key}": having, "sort": sort, "h": key}) if key in columns else None


def worst_first(key: str, columns: Columns) -> str | None:
    """Link to all cases sorted by a column, the worst first."""
    column = columns.get(key)
    if column is None:
        return None
    return cases_link({"sort": f"-{key}" if column.better == "lower" else key, "h": key})
