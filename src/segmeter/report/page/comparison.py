"""Shows a comparison on terminals, in pull requests and on its page, each time with the lines below its tables.

Every difference is new minus base.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from segmeter.checks import expected, shorten
from segmeter.errors import InputError
from segmeter.metrics.cases.stored import open_cases, read_spec
from segmeter.metrics.summary.compare import SCHEMA
from segmeter.records import Summary, read_json
from segmeter.remote import fetch
from segmeter.report.cases import HEADLINE, ID, SLICE, board_of, case_columns, slice_columns
from segmeter.report.columns import CaseColumn, part_columns
from segmeter.report.config import ReportConfig
from segmeter.report.differences import OUTCOMES, changed, comparison_tables, is_told
from segmeter.report.figures import SCORES, interval, on_lines, resampled, signed, title
from segmeter.report.page.evaluation import cases_link, explorer_values
from segmeter.report.page.render import if_there
from segmeter.report.tables import escape_markdown, print_tables, printable

_OF_THE_TARGET = ("size", "objects", "pixels", "cluster")  # These columns are the same in every run.
_NOT_FETCHED = ("predictions/", "overlays/")  # Files of a run that the page of a comparison doesn't show.
_COMPARED = ("scores", "groups", "further scores")  # These groups of columns are compared.
_HEADINGS = {
    "pass": "segmeter: every requirement is met",
    "regression": "segmeter: regression",
    "unknown": "segmeter: can't be told from these cases",
}


def print_comparison(result: Mapping[str, Any], *, file: IO[str] | None = None) -> None:
    """Print requirements, ranking and differences.

    Parameters
    ----------
    result
        The content of compare.json.
    file
        Where to write; None is the standard output.
    """
    print_tables(comparison_tables(result).values(), [*order_lines(result), *on_lines(notes(result))], file=file)


def markdown_summary(result: Mapping[str, Any]) -> str:
    """Write the tables in GitHub's Markdown, as a comment on a pull request shows them; names are escaped."""
    gate = result.get("gate")
    parts = [f"## {_HEADINGS[gate['outcome']]}" if gate else "## segmeter: comparison"]
    parts += [table.markdown() for table in comparison_tables(result).values()]
    undecided = gate_lines(result, ("unknown",)) if gate else []
    parts += ["\n".join(f"* {escape_markdown(line)}" for line in undecided)] if undecided else []
    parts += map(escape_markdown, order_lines(result))
    parts.append("<sub>" + "<br>".join(map(escape_markdown, on_lines(notes(result)))) + "</sub>")
    return "\n\n".join(parts) + "\n"


def gate_lines(result: Mapping[str, Any], outcomes: Sequence[str] = ("regression", "unknown")) -> list[str]:
    """Write a line for each requirement with one of the outcomes; by default, for those that are not met."""
    entries = result["gate"]["requirements"]
    return [requirement_line(entry, units=_units(result)) for entry in entries if entry["outcome"] in outcomes]


def _units(result: Mapping[str, Any]) -> str:
    return "clusters" if result["bootstrap"]["cluster"] else "cases"


def order_lines(result: Mapping[str, Any]) -> list[str]:
    """State the order of the runs and which scores order them in another way, or that no difference can be told."""
    leading = printable(title(result["rank_by"]))
    if not is_told(result):
        cases = f"{result['n_cases']} cases"
        return [f"no difference in {leading} can be told from {cases}, so that the runs are not ranked"]
    lines = [f"ranked by {leading}: {', '.join(map(printable, result['order']))}"]
    others: dict[str, list[str]] = {}
    for name, order in result["other_orders"].items():
        others.setdefault(", ".join(map(printable, order)), []).append(printable(title(name)))
    for order, names in others.items():
        more = f" and {len(names) - 3} more scores" if len(names) > 3 else ""
        lines.append(f"otherwise by {', '.join(names[:3])}{more}: {order}")
    return lines


def notes(result: Mapping[str, Any]) -> list[str]:
    """List the facts that belong beside the differences."""
    lines = [
        f"convention {result['convention']}",
        f"{result['n_cases']} cases",
        resampled(result["bootstrap"]),
        f"p (Holm): two-sided sign-flip test on the {_units(result)}, adjusted over all scores of all classes, and "
        "over all of single classes",
        result["bootstrap"]["warning"],
        f"not measured in all runs: {shorten(result['not_shared'])}" if result["not_shared"] else "",
    ]
    return [line for line in lines if line]


def requirement_line(entry: Mapping[str, Any], *, units: str = "cases") -> str:
    """State the outcome of one requirement, and how many cases would be needed to decide it.

    Examples
    --------
    >>> entry = {"require": "mean_iou >= base", "margin": 0.01, "margin_ci95": [-0.02, 0.04], "outcome": "unknown",
    ...          "reason": "the interval contains the bound", "n_units": 30, "n_units_needed": 270,
    ...          "difference": 0.01, "change": "better"}
    >>> requirement_line(entry).partition("; ")[2]
    'new minus base +0.0100 better; about 270 cases like these would tell'
    """
    unknown = entry["outcome"] == "unknown"
    needed = entry["n_units_needed"]
    outcome = OUTCOMES[entry["outcome"]] + (f" from {entry['n_units']} {units}" if unknown else "")
    margin = f"margin {signed(entry['margin'])} {interval(entry['margin_ci95'])}".rstrip()
    parts = [margin, f"new minus base {changed(entry['difference'], entry['change'])}"]
    if needed or unknown:
        parts.append(f"about {needed:,} {units} like these would tell" if needed else entry["reason"])
    if infinite := entry.get("n_infinite"):
        parts.append(f"infinite in {infinite['new']} of {infinite['cases']} cases, in the base in {infinite['base']}")
    return f"{printable(entry['require'])}: {outcome}, {'; '.join(parts)}"


