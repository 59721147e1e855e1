"""compare.json -> compare.html: every metric in one table; nothing fetched, every name escaped."""

from collections.abc import Mapping
from typing import Any

from segmeter.report.comparison.texts import CERTAIN, OUTCOMES, adjusted, notes, order_lines, pair_cells, title
from segmeter.report.page.render import render


def comparison_page(result: Mapping[str, Any]) -> bytes:
    """Fill the page with what was required, all differences, and those of each slice.

    Parameters
    ----------
    result
        The content of compare.json.
    """
    gate = [entry | {"said": OUTCOMES[entry["outcome"]]} for entry in result.get("gate", {}).get("requirements", ())]
    warning = result["bootstrap"]["warning"]
    return render(
        "compare.html",
        title=f"{', '.join(result['runs'])}: comparison",
        result=result,
        order=order_lines(result)[:1],
        gate=gate,
        rows=[_row(metric, pair) for metric, entry in result["metrics"].items() for pair in entry["pairs"]],
        slices=_slices(result),
        notes=[*notes(result), *([warning] if warning else [])],
    )


def _row(metric: str, pair: Mapping[str, Any]) -> dict[str, Any]:
    p = adjusted(pair)
    values = {kind: pair.get(f"{kind}_difference") for kind in ("dataset", "per_case")}
    return {
        "metric": metric,
        "title": title(metric),
        "first": pair["first"],
        "second": pair["second"],
        "cells": pair_cells(pair),
        **{kind: _sortable(value) for kind, value in values.items()},
        "p": _sortable(p),
        "differs": p is not None and p < CERTAIN,
    }


def _sortable(value: float | str | None) -> float | str:
    """What the page's script sorts by."""
    return "" if value is None else value.replace("inf", "Infinity") if isinstance(value, str) else value


def _slices(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"first": pair["first"], "second": pair["second"], "by": by, "slice": label, "n": entry["n"]}
        | {"metric": title(name), **score}
        for pair in result.get("slices", ())
        for by, slices in pair["by"].items()
        for label, entry in slices.items()
        for name, score in entry["scores"].items()
    ]
