"""`segmeter compare`: finished evaluations -> paired differences, tests and ranking."""

import sys
from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from segmeter.cli.app import Job
from segmeter.cli.config.schema import CompareConfig
from segmeter.cli.run_folder import open_run
from segmeter.evaluation.compare import compare
from segmeter.files import write_json
from segmeter.report.canvas import printable
from segmeter.report.figures import AGGREGATES, interval, number
from segmeter.report.table import WIDTH


def run(config: CompareConfig, job: Job) -> None:
    """Compare, print the tables and write compare.json.

    Raises
    ------
    InputError
        The runs are not comparable; each difference has its line, and no folder is made.
    """
    result = compare(config.runs, config.metrics)
    with open_run(config, job, facts={"runs": result["folders"]}) as folder:
        write_json(folder / "compare.json", result)
    print_comparison(result)
    sys.stdout.write(f"figures   {folder / 'compare.json'}\n")


def print_comparison(result: Mapping[str, Any]) -> None:
    """Print, per metric, the runs in their order and the difference of each pair.

    Parameters
    ----------
    result
        The content of compare.json.
    """
    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console = Console(markup=False, highlight=False, emoji=False, width=WIDTH, no_color=True)
    lines = box.SIMPLE_HEAD if console.is_terminal else box.ASCII2
    for metric, entry in result["metrics"].items():
        console.print(_ranking_table(AGGREGATES[metric], entry, lines))
        console.print(_pair_table(AGGREGATES[metric], entry, lines))
    console.print("; ".join(_notes(result)), style="dim")


def _ranking_table(title: str, entry: Mapping[str, Any], lines: box.Box) -> Table:
    ranking = entry["ranking"]
    stability = number(ranking["stability"], 3)
    table = Table(title=f"{title}: ranking (stability {stability})", title_justify="left", box=lines, pad_edge=False)
    table.add_column("run", overflow="fold")
    for name in ("rank", "data set", "mean of cases", "first in"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ranking["order"]:
        first = f"{100 * ranking['rank_shares'][name][0]:.1f} %"
        values = (number(entry["dataset"][name]), number(entry["per_case"][name]))
        table.add_row(printable(name), f"{ranking['ranks'][name]:g}", *values, first)
    return table


def _pair_table(title: str, entry: Mapping[str, Any], lines: box.Box) -> Table:
    table = Table(title=f"{title}: first minus second", title_justify="left", box=lines, pad_edge=False)
    table.add_column("first, second", overflow="fold")
    for name in ("data set", "95 % interval", "mean of cases", "95 % interval", "p", "p (Holm)", "cases"):
        table.add_column(name, justify="right", no_wrap=True)
    for pair in entry["pairs"]:
        values: list[str] = []
        for kind in ("dataset", "per_case"):
            values += [_signed(pair[f"{kind}_difference"]), interval(pair[f"{kind}_ci95"], 3)]
        tests = (_probability(pair["wilcoxon_p"]), _probability(pair["wilcoxon_p_holm"]))
        names = f"{printable(pair['first'])}\n{printable(pair['second'])}"
        table.add_row(names, *values, *tests, f"{pair['n_used']} of {pair['n_used'] + pair['n_undefined']}")
    return table


def _signed(value: float | None) -> str:
    return number(value) if value is None else f"{value:+.4f}"


def _probability(value: float) -> str:
    return "< 0.0001" if value < 0.0001 else f"{value:.4f}"


def _notes(result: Mapping[str, Any]) -> list[str]:
    resampling = result["bootstrap"]
    units = "clusters" if resampling["cluster"] else "cases"
    notes = [
        f"convention {result['convention']}",
        f"{result['n_cases']} cases",
        f"95 % intervals: {resampling['interval']} bootstrap, {resampling['resamples']} draws of {units}",
        "p: Wilcoxon signed-rank on the cases, two-sided; sign-flip permutation is in compare.json",
    ]
    return notes + ([resampling["warning"]] if resampling["warning"] else [])
