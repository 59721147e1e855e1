"""Lays out a comparison's tables: requirements, ranking, and differences of runs, new minus base, also by slice."""

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from markupsafe import Markup

from segmeter.metrics.config.scores import MEAN, is_number, is_overall
from segmeter.report.figures import interval, number, probability, signed, title
from segmeter.report.tables import MOST_ROWS, PAGE, Cell, Column, Table, printable

CERTAIN = 0.05  # An adjusted p-value below this counts as a difference.
OUTCOMES = {"pass": "met", "regression": "REGRESSION", "unknown": "can't be told"}
_FILES = "in compare.json and compare.html."
_ENDS = partial(interval, digits=3)

LinkOf = Callable[..., str | None]
"""Links to the cases of two runs by a score, or to those of a slice."""


def comparison_tables(result: Mapping[str, Any], *, link: LinkOf | None = None) -> dict[str, Table]:
    """Lay out the tables of a comparison: "required", "ranking", "differences" of runs, and those of "slices".

    Parameters
    ----------
    result
        The content of compare.json.
    link
        For a page: returns the link for the names of two runs, a score, and perhaps a slice. Tables of a page have
        every score; without `link`, they have the scores that matter most.
    """
    is_page, link = link is not None, link or (lambda *_, **__: None)
    tables = {
        "required": _requirements(result, link) if "gate" in result else None,
        "ranking": _ranking(result) if is_told(result) else None,
        "differences": _differences(result, link, is_page=is_page),
        "slices": _slices(result, link, is_page=is_page) if result.get("slices") else None,
    }
    return {name: table for name, table in tables.items() if table}


_REQUIREMENTS = (
    Column("required", "require"),
    Column("base", "base", number, 1),
    Column("new", "new", number, 2),  # gives way first, as base and difference add up to it
    Column("new minus base", "changed"),
    Column("margin", "margin", signed),
    Column("95 % interval", "margin_ci95", _ENDS),
    Column("outcome", "outcome", OUTCOMES.__getitem__),
)


def _requirements(result: Mapping[str, Any], link: LinkOf) -> Table:
    entries = result["gate"]["requirements"]
    base, new = [*result["runs"]][:2]
    rows = []
    for entry in entries:
        change = Cell(changed(entry["difference"], entry["change"]), entry["difference"])
        links = {"require": link(base, new, entry["metric"], part=entry["slice"])}
        rows.append(entry | {"changed": change, "links": links})
    strong = [i for i, entry in enumerate(entries) if entry["outcome"] != "pass"]
    return Table.of(_REQUIREMENTS, rows, strong=strong)


def _rank_bars(shares: Sequence[float]) -> Markup:
    """Draw a run's share of resampled data sets at each rank, the first rank the darkest."""
    bars, words = Markup(), []
    left = 0.0
    for rank, share in enumerate(shares, start=1):
        bar = Markup('<rect class="fill" x="{:.2f}" width="{:.2f}" height="10" fill-opacity="{:.2f}"/>')
        bars += bar.format(100 * left, 100 * share, 1 / rank)
        words.append(f"rank {rank} in {100 * share:.1f} %")
        left += share
    return Markup(
        '<svg class="ranks" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>'
    ).format(", ".join(words), bars)


_RANKING = (
    Column("run", "run"),
    Column("rank", "rank", "{:g}".format),
    Column("data set", "dataset"),
    Column("mean of cases", "per_case"),
    Column("share of resampled data sets by rank", "shares", _rank_bars, spare=PAGE),
    Column("first in", "first", lambda share: f"{100 * share:.1f} %"),
)


def _ranking(result: Mapping[str, Any]) -> Table:
    entry = result["metrics"][result["rank_by"]]
    ranking = entry["ranking"]
    rows = []
    for run in ranking["order"]:
        shares = ranking["rank_shares"][run]
        scores = {kind: run_score(entry, kind, run) if kind in entry else "" for kind in ("dataset", "per_case")}
        rows.append({"run": run, "rank": ranking["ranks"][run], "shares": shares, "first": shares[0], **scores})
    words = f"{title(result['rank_by'])}: ranking, with stability {number(ranking['stability'], 3)}"
    return Table.of(_RANKING, rows, title=words)


_DIFFERENCES = (
    Column("score", "score"),
    Column("base, new", "runs"),
    Column("base", "of_base", spare=2),
    Column("new", "of_new", spare=1),
    Column("new minus base", "changed"),
    Column("95 % interval", "ends"),
    Column("of", "of", spare=PAGE),
    Column("p (Holm)", "p", probability),
    Column("cases", "n_used", lambda count: "" if count is None else f"{count:,}", spare=PAGE),
)


def _differences(result: Mapping[str, Any], link: LinkOf, *, is_page: bool) -> Table:
    """Lay out the scores of one pair of runs, or the leading score of several pairs."""
    pairs = result["metrics"][result["rank_by"]]["pairs"]
    several = len(pairs) > 1
    metrics, left_out = shown_metrics(result, len(result["metrics"]) if is_page else 1 if several else MOST_ROWS)
    entries = {metric: result["metrics"][metric] for metric in metrics}
    rows = [_difference(metric, entry, pair, link) for metric, entry in entries.items() for pair in entry["pairs"]]
    columns = [column for column in _DIFFERENCES if several or column.key != "runs"]
    words = f"{title(result['rank_by'])}, new minus base" if several else pair_heading(pairs[0])
    table = Table.of(columns, rows, title=words, names=1 + several, strong=() if several else (0,))
    table = table if is_page else table.first(MOST_ROWS, _FILES)
    return replace(table, note=f"{left_out} more {_FILES}") if left_out else table


