"""Gathers what the page of a comparison shows: differences, new minus base, and the cases behind them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from segmeter.checks import expected
from segmeter.classes import ClassSpec
from segmeter.data.files.sniff import find_place
from segmeter.errors import InputError
from segmeter.metrics.cases.stored import open_cases, read_spec
from segmeter.metrics.cases.table import CaseTable
from segmeter.metrics.summary.compare import SCHEMA
from segmeter.metrics.summary.scoreboard import Scoreboard
from segmeter.records import Summary
from segmeter.report import figures
from segmeter.report.cases import HEADLINE, ID, board_of, case_columns, slice_columns, slice_key
from segmeter.report.columns import Column
from segmeter.report.comparison import OUTCOMES, adjusted, infinite_cases, is_told, kind_of, notes, shown_metrics
from segmeter.report.config import ReportConfig
from segmeter.report.figures import title
from segmeter.report.page.evaluation import explorer_values, part_columns
from segmeter.report.page.render import load_json
from segmeter.report.page.tables import cases_link
from segmeter.report.pictures.chosen import choose_pictures

SCRIPTS = (
    *("dom", "numbers", "state", "cases", "sorting", "charts"),
    *("table", "toolbar", "explore", "layers", "gallery", "case", "explorer", "comparison"),
)

_OF_THE_TARGET = ("size", "objects", "pixels", "cluster")  # the same in every run
_LEFT = ("predictions/", "overlays/")  # what starts names of a run's files that no page of a comparison shows
_COMPARED = ("scores", "groups", "further scores")  # groups of columns


def comparison_values(folder: Path, result: Mapping[str, Any], config: ReportConfig) -> dict[str, Any]:
    """Gather the values of the template from a folder's compare.json: ``comparison``, ``explorer`` and ``sections``.

    Raises
    ------
    DataError
        A compared run is no longer where it was.
    InputError
        An older version wrote the comparison, with differences the other way round.
    """
    _check_schema(result, folder)
    keep = lambda name: not name.startswith(_LEFT)  # noqa: E731
    folders = {name: find_place(path, keep) for name, path in result["folders"].items()}
    runs = [_Run.read(folder, _headline(result)) for folder in folders.values()]
    spec, tables = runs[0].spec, [run.columns() for run in runs]
    by = result["slices"][0]["by"] if result.get("slices") else {}
    hashes = dict.fromkeys(by) | result.get("slice_hashes", {})
    sliced, unlisted = slice_columns(runs[0].board, hashes, table=result.get("slice_table"))
    columns, left = part_columns([*_common(tables), *sliced])
    headlines = [np.asarray(table[HEADLINE].values, float) for table in tables]
    with np.errstate(invalid="ignore"):
        spread = np.nan_to_num(np.max(headlines, axis=0) - np.min(headlines, axis=0), nan=-1.0)
    order = [tables[0][ID].values[i] for i in np.argsort(-spread, kind="stable")]
    shown, left_out = choose_pictures(list(folders.values()), order, config, page=folder)
    facts = {"runs": list(folders), "sort": HEADLINE, "size": "objects", "kind": "comparison"}
    explorer = explorer_values(columns, spec, shown, config, facts=facts, left=left, unshown=left_out)
    explorer["notes"] += unlisted
    return {"comparison": _comparison(result, columns), "explorer": explorer, "sections": _sections(result)}


def _headline(result: Mapping[str, Any]) -> str:
    """The score that the runs are ranked by, if every case has a value of it; else their mean IoU."""
    ranked = result["rank_by"]
    return ranked if "per_case" in result["metrics"][ranked] else "mean_iou"


def _check_schema(result: Mapping[str, Any], folder: Path) -> None:
    if result.get("schema") != SCHEMA:
        given = f"schema {result.get('schema')} in {folder / 'compare.json'}"
        remedy = "An older version wrote it, with differences the other way round. Compare the runs again."
        raise InputError(expected("write_report", "compare.json", f"to be of schema {SCHEMA}", given, remedy))


@dataclass(frozen=True, kw_only=True)
class _Run:
    """A compared run."""

    rows: CaseTable
    spec: ClassSpec
    board: Scoreboard
    summary: Mapping[str, Any]  # empty for nnU-Net, which has none

    @classmethod
    def read(cls, folder: Path, headline: str) -> "_Run":
        rows, spec, summary = open_cases([folder]), read_spec(folder), load_json(folder / "metrics.json", Summary) or {}
        board = board_of(rows, spec, summary | {"headline_score": headline})
        return cls(rows=rows, spec=spec, board=board, summary=summary)

    def columns(self) -> dict[str, Column]:
        return {column.key: column for column in case_columns(self.board, self.rows, self.summary)}


def _common(tables: Sequence[Mapping[str, Column]]) -> list[Column]:
    """Columns about the cases, then those that every run has, as "<run>/<key>"."""
    found = [tables[0][ID], *(tables[0][key] for key in _OF_THE_TARGET if key in tables[0])]
    for key, column in tables[0].items():
        compared = column.group in _COMPARED or column.of_class is not None or key.startswith("measure/")
        if column.kind in ("score", "number") and compared and all(key in table for table in tables):
            plain: dict[str, Any] = {"of_class": None, "short": "", "shown": False}
            found += [replace(table[key], key=f"{number}/{key}", **plain) for number, table in enumerate(tables)]
    return found


def _comparison(result: Mapping[str, Any], columns: Sequence[Column]) -> dict[str, Any]:
    ranking = result["metrics"][result["rank_by"]]["ranking"]
    return {
        "order": result["order"],
        "rank_by": title(result["rank_by"]),
        "other_orders": {title(name): order for name, order in result["other_orders"].items()},
        "ranking": ranking,
        "told": is_told(result),
        "ranks": _rank_bars(ranking) if ranking else [],
        "rows": _rows(result, {column.key for column in columns}),
        "notes": notes(result),
        "required": _required(result, {column.key for column in columns}),
        "slices": _slices(result, {column.key for column in columns}),
    }


def _rank_bars(ranking: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Lay out, for each run, its share of resampled data sets at each rank, as bars of a hundred units."""
    found = []
    for name in ranking["order"]:
        shares, parts, left = ranking["rank_shares"][name], [], 0.0
        for rank, share in enumerate(shares, start=1):
            parts.append({"rank": rank, "left": 100 * left, "width": 100 * share, "share": share})
            left += share
        found.append({"name": name, "rank": ranking["ranks"][name], "parts": parts})
    return found


