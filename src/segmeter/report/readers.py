"""The tables and the page of an agreement between readers, for the terminal and for agree.html."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from segmeter.metrics.summary.agreement import CERTAIN
from segmeter.report.figures import UNDEFINED, interval, number, probability, signed, title
from segmeter.report.tables import Printer, Table

AGREED = "agree.json"
_CELL = (128, 46)  # width and height of a cell of the picture, pixels
_NAMES = 150  # width of the names beside it


def print_agreement(result: Mapping[str, Any], *, file: IO[str] | None = None) -> None:
    """Print the matrix of the headline, each reader's agreement with the others, and who stands apart."""
    out = Printer(file)
    entry, names = result["scores"][result["headline"]], [*result["readers"], *result["models"]]
    cells = [[a, *(_mean(entry["matrix"][a].get(b)) for b in names)] for a in names]
    heading = f"{title(result['headline'])}, mean over {result['n_cases']} cases: a row is the reference"
    out.table(Table(heads=["", *names], rows=cells, title=heading, strong=()))
    rows = [
        [
            row["name"],
            f"{row['majority']} {row['majority_ci95']}".rstrip(),
            f"{row['rest']} {row['rest_ci95']}".rstrip(),
            f"{row['contrast']} {row['contrast_ci95']}".rstrip(),
            row["p"],
        ]
        for row in _readers(result, entry)
    ]
    heads = ["reader", "with the majority", "with the rest's majority", "contrast", "p (Holm)"]
    strong = [place for place, name in enumerate(names) if name in result["apart"]]
    out.table(Table(heads=heads, rows=rows, strong=strong))
    for line in [*verdicts(result), *notes(result)]:
        out.line(line)


def verdicts(result: Mapping[str, Any]) -> list[str]:
    """State who stands apart, and for each model whether it is further from the readers than they from each other."""
    contrasts, lines = result["scores"][result["headline"]]["contrast"], []
    if any(name in contrasts for name in result["readers"]):
        told = ", ".join(result["apart"])
        lines.append(f"stands apart: {told}" if told else "no reader stands apart beyond chance")
    for name in result["models"]:
        if name in contrasts:
            one = contrasts[name]
            text = f"{name} to the readers, minus the readers to each other: {signed(one['mean'])} "
            lines.append(f"{text}{interval(one['ci95'], 3)} ({_ceiling(one)})")
    return lines


def _ceiling(one: Mapping[str, Any]) -> str:
    """Compare a model with the human ceiling, by the interval of its contrast."""
    ends = [float(end) for end in one["ci95"] or () if end is not None]
    if len(ends) < 2 or ends[0] <= 0 <= ends[1]:
        return "not told apart from the human ceiling"
    return "further than readers from each other" if one["change"] == "worse" else "closer than readers to each other"


def notes(result: Mapping[str, Any]) -> list[str]:
    """State what the agreement is of, and what a statistician would hold against it."""
    resampling = result["bootstrap"]
    units = "clusters" if resampling["cluster"] else "cases"
    lines = [
        f"convention {result['convention']}",
        f"95 % intervals: {resampling['interval']} bootstrap, {resampling['resamples']} draws of {units}. They tell "
        "how much depends on the choice of cases, not on the choice of readers: other readers may agree otherwise",
        "contrast: agreement with the others, minus the agreement of the others among each other; 0 if all are alike",
        "agreement is not accuracy: readers with the same training, or who corrected the same draft, share errors",
        "these cases and sites only: cases that are read twice are often the difficult ones",
        "the majority of all holds the reader's own vote; only the rest's does not",
    ]
    if result["models"]:
        lines.append(
            "a model that learned from several readers averages them, and may agree with each more than they do with "
            "each other. That makes it no better than a reader"
        )
    if len(result["readers"]) < 3:
        lines.append("two readers: neither has a majority, a contrast, or can be told to stand apart")
    elif len(result["readers"]) ** (1.0 - resampling["n_units"]) >= CERTAIN:  # the smallest p-value
        lines.append(f"{resampling['n_units']} {units}: too few to tell anyone apart, whatever the difference")
    shares = {kind: share for kind, share in result["tied"].items() if share}
    if shares:
        told = ", ".join(f"{100 * share:.2f} % ({kind})" for kind, share in shares.items())
        lines.append(f"pixels without a majority are left out there, which flatters every reader: {told}")
    if result.get("left_out"):
        lines.append(f"{len(result['left_out'])} cases left out, as not every reader has them")
    return lines + ([resampling["warning"]] if resampling["warning"] else [])


