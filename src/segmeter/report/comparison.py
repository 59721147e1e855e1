"""The tables of a comparison, for the terminal, pull requests and notebooks, and the words that its page shares.

Every difference is new minus base.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import IO, Any

from segmeter.checks import shorten
from segmeter.metrics.config.scores import MEAN, is_number, is_overall
from segmeter.report import figures
from segmeter.report.figures import interval, number, probability, signed
from segmeter.report.tables import MOST_ROWS, Printer, Table, escape_markdown, printable

CERTAIN = 0.05  # adjusted p-values below it count as a difference
OUTCOMES = {"pass": "met", "regression": "REGRESSION", "unknown": "can't be told"}
_HEADINGS = {
    "pass": "segmeter: every requirement is met",
    "regression": "segmeter: regression",
    "unknown": "segmeter: can't be told from these cases",
}


def print_comparison(result: Mapping[str, Any], *, file: IO[str] | None = None) -> None:
    """Print what was required, the ranking, and what differs.

    Parameters
    ----------
    result
        The content of compare.json.
    file
        Where to; None is the standard output.
    """
    out = Printer(file)
    for table in comparison_tables(result):
        out.table(table)
    for line in [*order_lines(result), "; ".join(notes(result))]:
        out.line(line)


def markdown_summary(result: Mapping[str, Any]) -> str:
    """Write the tables in GitHub's Markdown, as a comment on a pull request shows them; names are escaped."""
    gate = result.get("gate")
    parts = [f"## {_HEADINGS[gate['outcome']]}" if gate else "## segmeter: comparison"]
    parts += [table.markdown() for table in comparison_tables(result)]
    entries = gate["requirements"] if gate else ()
    open_ones = [requirement_line(one, units=_units(result)) for one in entries if one["outcome"] == "unknown"]
    parts += ["\n".join(f"* {escape_markdown(line)}" for line in open_ones)] if open_ones else []
    parts += [escape_markdown(line) for line in order_lines(result)]
    parts.append("<sub>" + escape_markdown("; ".join(notes(result))) + "</sub>")
    return "\n\n".join(parts) + "\n"


def gate_lines(result: Mapping[str, Any]) -> list[str]:
    """A line for each requirement that is not met."""
    entries = result["gate"]["requirements"]
    return [requirement_line(one, units=_units(result)) for one in entries if one["outcome"] != "pass"]


def comparison_tables(result: Mapping[str, Any]) -> list[Table]:
    """Lay out a comparison: requirements, the ranking, differences of each pair of runs, and those by slice."""
    tables = [_requirements(result["gate"]["requirements"])] if "gate" in result else []
    tables += [_ranking(result)] if is_told(result) else []
    tables += _differences(result)
    return tables + [_slices(pair) for pair in result.get("slices", ())]


def _requirements(entries: Sequence[Mapping[str, Any]]) -> Table:
    rows = []
    for entry in entries:
        values = [number(entry["base"]), number(entry["new"]), changed(entry["difference"], entry["change"])]
        margin = [signed(entry["margin"]), interval(entry["margin_ci95"], 3)]
        rows.append([entry["require"], *values, *margin, OUTCOMES[entry["outcome"]]])
    heads = ["required", "base", "new", "new minus base", "margin", "95 % interval", "outcome"]
    strong = [i for i, entry in enumerate(entries) if entry["outcome"] != "pass"]
    return Table(heads=heads, rows=rows, strong=strong)


def _ranking(result: Mapping[str, Any]) -> Table:
    entry = result["metrics"][result["rank_by"]]
    ranking, rows = entry["ranking"], []
    for run in ranking["order"]:
        values = [run_score(entry, kind, run) if kind in entry else "" for kind in ("dataset", "per_case")]
        rows.append([run, f"{ranking['ranks'][run]:g}", *values, f"{100 * ranking['rank_shares'][run][0]:.1f} %"])
    title = f"{figures.title(result['rank_by'])}: ranking, with stability {number(ranking['stability'], 3)}"
    return Table(heads=["run", "rank", "data set", "mean of cases", "first in"], rows=rows, title=title)


