"""Shows a comparison on terminals and in pull requests, and writes the lines below its tables everywhere.

Every difference is new minus base.
"""

from collections.abc import Mapping, Sequence
from typing import IO, Any

from segmeter.checks import shorten
from segmeter.report.differences import OUTCOMES, changed, comparison_tables, is_told
from segmeter.report.figures import interval, on_lines, signed, title
from segmeter.report.tables import escape_markdown, print_tables, printable

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
        Where to; None is the standard output.
    """
    lines = [*order_lines(result), *on_lines(notes(result))]
    print_tables([*comparison_tables(result).values()], lines, file=file)


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
    """Write a line for each requirement with one of some outcomes, by default each that is not met."""
    entries = result["gate"]["requirements"]
    return [requirement_line(one, units=_units(result)) for one in entries if one["outcome"] in outcomes]


def _units(result: Mapping[str, Any]) -> str:
    return "clusters" if result["bootstrap"]["cluster"] else "cases"


def order_lines(result: Mapping[str, Any]) -> list[str]:
    """State the order of the runs and which scores would order them otherwise, or that no difference can be told."""
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
    resampling, units = result["bootstrap"], _units(result)
    lines = [
        f"convention {result['convention']}",
        f"{result['n_cases']} cases",
        f"95 % intervals: {resampling['interval']} bootstrap, {resampling['resamples']} draws of {units}",
        f"p (Holm): two-sided sign-flip test on the {units}, adjusted over all scores of all classes, and over all of "
        "single classes",
    ]
    if resampling["warning"]:
        lines.append(resampling["warning"])
    if result["not_shared"]:
        lines.append(f"not measured in all runs: {shorten(result['not_shared'])}")
    return lines


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
    told, unknown, needed = OUTCOMES[entry["outcome"]], entry["outcome"] == "unknown", entry["n_units_needed"]
    told += f" from {entry['n_units']} {units}" if unknown else ""
    margin = f"margin {signed(entry['margin'])} {interval(entry['margin_ci95'])}".rstrip()
    parts = [margin, f"new minus base {changed(entry['difference'], entry['change'])}"]
    if needed or unknown:
        parts.append(f"about {needed:,} {units} like these would tell" if needed else entry["reason"])
    if infinite := entry.get("n_infinite"):
        parts.append(f"infinite in {infinite['new']} of {infinite['cases']} cases, in the base in {infinite['base']}")
    return f"{printable(entry['require'])}: {told}, {'; '.join(parts)}"
