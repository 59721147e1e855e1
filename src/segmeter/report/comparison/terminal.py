"""A comparison's tables on the terminal; names are never read as markup."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table

from segmeter.report.comparison.texts import (
    OUTCOMES,
    PLACED,
    changed,
    notes,
    order_lines,
    pair_cells,
    pair_heading,
    run_score,
    shown_metrics,
    title,
)
from segmeter.report.figures import interval, number, probability, signed
from segmeter.report.printer import Printer, printable

MOST_SINGLE = 40  # metrics of single classes; of more, those that differ beyond chance


def print_comparison(result: Mapping[str, Any]) -> None:
    """Print the ranking, the differences of each pair of runs, those of each slice, and what was required.

    Parameters
    ----------
    result
        The content of compare.json.
    """
    out = Printer()
    first = result["rank_by"]
    out.table(_ranking_table(title(first), result["metrics"][first], out.lines))
    metrics, left_out = shown_metrics(result, MOST_SINGLE)
    out.table(_pair_table(metrics, result["metrics"], out.lines))
    for pair in result.get("slices", ()):
        out.table(_slice_table(pair, out.lines))
    if "gate" in result:
        out.table(_gate_table(result["gate"]["requirements"], out.lines))
    for line in order_lines(result):
        out.line(line)
    if left_out:
        out.line(f"{left_out} metrics of single classes do not differ beyond chance, and are in compare.json only")
    out.line("; ".join(notes(result)))


def _table(heading: str, lines: box.Box, names: Sequence[str], numbers: Sequence[str]) -> Table:
    table = Table(title=heading, title_justify="left", box=lines, pad_edge=False)
    for name in names:
        table.add_column(name, overflow="fold")
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _ranking_table(name: str, entry: Mapping[str, Any], lines: box.Box) -> Table:
    ranking = entry["ranking"]
    heading = f"{name}: ranking (stability {number(ranking['stability'], 3)})"
    table = _table(heading, lines, ["run"], ["rank", *PLACED, "first in"])
    for run in ranking["order"]:
        values = [run_score(entry, kind, run) if kind in entry else "" for kind in ("dataset", "per_case")]
        first = f"{100 * ranking['rank_shares'][run][0]:.1f} %"
        table.add_row(printable(run), f"{ranking['ranks'][run]:g}", *values, first)
    return table


def _pair_table(metrics: Sequence[str], entries: Mapping[str, Mapping[str, Any]], lines: box.Box) -> Table:
    numbers = [PLACED[0], "95 % interval", PLACED[1], "95 % interval", "p (Holm)", "cases"]
    pairs = entries[metrics[0]]["pairs"]
    if len(pairs) == 1:
        table = _table(pair_heading(pairs[0]), lines, ["metric"], numbers)
    else:
        table = _table("new minus base", lines, ["metric", "base, new"], numbers)
    for metric in metrics:
        for i, pair in enumerate(entries[metric]["pairs"]):
            runs = [f"{printable(pair['base'])}\n{printable(pair['new'])}"] if len(pairs) > 1 else []
            table.add_row(title(metric) if i == 0 else "", *runs, *pair_cells(pair))
    return table


def _slice_table(pair: Mapping[str, Any], lines: box.Box) -> Table:
    """Differences of two runs in each slice, by the first score."""
    name = next(iter(next(iter(next(iter(pair["by"].values())).values()))["scores"]))
    heading = f"{title(name)} by slice: {pair_heading(pair)}"
    table = _table(heading, lines, ["by", "slice"], ["cases", "difference", "95 % interval", "p (Holm)"])
    for by, slices in pair["by"].items():
        for label, entry in slices.items():
            score = entry["scores"][name]
            cells = [changed(score["difference"], score["change"]), interval(score["ci95"], 3)]
            table.add_row(printable(by), printable(label), str(entry["n"]), *cells, probability(score["p_holm"]))
    return table


def _gate_table(entries: Sequence[Mapping[str, Any]], lines: box.Box) -> Table:
    numbers = ["base", "new", "new minus base", "margin", "95 % interval", "outcome"]
    table = _table("required", lines, ["requirement"], numbers)
    for entry in entries:
        values = [number(entry["base"]), number(entry["new"]), changed(entry["difference"], entry["change"])]
        margin = [signed(entry["margin"]), interval(entry["margin_ci95"])]
        table.add_row(printable(entry["require"]), *values, *margin, OUTCOMES[entry["outcome"]])
    return table