def _difference(metric: str, entry: Mapping[str, Any], pair: Mapping[str, Any], link: LinkOf) -> dict[str, Any]:
    base, new = pair["base"], pair["new"]
    kind = "dataset" if "dataset_difference" in pair else "per_case"
    difference, ends, change = (pair[f"{kind}_{part}"] for part in ("difference", "ci95", "change"))
    texts = [*(run_score(entry, kind, run) for run in (base, new)), changed(difference, change), interval(ends, 3)]
    if is_number(metric.partition("/")[0]):
        texts = [text.replace(".0000", "").replace(".000", "") for text in texts]
    of = "data set" if kind == "dataset" else "mean of cases"
    infinite = pair.get("n_infinite")
    if infinite and kind == "per_case":
        of += f", inf in {infinite['base']} (base), {infinite['new']} (new)"
    address = link(base, new, metric)
    return {
        "score": title(metric),
        "runs": f"{base}, {new}",
        "of_base": texts[0],
        "of_new": texts[1],
        "changed": Cell(texts[2], "" if difference is None else difference, address),
        "ends": texts[3],
        "of": of,
        "p": adjusted(pair),
        "n_used": pair.get("n_used"),
        "links": {"score": address, "n_used": link(base, new, metric, defined=True)},
    }


_SLICES = (
    Column("base, new", "runs", spare=1),
    Column("score", "score", spare=PAGE),
    Column("by", "by"),
    Column("slice", "slice"),
    Column("cases", "n"),
    Column("new minus base", "changed"),
    Column("95 % interval", "ci95", _ENDS),
    Column("p (Holm)", "p_holm", probability),
)


def _slices(result: Mapping[str, Any], link: LinkOf, *, is_page: bool) -> Table:
    """Lay out the differences of runs in each slice, by the first score; on a page, by all scores."""
    pairs = result["slices"]
    several = len(pairs) > 1
    names = list(next(iter(next(iter(pairs[0]["by"].values())).values()))["scores"])
    slices = [(pair, by, item) for pair in pairs for by, labels in pair["by"].items() for item in labels.items()]
    rows = []
    for (pair, by, (label, entry)), name in itertools.product(slices, names if is_page else names[:1]):
        base, new = pair["base"], pair["new"]
        score = entry["scores"][name]
        address = link(base, new, name, part={"by": by, "value": label})
        change = Cell(changed(score["difference"], score["change"]), score["difference"], address)
        facts = {"runs": f"{base}, {new}", "score": title(name), "by": by, "slice": label, "n": entry["n"]}
        rows.append({**score, **facts, "changed": change, "links": {"slice": address, "n": address}})
    columns = _SLICES if several else (replace(_SLICES[0], spare=PAGE), *_SLICES[1:])
    words = f"{title(names[0])} by slice: {'new minus base' if several else pair_heading(pairs[0])}"
    table = Table.of(columns, rows, names=4, title=words, strong=())
    return table if is_page else table.first(2 * MOST_ROWS, _FILES)


def adjusted(pair: Mapping[str, Any]) -> float | None:
    """Pick the adjusted p-value to show for a pair.

    The sign-flip test of the values per case comes first, then Wilcoxon's test, where a difference is infinite, and
    then the test of the score over the data set.
    """
    p_values = (pair.get(f"{test}_holm") for test in ("sign_flip_p", "wilcoxon_p", "dataset_p"))
    return next((p for p in p_values if p is not None), None)


def changed(difference: float | str | None, change: str | None) -> str:
    """Format a difference, new minus base, with the word for it.

    Examples
    --------
    >>> changed(0.0092, "better"), changed("inf", "worse"), changed(0.0, "equal"), changed(2.0, None)
    ('+0.0092 better', '+inf worse', '+0.0000', '+2.0000')
    """
    return f"{signed(difference)} {change}" if change in ("better", "worse") else signed(difference)


def pair_heading(pair: Mapping[str, Any]) -> str:
    """Name the two runs in the order of their difference.

    Examples
    --------
    >>> pair_heading({"base": "monday", "new": "friday"})
    'friday (new) minus monday (base)'
    """
    return f"{printable(pair['new'])} (new) minus {printable(pair['base'])} (base)"


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
    """Pick the scores that matter most: the one that ranks, then those over all classes, then certain differences.

    Returns
    -------
    The names of at most `most` scores, and how many are left out.
    """
    leading, metrics = result["rank_by"], result["metrics"]

    def order(name: str) -> tuple[bool, bool, bool, float]:
        p = min((p for p in map(adjusted, metrics[name]["pairs"]) if p is not None), default=1.0)
        other_region = name.partition("/")[2] != leading.partition("/")[2]
        return name != leading, not is_overall(name), other_region, p if p < CERTAIN else 1.0

    regions = Counter(name.partition("/")[0] for name in metrics)
    # the mean over one class repeats that class
    repeated = {f"{metric}/{MEAN}" for metric, count in regions.items() if count == 2} - {leading}
    names = sorted((name for name in metrics if name not in repeated), key=order)
    return names[:most], len(names) - len(names[:most])


def is_told(result: Mapping[str, Any]) -> bool:
    """Tell whether a ranking has evidence: two runs differ beyond chance in the score that ranks them."""
    p_values = map(adjusted, result["metrics"][result["rank_by"]]["pairs"])
    return any(p is not None and p < CERTAIN for p in p_values)