def _differences(result: Mapping[str, Any]) -> list[Table]:
    """Lay out the scores of one pair of runs, or the leading score of several pairs."""
    pairs = result["metrics"][result["rank_by"]]["pairs"]
    metrics, left_out = shown_metrics(result, 1 if len(pairs) > 1 else MOST_ROWS)
    tables = []
    for i, pair in enumerate(pairs):
        rows = []
        for metric in metrics:
            entry, one = result["metrics"][metric], result["metrics"][metric]["pairs"][i]
            kind = kind_of(one)
            values = [run_score(entry, kind, pair[side]) for side in ("base", "new")]
            cells = [*values, signed(one[f"{kind}_difference"]), interval(one[f"{kind}_ci95"], 3)]
            if is_number(metric.partition("/")[0]):
                cells = [cell.replace(".0000", "").replace(".000", "") for cell in cells]
            change = one[f"{kind}_change"]
            word = f" {change}" if change in ("better", "worse") else ""
            rows.append([figures.title(metric), *cells[:2], cells[2] + word, cells[3], probability(adjusted(one))])
        heads = ["score", "base", "new", "new minus base", "95 % interval", "p (Holm)"]
        tables.append(Table(heads=heads, rows=rows, title=pair_heading(pair)))
    if len(tables) > 1:
        first = tables[0]
        rows = [[table.title, *table.rows[0][1:]] for table in tables]
        title = f"{figures.title(result['rank_by'])}, new minus base"
        tables = [
            Table(heads=["runs", *first.heads[1:]], rows=rows, title=title, strong=()).first(
                MOST_ROWS, "in compare.json and compare.html."
            )
        ]
    note = f"{left_out} more in compare.json and compare.html." if left_out else tables[-1].note
    return [*tables[:-1], replace(tables[-1], note=note)]


def _slices(pair: Mapping[str, Any]) -> Table:
    """Differences of two runs in each slice, by the first score."""
    name = next(iter(next(iter(next(iter(pair["by"].values())).values()))["scores"]))
    rows = []
    for by, slices in pair["by"].items():
        for label, entry in slices.items():
            score = entry["scores"][name]
            change = [changed(score["difference"], score["change"]), interval(score["ci95"], 3)]
            rows.append([by, label, str(entry["n"]), *change, probability(score["p_holm"])])
    heads = ["by", "slice", "cases", "difference", "95 % interval", "p (Holm)"]
    title = f"{figures.title(name)} by slice: {pair_heading(pair)}"
    table = Table(heads=heads, rows=rows, names=2, title=title, strong=())
    return table.first(2 * MOST_ROWS, "in compare.json and compare.html.")


def _units(result: Mapping[str, Any]) -> str:
    return "clusters" if result["bootstrap"]["cluster"] else "cases"


def adjusted(pair: Mapping[str, Any]) -> float | None:
    """Pick the adjusted p-value to show for a pair.

    It is that of the sign-flip test of the values per case, of Wilcoxon's test where a difference is infinite, or else
    that of the score over the data set.
    """
    found = (pair.get(f"{test}_holm") for test in ("sign_flip_p", "wilcoxon_p", "dataset_p"))
    return next((p for p in found if p is not None), None)


def changed(difference: float | str | None, change: str | None) -> str:
    """Format a difference, new minus base, with the word for it.

    Examples
    --------
    >>> changed(0.0092, "better"), changed("inf", "worse"), changed(0.0, "equal"), changed(2.0, None)
    ('+0.0092 better', '+inf worse', '+0.0000', '+2.0000')
    """
    return f"{signed(difference)} {change}" if change in ("better", "worse") else signed(difference)


def kind_of(pair: Mapping[str, Any]) -> str:
    """Tell which difference to show: of the score over the data set, else of the mean over cases."""
    return "dataset" if "dataset_difference" in pair else "per_case"


def pair_heading(pair: Mapping[str, Any]) -> str:
    """Name the two runs in the order of their difference.

    Examples
    --------
    >>> pair_heading({"base": "monday", "new": "friday"})
    'friday (new) minus monday (base)'
    """
    return f"{printable(pair['new'])} (new) minus {printable(pair['base'])} (base)"


