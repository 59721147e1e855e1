"""Texts of a comparison that the terminal, the summary for a pull request and the page share."""

from collections.abc import Mapping
from typing import Any

from segmeter.metrics.config.scores import is_overall
from segmeter.report import figures
from segmeter.report.figures import interval, number, probability, signed
from segmeter.report.printer import printable

CERTAIN = 0.05  # of adjusted p-values: what is below is called a difference
OUTCOMES = {"pass": "met", "regression": "REGRESSION", "unknown": "can't be told"}
PLACED = ("data set", "mean of cases")


def title(score: str) -> str:
    """A score in words, as `figures.title` gives it, fit to print."""
    return printable(figures.title(score))


def adjusted(pair: Mapping[str, Any]) -> float | None:
    """The adjusted p-value that a pair is shown with.

    Of the values per case by sign-flip, by Wilcoxon's test where a difference is infinite, else of the score of the
    data set.
    """
    found = (pair.get(f"{test}_holm") for test in ("sign_flip_p", "wilcoxon_p", "dataset_p"))
    return next((p for p in found if p is not None), None)


def changed(difference: float | str | None, change: str | None) -> str:
    """A difference, new minus base, with the word for it.

    Examples
    --------
    >>> changed(0.0092, "better"), changed("inf", "worse"), changed(0.0, "equal"), changed(2.0, None)
    ('+0.0092 better', '+inf worse', '+0.0000', '+2.0000')
    """
    return f"{signed(difference)} {change}" if change in ("better", "worse") else signed(difference)


def kind_of(pair: Mapping[str, Any]) -> str:
    """The difference that a pair is shown by: of the score of the data set, else of the mean over cases."""
    return "dataset" if "dataset_difference" in pair else "per_case"


def pair_heading(pair: Mapping[str, Any]) -> str:
    """Which run a difference is taken from.

    Examples
    --------
    >>> pair_heading({"base": "monday", "new": "friday"})
    'friday (new) minus monday (base)'
    """
    return f"{printable(pair['new'])} (new) minus {printable(pair['base'])} (base)"


def pair_cells(pair: Mapping[str, Any]) -> list[str]:
    """Differences with their intervals, the adjusted p-value, and the cases used; empty where there is none."""
    cells: list[str] = []
    for kind in ("dataset", "per_case"):
        if f"{kind}_difference" in pair:
            change = changed(pair[f"{kind}_difference"], pair[f"{kind}_change"])
            cells += [change, interval(pair[f"{kind}_ci95"], 3)]
        else:
            cells += ["", ""]
    used = f"{pair['n_used']} of {pair['n_used'] + pair['n_undefined']}" if "n_used" in pair else ""
    return [*cells, probability(adjusted(pair)), "; ".join(filter(None, [used, infinite_cases(pair)]))]


def infinite_cases(pair: Mapping[str, Any]) -> str:
    """In how many cases the values of a pair are infinite, or nothing.

    Examples
    --------
    >>> infinite_cases({"n_infinite": {"base": 1, "new": 36}}), infinite_cases({})
    ('inf in 1 (base), 36 (new)', '')
    """
    found = pair.get("n_infinite")
    return f"inf in {found['base']} (base), {found['new']} (new)" if found else ""


def run_score(entry: Mapping[str, Any], kind: str, run: str) -> str:
    """The score of a run; a mean over cases that is infinite with the number of cases that are.

    Examples
    --------
    >>> run_score({"per_case": {"a": "inf"}, "infinite": {"a": 36}}, "per_case", "a")
    'inf in 36'
    """
    infinite = entry.get("infinite", {}).get(run) if kind == "per_case" else 0
    return f"{number(entry[kind][run])} in {infinite}" if infinite else number(entry[kind][run])


def shown_metrics(result: Mapping[str, Any], most: int) -> tuple[list[str], int]:
    """Metrics that are shown, the one that ranks first, and how many are left out.

    Those of single classes are left out where they are more than `most`, unless they differ beyond chance.
    """
    first = result["rank_by"]
    overall = [first, *(name for name in result["metrics"] if name != first and is_overall(name))]
    single = [name for name in result["metrics"] if name not in overall]
    kept = single if len(single) <= most else [name for name in single if _differs(result["metrics"][name])]
    return overall + kept, len(single) - len(kept)


def _differs(entry: Mapping[str, Any]) -> bool:
    found = map(adjusted, entry["pairs"])
    return any(p is not None and p < CERTAIN for p in found)


def order_lines(result: Mapping[str, Any]) -> list[str]:
    """By what the runs are ranked, and what would rank them otherwise."""
    lines = [f"ranked by {title(result['rank_by'])}: {', '.join(map(printable, result['order']))}"]
    others = [f"{title(name)}: {', '.join(map(printable, order))}" for name, order in result["other_orders"].items()]
    return lines + [f"otherwise by {other}" for other in others]


def notes(result: Mapping[str, Any]) -> list[str]:
    """What must stand beside the differences."""
    resampling = result["bootstrap"]
    units = "clusters" if resampling["cluster"] else "cases"
    lines = [
        f"convention {result['convention']}",
        f"{result['n_cases']} cases",
        f"95 % intervals: {resampling['interval']} bootstrap, {resampling['resamples']} draws of {units}",
        f"p (Holm): sign-flip test on the {units}, two-sided, adjusted over all metrics of all classes together, and "
        "over those of single classes",
    ]
    if resampling["warning"]:
        lines.append(resampling["warning"])
    if result["not_shared"]:
        lines.append(f"not measured in all runs: {', '.join(result['not_shared'])}")
    return lines


def requirement_line(entry: Mapping[str, Any], *, units: str = "cases") -> str:
    """One requirement in words: what it came to, and what would be needed to tell.

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