def agreement_values(folder: Path, result: Mapping[str, Any]) -> dict[str, Any]:
    """Gather the values of the page from agree.json."""
    headline, names = result["headline"], [*result["readers"], *result["models"]]
    scores = [
        {"name": title(name), "rows": _readers(result, entry), "pairs": _pairs(names, entry["matrix"])}
        for name, entry in result["scores"].items()
    ]
    leading = result["scores"][headline]
    values = {
        "headline": title(headline),
        "n_cases": result["n_cases"],
        "verdicts": verdicts(result),
        "notes": notes(result),
        "picture": _picture(names, leading["matrix"], better=leading["better"]),
        "first": scores[0],
        "others": scores[1:],
    }
    return {"agreement": values, "sections": [("matrix", "Matrix"), ("readers", "Readers"), ("run", "Run")]}


def _mean(entry: Mapping[str, Any] | None) -> str:
    return "" if entry is None else number(entry["mean"])


def _readers(result: Mapping[str, Any], entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    """List readers, then models: agreement with both majorities, the contrast, and its place on a common scale."""
    contrasts = entry["contrast"]
    ends = [end for one in contrasts.values() for end in (one["mean"], *(one["ci95"] or ())) if isinstance(end, float)]
    widest, rows = max(map(abs, ends), default=0.0), []
    for name in (*result["readers"], *result["models"]):
        row: dict[str, Any] = {"name": name, "model": name in result["models"]}
        for kind in ("majority", "rest"):
            one = entry[kind].get(name)
            row |= {kind: _mean(one), f"{kind}_ci95": interval(one["ci95"], 3) if one else ""}
        found = contrasts.get(name)
        numbers = [found["mean"], *(found["ci95"] or ())] if found else []
        drawn = len(numbers) == 3 and widest > 0 and all(isinstance(each, float) for each in numbers)
        places = [50 + 48 * each / widest for each in numbers] if drawn else []
        rows.append(
            row
            | {
                "contrast": signed(found["mean"]) if found else "",
                "contrast_ci95": interval(found["ci95"], 3) if found else "",
                "p": probability(found.get("p_holm")) if found else "",
                "apart": bool(found and found.get("apart")),
                "bar": {"middle": places[0], "low": places[1], "width": places[2] - places[1]} if drawn else None,
            }
        )
    return rows


def _pairs(names: Sequence[str], matrix: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"reference": a, "reader": b, "mean": _mean(one), "ci95": interval(one["ci95"], 3), "n": one["n_used"]}
        for a in names
        for b, one in matrix[a].items()
    ]


def _picture(names: Sequence[str], matrix: Mapping[str, Mapping[str, Any]], *, better: str | None) -> dict[str, Any]:
    """Lay out the matrix as cells, the darker the better the agreement."""
    width, height = _CELL
    known = [one["mean"] for row in matrix.values() for one in row.values() if isinstance(one["mean"], float)]
    low, high = min(known, default=0.0), max(known, default=0.0)
    cells = []
    for i, a in enumerate(names):
        for j, b in enumerate(names):
            one = matrix[a].get(b)
            share = 0.0
            if one and isinstance(one["mean"], float) and high > low:
                share = (one["mean"] - low) / (high - low)
                share = 1 - share if better == "lower" else share
            cells.append(
                {
                    "x": _NAMES + j * width,
                    "y": (i + 1) * height,
                    "opacity": 0.06 + 0.4 * share,
                    "text": UNDEFINED if one and one["mean"] is None else _mean(one),
                    "ends": interval(one["ci95"], 3) if one else "",
                    "title": f"{b} against {a}",
                }
            )
    heads = [{"x": _NAMES + j * width, "name": name} for j, name in enumerate(names)]
    sides = [{"y": (i + 1) * height, "name": name} for i, name in enumerate(names)]
    size = {"width": _NAMES + len(names) * width, "height": (len(names) + 1) * height}
    return {"cells": cells, "heads": heads, "sides": sides, "cell": {"width": width, "height": height}, **size}