def infinite_cases(pair: Mapping[str, Any]) -> str:
    """Count the cases in which a pair has infinite values, or give nothing.

    Examples
    --------
    >>> infinite_cases({"n_infinite": {"base": 1, "new": 36}}), infinite_cases({})
    ('inf in 1 (base), 36 (new)', '')
    """
    found = pair.get("n_infinite")
    return f"inf in {found['base']} (base), {found['new']} (new)" if found else ""


def run_score(entry: Mapping[str, Any], kind: str, run: str) -> str:
    """Format the score of a run; an infinite mean over cases comes with the number of infinite cases.

    Examples
    --------
    >>> run_score({"per_case": {"a": "inf"}, "infinite": {"a": 36}}, "per_case", "a")
    'inf in 36'
    """
    infinite = entry.get("infinite", {}).get(run) if kind == "per_case" else 0
    return f"{number(entry[kind][run])} in {infinite}" if infinite else number(entry[kind][run])


def shown_metrics(result: Mapping[str, Any], most: int) -> tuple[list[str], int]:
    """Pick the scores that matter most: the one that ranks, those of all classes, then those that surely differ.

    Returns
    -------
    The names of at most `most` scores, and how many are left out.
    """
    first, metrics = result["rank_by"], result["metrics"]

    def order(name: str) -> tuple[bool, bool, bool, float]:
        p = min((p for p in map(adjusted, metrics[name]["pairs"]) if p is not None), default=1.0)
        of_other = name.partition("/")[2] != first.partition("/")[2]
        return name != first, not is_overall(name), of_other, p if p < CERTAIN else 1.0

    regions = Counter(name.partition("/")[0] for name in metrics)
    repeated = {f"{metric}/{MEAN}" for metric, count in regions.items() if count == 2} - {first}  # one class's own
    found = sorted((name for name in metrics if name not in repeated), key=order)
    return found[:most], len(found) - len(found[:most])


def is_told(result: Mapping[str, Any]) -> bool:
    """Tell whether a ranking has evidence: two runs differ beyond chance in the score that ranks them."""
    found = map(adjusted, result["metrics"][result["rank_by"]]["pairs"])
    return any(p is not None and p < CERTAIN for p in found)


def order_lines(result: Mapping[str, Any]) -> list[str]:
    """State the order of the runs and which scores would order them otherwise, or that no difference can be told."""
    title = printable(figures.title(result["rank_by"]))
    if not is_told(result):
        return [f"no difference in {title} can be told from {result['n_cases']} cases, so that the runs are not ranked"]
    lines = [f"ranked by {title}: {', '.join(map(printable, result['order']))}"]
    others: dict[str, list[str]] = {}
    for name, order in result["other_orders"].items():
        others.setdefault(", ".join(map(printable, order)), []).append(printable(figures.title(name)))
    for order, names in others.items():
        more = f" and {len(names) - 3} more scores" if len(names) > 3 else ""
        lines.append(f"otherwise by {', '.join(names[:3])}{more}: {order}")
    return lines


def notes(result: Mapping[str, Any]) -> list[str]:
    """Facts that must stand beside the differences."""
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
    ...          "reason": "the interval holds the bound", "n_units": 30, "n_units_needed": 270,
    ...          "difference": 0.01, "change": "better"}
    >>> requirement_line(entry).partition("; ")[2]
    'new minus base +0.0100 better; about 270 cases like these would tell'
    """
    outcome = OUTCOMES[entry["outcome"]]
    told = f"{outcome} from {entry['n_units']} {units}" if entry["outcome"] == "unknown" else outcome
    margin = f"margin {signed(entry['margin'])} {interval(entry['margin_ci95'])}".rstrip()
    margin += f"; new minus base {changed(entry['difference'], entry['change'])}"
    needed = entry["n_units_needed"]
    ending = f"; about {needed:,} {units} like these would tell" if needed else ""
    if entry["outcome"] == "unknown" and not needed:
        ending = f"; {entry['reason']}"
    if infinite := entry.get("n_infinite"):
        ending += f"; infinite in {infinite['new']} of {infinite['cases']} cases, in the base in {infinite['base']}"
    return f"{printable(entry['require'])}: {told}, {margin}{ending}"
