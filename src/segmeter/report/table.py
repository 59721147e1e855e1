"""metrics.json -> tables on the terminal; plain text where it is none. Names are never read as markup."""

from collections.abc import Mapping, Sequence
from typing import IO, Any

from rich import box
from rich.table import Table
from rich.text import Text

from segmeter.report.figures import (
    SCORES,
    aggregates,
    calibration,
    classes,
    conventions,
    groups,
    headlines,
    interval,
    measures,
    notes,
    number,
    probability,
    refused,
    signed,
    slices,
    title,
)
from segmeter.report.printer import Printer, printable

MOST_MEASURED = 40  # rows of measures; of more, those of single classes are left to the report


def print_summary(summary: Mapping[str, Any], *, file: IO[str] | None = None) -> None:
    """Print the aggregates, the classes, what else was measured, how conventions differ, and what the scores rest on.

    Parameters
    ----------
    summary
        The content of metrics.json, schema 1.
    file
        Where to; None is the standard output.
    """
    out = Printer(file)
    out.table(_aggregate_table(summary, out.lines))
    out.table(_class_table(summary, out.lines))
    if summary.get("measures"):
        _print_measures(out, summary)
    if summary.get("slices"):
        out.table(_slice_table(summary, out.lines))
    if summary.get("calibration"):
        out.table(_calibration_table(summary, out.lines))
    if summary.get("conventions"):
        out.table(_convention_table(summary, out.lines))
        for line in refused(summary):
            out.line(line)
    out.line("; ".join(notes(summary)))


def _table(lines: box.Box, names: Sequence[str], *others: str) -> Table:
    """Add columns of names, left-aligned, and of numbers, right-aligned."""
    table = Table(box=lines, pad_edge=False)
    for name in names:
        table.add_column(name, overflow="fold")
    for name in others:
        table.add_column(name, justify="right")
    return table


def _aggregate_table(summary: Mapping[str, Any], lines: box.Box) -> Table:
    table = _table(lines, ["score"], "data set", "95 % interval", "mean of cases", "95 % interval", "cases used")
    for row in aggregates(summary):
        used = "" if row["n_used"] is None else f"{row['n_used']} of {row['n_used'] + row['n_undefined']}"
        dataset, mean = number(row["dataset"]), number(row["mean"])
        table.add_row(
            row["name"], Text(dataset, "bold"), interval(row["dataset_ci95"]), mean, interval(row["mean_ci95"]), used
        )
    return table


def _class_table(summary: Mapping[str, Any], lines: box.Box) -> Table:
    table = _table(lines, ["class"], *SCORES.values(), "IoU 95 %", "pixels", "share")
    for row in classes(summary):
        share = number(None if row["share"] is None else 100 * row["share"], 1)
        table.add_row(*_class_cells(row), share + ("" if row["share"] is None else " %"))
    table.add_section()
    for row in groups(summary):
        table.add_row(*_class_cells(row), "")
    return table


def _class_cells(row: Mapping[str, Any]) -> list[Text | str]:
    scores = [number(row[score]) for score in SCORES]
    pixels = "" if row["support"] is None else f"{row['support']:,}"
    return [Text(printable(row["name"])), *scores, interval(row["ci95"], 3), pixels]


def _print_measures(out: Printer, summary: Mapping[str, Any]) -> None:
    shown, left_out = shown_measures(summary)
    out.table(_measure_table(shown, out.lines))
    if left_out:
        out.line(f"{left_out} rows of single classes are in metrics.json and in the report only")


def shown_measures(summary: Mapping[str, Any]) -> tuple[list[dict[str, Any]], int]:
    """The rows of what was measured beside the counts, and how many are left out where a reader would be lost."""
    rows = measures(summary)
    if len(rows) <= MOST_MEASURED:
        return rows, 0
    averaged = {row["metric"] for row in rows if row["region"] == "mean"}  # numbers of objects are not
    shown = [row for row in rows if row["region"] not in summary["classes"] or row["metric"] not in averaged]
    return shown, len(rows) - len(shown)


def _measure_table(rows: Sequence[Mapping[str, Any]], lines: box.Box) -> Table:
    table = _table(lines, ["measure", "class"], "mean", "95 % interval", "median", "data set", "95 %", "used", "failed")
    for row in rows:
        per_case = row["n_used"] is not None
        table.add_row(
            Text(printable(row["label"])),
            Text(printable(row["region"])),
            Text(number(row["mean"], 3) if per_case else "", "bold"),
            interval(row["ci95"], 3),
            number(row["median"], 3) if per_case else "",
            number(row["dataset"], 3) if row["whole"] else "",
            interval(row["dataset_ci95"], 3),
            f"{row['n_used']} of {row['n_used'] + row['n_undefined']}" if per_case else "",
            str(row["n_penalised"]) if per_case else "",
        )
    return table


def _slice_table(summary: Mapping[str, Any], lines: box.Box) -> Table:
    """The headline of each slice; the worst is marked."""
    heads = [
        "cases",
        title(summary["slices"]["headline"]),
        "95 % interval",
        "difference to the rest",
        "95 % interval",
        "p (Holm)",
    ]
    table = _table(lines, ["slices by", "slice"], *heads)
    for row in slices(summary):
        label = printable(row["slice"]) + (" (worst)" if row["worst"] else "")
        cells = [interval(row["ci95"], 3), signed(row["difference"]), interval(row["difference_ci95"], 3)]
        value = Text(number(row["value"]), "bold")
        p_value = probability(row["p_holm"])
        table.add_row(Text(printable(row["by"])), Text(label), str(row["n"]), value, *cells, p_value)
    return table


def _convention_table(summary: Mapping[str, Any], lines: box.Box) -> Table:
    names = headlines(summary)
    table = _table(lines, ["convention"], *names.values())
    table.add_column("what differs from ours", overflow="fold", ratio=1)
    for row in conventions(summary):
        scores = [number(row["figures"][name]) if name in row["figures"] else "-" for name in names]
        table.add_row(row["name"], *scores, Text(printable("; ".join(row["differs"]))))
    return table


def _calibration_table(summary: Mapping[str, Any], lines: box.Box) -> Table:
    table = _table(lines, ["probabilities"], "", "average precision", "best F1", "at threshold")
    for row in calibration(summary):
        table.add_row(row["name"], Text(number(row["value"]), "bold"), "", "", "")
    entries = summary["calibration"]["per_class"]
    for name, entry in entries.items():
        cells = [number(entry[key]) for key in ("average_precision", "best_f1", "best_threshold")]
        table.add_row(Text(printable(name)), "", *cells)
    return table