def comparison_values(folder: Path, result: Mapping[str, Any], config: ReportConfig) -> dict[str, Any]:
    """Gather the values of the template from a folder's compare.json: ``comparison`` and ``explorer``.

    Raises
    ------
    DataError
        A compared run is no longer where it was.
    InputError
        An older version wrote the comparison, with differences the other way round.
    """
    if result.get("schema") != SCHEMA:
        given = f"schema {result.get('schema')} in {folder / 'compare.json'}"
        remedy = "An older version wrote it, with differences the other way round. Compare the runs again."
        raise InputError(expected("write_report", "compare.json", f"to be of schema {SCHEMA}", given, remedy))
    folders = [fetch(path, lambda name: not name.startswith(_NOT_FETCHED)) for path in result["folders"].values()]
    boards, tables = [], list[dict[str, CaseColumn]]()
    for run_folder in folders:
        rows, spec = open_cases([run_folder]), read_spec(run_folder)
        summary = if_there(read_json, run_folder / "metrics.json", Summary) or {}  # nnU-Net's runs have none
        boards.append(board_of(rows, spec, summary | {"headline_score": _headline(result)}))
        tables.append({column.key: column for column in case_columns(boards[-1], rows, summary)})
    by = result["slices"][0]["by"] if result.get("slices") else {}
    hashes = dict.fromkeys(by) | result.get("slice_hashes", {})
    base, board = tables[0], boards[0]
    sliced, unlisted = slice_columns(board, hashes, table=result.get("slice_table"))
    of_target = [replace(base[key], shown=key == "cluster") for key in _OF_THE_TARGET if key in base]
    columns = [base[ID], *of_target]  # the difference stands beside the case, even on a phone
    for key, column in base.items():
        compared = column.group in _COMPARED or column.of_class is not None or key.startswith("measure/")
        if column.kind in ("score", "number") and compared and all(key in table for table in tables):
            columns += [
                replace(table[key], key=f"{number}/{key}", of_class=None, short="", shown=False)
                for number, table in enumerate(tables)
            ]
    columns, left_out = part_columns([*columns, *sliced])
    headlines = [np.asarray(table[HEADLINE].values, float) for table in tables]
    with np.errstate(invalid="ignore"):
        spread = np.nan_to_num(np.max(headlines, axis=0) - np.min(headlines, axis=0), nan=-1.0)
    order = [base[ID].values[i] for i in np.argsort(-spread, kind="stable")]
    facts = {"runs": list(result["folders"]), "sort": HEADLINE, "size": "objects", "kind": "comparison"}
    explorer = explorer_values(
        folder, columns, board.spec, config, order=order, facts=facts, runs=folders, left_out=left_out
    )
    explorer["notes"] += unlisted
    link = partial(_link, result, {column.key for column in columns})
    comparison = {"lines": order_lines(result), "notes": notes(result), "tables": comparison_tables(result, link=link)}
    return {"comparison": comparison, "explorer": explorer}


def _headline(result: Mapping[str, Any]) -> str:
    """Return the score that ranks the runs if it has a value per case; otherwise the mean IoU."""
    ranked = result["rank_by"]
    return ranked if "per_case" in result["metrics"][ranked] else "mean_iou"


def _link(
    result: Mapping[str, Any],
    keys: set[str],
    base: str,
    new: str,
    metric: str,
    *,
    defined: bool = False,
    part: Mapping[str, str] | None = None,
) -> str | None:
    """Link to the cases of two runs, sorted by a score, or to the cases of a slice; None if the page can't show them.

    Parameters
    ----------
    keys
        The keys of the page's columns.
    defined
        Link only to the cases with a value.
    part
        Link only to the cases of this slice: ``by`` and ``value``.
    """
    runs = list(result["folders"])
    name, _, region = metric.partition("/")
    key = metric
    if metric == _headline(result):
        key = HEADLINE
    elif name in SCORES and region in result["classes"]:
        key = f"{name}/{result['classes'].index(region)}"
    elif region:
        key = f"measure/{metric}"
    has_column = f"0/{key}" in keys
    if f"{SLICE}{part['by']}" not in keys if part else not has_column:
        return None
    choice = {"pair": f"{runs.index(base)}.{runs.index(new)}"}
    choice |= {"by": f"difference/{key}"} if has_column else {}
    choice |= {f"un.difference/{key}": "defined"} if defined else {}
    return cases_link(choice | ({f"is.{SLICE}{part['by']}": part["value"]} if part else {}))
