"""A comparison's summary in Markdown, as a comment on a pull request shows it."""

from collections.abc import Mapping, Sequence
from typing import Any

from segmeter.report.comparison.texts import (
    OUTCOMES,
    adjusted,
    changed,
    kind_of,
    notes,
    pair_heading,
    requirement_line,
    run_score,
    shown_metrics,
    title,
)
from segmeter.report.figures import interval, number, probability, signed
from segmeter.report.printer import printable

MOST_SINGLE = 12  # metrics of single classes; of more, those that differ beyond chance
_HEADINGS = {
    "pass": "segmeter: every requirement is met",
    "regression": "segmeter: regression",
    "unknown": "segmeter: can't be told from these cases",
}


def markdown_summary(result: Mapping[str, Any]) -> str:
    """Write what was required and what differs, as tables of GitHub's Markdown; names are escaped.

    Parameters
    ----------
    result
        The content of compare.json.
    """
    gate = result.get("gate")
    parts = [f"## {_HEADINGS[gate['outcome']]}" if gate else "## segmeter: comparison"]
    if gate:
        parts += _requirements(gate["requirements"], _units(result))
    parts += _differences(result)
    for pair in result.get("slices", ()):
        parts.append(_slices(pair))
    parts.append("<sub>" + _escape("; ".join(notes(result))) + "</sub>")
    return "\n\n".join(parts) + "\n"


def gate_lines(result: Mapping[str, Any]) -> list[str]:
    """A line for each requirement that is not met."""
    entries = result["gate"]["requirements"]
    return [requirement_line(one, units=_units(result)) for one in entries if one["outcome"] != "pass"]


def _units(result: Mapping[str, Any]) -> str:
    return "clusters" if result["bootstrap"]["cluster"] else "cases"


def _requirements(entries: Sequence[Mapping[str, Any]], units: str) -> list[str]:
    rows = [
        [f"`{_code(entry['require'])}`", number(entry["base"]), number(entry["new"]),
         changed(entry["difference"], entry["change"]), signed(entry["margin"]), interval(entry["margin_ci95"]),
         OUTCOMES[entry["outcome"]]]
        for entry in entries
    ]  # fmt: skip
    lines = [f"* {_escape(requirement_line(one, units=units))}" for one in entries if one["outcome"] == "unknown"]
    heads = ["required", "base", "new", "new minus base", "margin", "95 % interval", "outcome"]
    table = _table(heads, rows, names=1)
    return [table, *(["\n".join(lines)] if lines else [])]


def _differences(result: Mapping[str, Any]) -> list[str]:
    """A table per pair of runs."""
    metrics, left_out = shown_metrics(result, MOST_SINGLE)
    tables = []
    for i, pair in enumerate(result["metrics"][metrics[0]]["pairs"]):
        rows = []
        for metric in metrics:
            entry, one = result["metrics"][metric], result["metrics"][metric]["pairs"][i]
            kind = kind_of(one)
            values = [run_score(entry, kind, pair[side]) for side in ("base", "new")]
            change = [changed(one[f"{kind}_difference"], one[f"{kind}_change"]), interval(one[f"{kind}_ci95"])]
            rows.append([_escape(title(metric)), *values, *change, probability(adjusted(one))])
        runs = [f"{_escape(pair[side])} ({side})" for side in ("base", "new")]
        heads = ["metric", *runs, "new minus base", "95 % interval", "p (Holm)"]
        tables.append(_table(heads, rows, names=1))
    if left_out:
        tables.append(f"{left_out} metrics of single classes do not differ beyond chance.")
    return tables


def _slices(pair: Mapping[str, Any]) -> str:
    name = next(iter(next(iter(next(iter(pair["by"].values())).values()))["scores"]))
    rows = []
    for by, slices in pair["by"].items():
        for label, entry in slices.items():
            score = entry["scores"][name]
            change = [changed(score["difference"], score["change"]), interval(score["ci95"])]
            rows.append([_escape(by), _escape(label), str(entry["n"]), *change, probability(score["p_holm"])])
    heads = ["by", "slice", "cases", _escape(f"{title(name)}, {pair_heading(pair)}"), "95 % interval", "p (Holm)"]
    return _table(heads, rows, names=2)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, names: int) -> str:
    """A table whose first columns are names, and the others numbers."""
    sides = [":--" if i < names else "--:" for i in range(len(heads))]
    return "\n".join(f"| {' | '.join(row)} |" for row in [heads, sides, *rows])


def _escape(text: str) -> str:
    """A text that Markdown shows as it is, without links, mentions or HTML."""
    plain = "".join(f"\\{sign}" if sign in "\\`*_[]|~#!" else sign for sign in printable(text))
    return plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("@", "&#64;")


def _code(text: str) -> str:
    """A text inside of backquotes in a table."""
    return printable(text).replace("`", "'").replace("|", "\\|")