def _rows(result: Mapping[str, Any], keys: set[str]) -> list[dict[str, Any]]:
    """List all scores, the one that ranks first, each linked to its cases if the page has the score of each case."""
    order, _ = shown_metrics(result, len(result["metrics"]))
    rows = [row for metric in order for row in _pair_rows(metric, result["metrics"][metric])]
    for row in rows:
        choice = _choice(result, row, row["metric"], keys)
        row["link"] = cases_link(choice) if "by" in choice else None
        row["used"] = cases_link(choice | {f"un.{choice['by']}": "defined"}) if "by" in choice else None
    return rows


def _choice(result: Mapping[str, Any], row: Mapping[str, Any], metric: str, keys: set[str]) -> dict[str, str]:
    """Select the pair of runs of a row, and the score to sort its cases by if the page has it."""
    runs = list(result["folders"])
    key = _key_of(metric, result["classes"])
    if metric == _headline(result):
        key = HEADLINE
    pair = {"pair": f"{runs.index(row['base'])}.{runs.index(row['new'])}"}
    return pair | ({"by": f"difference/{key}"} if f"0/{key}" in keys else {})


def _key_of(metric: str, classes: Sequence[str]) -> str:
    """Find the key of the column for a score of compare.json."""
    name, slash, region = metric.partition("/")
    if not slash:
        return metric
    return f"{name}/{classes.index(region)}" if name in figures.SCORES and region in classes else f"measure/{metric}"


def _pair_rows(metric: str, entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    """List the pairs of runs with their difference over the data set, or of the mean over cases, and its interval."""
    kept = ("base", "new", "wilcoxon_p", "wilcoxon_p_holm", "n_used")
    rows = []
    for pair in entry["pairs"]:
        kind = kind_of(pair)
        value, ends = pair[f"{kind}_difference"], pair[f"{kind}_ci95"]
        row = {
            "metric": metric,
            "words": title(metric),
            "of": "data set" if kind == "dataset" else ", ".join(filter(None, ["mean of cases", infinite_cases(pair)])),
            "value": value,
            "ends": ends,
            "change": pair[f"{kind}_change"],
            "bar": _whisker(value, ends),
            "p": adjusted(pair),
        }
        rows.append(row | {key: pair.get(key) for key in kept})
    return rows


def _whisker(value: Any, ends: Sequence[Any] | None) -> dict[str, float] | None:
    """Place a difference and its interval on a scale from 0 to 100 with zero in the middle."""
    numbers = [each for each in (value, *(ends or ())) if isinstance(each, float | int)]
    if len(numbers) < 3 or not any(numbers):
        return None
    widest = max(map(abs, numbers))
    middle, low, high = (50 + 46 * each / widest for each in numbers)
    return {"middle": middle, "low": low, "width": high - low}


def _slices(result: Mapping[str, Any], keys: set[str]) -> list[dict[str, Any]]:
    """List pairs of runs by slice and score, linked to the slice's cases if they are known."""

    def link(pair: Mapping[str, Any], metric: str, by: str, label: str) -> str | None:
        key = slice_key(by)
        return cases_link(_choice(result, pair, metric, keys) | {f"is.{key}": label}) if key in keys else None

    return [
        {"base": pair["base"], "new": pair["new"], "by": by, "slice": label, "n": entry["n"]}
        | {"words": title(name), "link": link(pair, name, by, label), **score}
        for pair in result.get("slices", ())
        for by, slices in pair["by"].items()
        for label, entry in slices.items()
        for name, score in entry["scores"].items()
    ]


def _required(result: Mapping[str, Any], keys: set[str]) -> list[dict[str, Any]]:
    """List the requirements, each linked to its cases if the page has its score and its slice."""
    base, new = list(result["folders"])[:2]
    found = []
    for entry in result.get("gate", {}).get("requirements", ()):
        choice = _choice(result, {"base": base, "new": new}, entry["metric"], keys)
        part = entry["slice"]
        if part:
            choice |= {f"is.{slice_key(part['by'])}": part["value"]}
        here = "by" in choice and (not part or slice_key(part["by"]) in keys)
        found.append(entry | {"said": OUTCOMES[entry["outcome"]], "link": cases_link(choice) if here else None})
    return found


def _sections(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    there = {
        "required": "gate" in result,
        "differences": True,
        "slices": "slices" in result,
        "ranking": is_told(result) and bool(result["metrics"][result["rank_by"]]["ranking"]),
        "cases": True,
        "run": True,
    }
    names = [name for name, shown in there.items() if shown]
    return [(name, name.capitalize()) for name in names]
