"""metrics.json -> tables on the terminal; plain text where it is none. Names are never read as markup."""

from collections.abc import Mapping
from typing import IO, Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from segmeter.report.canvas import printable
from segmeter.report.figures import (
    SCORES,
    aggregates,
    calibration,
    classes,
    conventions,
    headlines,
    interval,
    measures,
    notes,
    number,
    refused,
)

WIDTH = 110  # of plain output, columns
MOST_MEASURED = 40  # rows of measures; of more classes only their mean is printed


def print_summary(summary: Mapping[str, Any], *, file: IO[str] | None = None) -> None:
    """Print the aggregates, the classes, what else was measured, how conventions differ, and what the figures rest on.

    Parameters
    ----------
    summary
        The content of metrics.json, schema 1.
    file
        Where to; None is the standard output.
    """
    console = Console(file=file, markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console = Console(file=file, markup=False, highlight=False, emoji=False, width=WIDTH, no_color=True)
    lines = box.SIMPLE_HEAD if console.is_terminal else box.ASCII2
    console.print(_aggregate_table(summary, lines))
    console.print(_class_table(summary, lines))
    if summary.get("measures"):
        console.print(_measure_table(summary, lines))
    if summary.get("calibration"):
        console.print(_calibration_table(summary, lines))
    if summary.get("conventions"):
        console.print(_convention_table(summary, lines))
        for line in refused(summary):
            console.print(Text(printable(line), style="dim"))
    console.print(Text(printable("; ".join(notes(summary))), style="dim"))


def _table(lines: box.Box, first: str, *others: str) -> Table:
    table = Table(box=lines, pad_edge=False)
    table.add_column(first, overflow="fold")
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _aggregate_table(summary: Mapping[str, Any], lines: box.Box) -> Table:
    table = _table(lines, "score", "data set", "95 % interval", "mean of cases", "95 % interval", "cases used")
    for row in aggregates(summary):
        used = "" if row["n_used"] is None else f"{row['n_used']} of {row['n_used'] + row['n_undefined']}"
        dataset, mean = number(row["dataset"]), number(row["mean"])
        table.add_row(
            row["name"], Text(dataset, "bold"), interval(row["dataset_ci95"]), mean, interval(row["mean_ci95"]), used
        )
    return table


def _class_table(summary: Mapping[str, Any], lines: box.Box) -> Table:
    table = _table(lines, "class", *SCORES.values(), "IoU 95 %", "pixels", "share")
    for row in classes(summary):
        scores = [number(row[score]) for score in SCORES]
        share = number(None if row["share"] is None else 100 * row["share"], 1)
        pixels = "" if row["support"] is None else f"{row['support']:,}"
        unit = "" if row["share"] is None else " %"
        table.add_row(Text(printable(row["name"])), *scores, interval(row["ci95"], 3), pixels, share + unit)
    return table


def _measure_table(summary: Mapping[str, Any], lines: box.Box) -> Table:
    table = _table(lines, "measure", "class", "mean", "95 % interval", "median", "data set", "95 %", "used", "failed")
    rows = measures(summary)
    if len(rows) > MOST_MEASURED:
        averaged = {row["metric"] for row in rows if row["region"] == "mean"}  # numbers of objects are not
        rows = [row for row in rows if row["region"] not in summary["classes"] or row["metric"] not in averaged]
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


def _convention_table(summary: Mapping[str, Any], lines: box.Box) -> Table:
    names = headlines(summary)
    table = _table(lines, "convention", *names.values())
    table.add_column("what differs from ours", overflow="fold", ratio=1)
    for row in conventions(summary):
        scores = [number(row["figures"][name]) if name in row["figures"] else "-" for name in names]
        table.add_row(row["name"], *scores, Text(printable("; ".join(row["differs"]))))
    return table


def _calibration_table(summary: Mapping[str, Any], lines: box.Box) -> Table:
    table = _table(lines, "probabilities", "", "average precision", "best F1", "at threshold")
    for row in calibration(summary):
        table.add_row(row["name"], Text(number(row["value"]), "bold"), "", "", "")
    entries = summary["calibration"]["per_class"]
    for name, entry in entries.items():
        cells = [number(entry[key]) for key in ("average_precision", "best_f1", "best_threshold")]
        table.add_row(Text(printable(name)), "", *cells)
    return table
