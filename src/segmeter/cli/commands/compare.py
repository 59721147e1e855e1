"""`segmeter compare`: finished evaluations -> paired differences, tests and ranking."""

import sys
from collections.abc import Mapping
from typing import Any

from rich import box
from rich.table import Table

from segmeter.cli.config.schema import CompareConfig
from segmeter.cli.runs.job import Job
from segmeter.cli.runs.run_folder import open_run
from segmeter.evaluation.compare import compare
from segmeter.files import write_json
from segmeter.metrics.summary.measures import MEAN
from segmeter.report.figures import AGGREGATES, interval, number
from segmeter.report.pictures.canvas import printable
from segmeter.report.printer import Printer


def run(config: CompareConfig, job: Job) -> None:
    """Compare, print the tables and write compare.json.

    Raises
    ------
    InputError
        The runs are not comparable; each difference has its line, and no folder is made.
    """
    result = compare(config.runs, config.metrics, rank_by=config.rank_by)
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
    out = Printer()
    for metric in _printed(result):
        entry = result["metrics"][metric]
        if entry["ranking"]:
            out.table(_ranking_table(_title(metric), entry, out.lines))
        out.table(_pair_table(_title(metric), entry, out.lines))
    for line in _order(result):
        out.line(line)
    out.line("; ".join(_notes(result)))
    if result["bootstrap"]["warning"]:
        out.line(result["bootstrap"]["warning"])


def _printed(result: Mapping[str, Any]) -> list[str]:
    """The metric that ranks, then the others that are no single class's."""
    first = result["rank_by"]
    return [first, *(name for name in result["metrics"] if name != first and ("/" not in name or _is_mean(name)))]


def _is_mean(metric: str) -> bool:
    return metric.partition("/")[2] == MEAN


def _title(metric: str) -> str:
    name, _, region = metric.partition("/")
    return AGGREGATES.get(name) or f"{name}, {'mean over classes' if region == MEAN else printable(region)}"


def _order(result: Mapping[str, Any]) -> list[str]:
    """By what the runs are ranked, and what would rank them otherwise."""
    lines = [f"ranked by {_title(result['rank_by'])}: {', '.join(map(printable, result['order']))}"]
    others = [f"{_title(name)}: {', '.join(map(printable, order))}" for name, order in result["other_orders"].items()]
    return lines + [f"otherwise by {other}" for other in others]


def _ranking_table(title: str, entry: Mapping[str, Any], lines: box.Box) -> Table:
    ranking = entry["ranking"]
    stability = number(ranking["stability"], 3)
    table = Table(title=f"{title}: ranking (stability {stability})", title_justify="left", box=lines, pad_edge=False)
    table.add_column("run", overflow="fold")
    for name in ("rank", "data set", "mean of cases", "first in"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ranking["order"]:
        first = f"{100 * ranking['rank_shares'][name][0]:.1f} %"
        dataset = number(entry["dataset"][name]) if "dataset" in entry else ""
        values = (dataset, number(entry["per_case"][name]))
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
            given = f"{kind}_difference" in pair
            values += [_signed(pair[f"{kind}_difference"]), interval(pair[f"{kind}_ci95"], 3)] if given else ["", ""]
        tests = (_probability(pair["wilcoxon_p"]), _probability(pair["wilcoxon_p_holm"]))
        names = f"{printable(pair['first'])}\n{printable(pair['second'])}"
        table.add_row(names, *values, *tests, f"{pair['n_used']} of {pair['n_used'] + pair['n_undefined']}")
    return table


def _signed(value: float | str | None) -> str:
    return f"{value:+.4f}" if isinstance(value, float) else number(value)


def _probability(value: float) -> str:
    return "< 0.0001" if value < 0.0001 else f"{value:.4f}"


def _notes(result: Mapping[str, Any]) -> list[str]:
    resampling = result["bootstrap"]
    units = "clusters" if resampling["cluster"] else "cases"
    notes = [
        f"convention {result['convention']}",
        f"{result['n_cases']} cases",
        f"95 % intervals: {resampling['interval']} bootstrap, {resampling['resamples']} draws of {units}",
        f"p: Wilcoxon signed-rank on the {units}, two-sided",
        "sign-flip permutation tests and single classes are in compare.json",
    ]
    if result["not_shared"]:
        notes.append(f"not measured in all runs: {', '.join(result['not_shared'])}")
    return notes
