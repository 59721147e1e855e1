"""Lays out the tables and words of `segmeter agree` for its terminal and its page."""

from collections.abc import Mapping
from typing import Any

from segmeter.metrics.summary.agreement import CERTAIN
from segmeter.report.decisions import Shown
from segmeter.report.figures import interval, number, probability, signed, title
from segmeter.report.tables import Table

_OBJECTIONS = (
    "Agreement is not accuracy. Readers with the same training, or who corrected the same draft, share errors.",
    "The intervals tell how much depends on the choice of cases, not on the choice of readers: other readers may agree "
    "otherwise.",
    "These cases and sites only: cases that are read twice are often the difficult ones.",
    "The majority of all includes the reader's own vote; that of the rest does not.",
    "A model that learned from several readers averages them, and may agree with each more than they do with each "
    "other. That makes it no better than a reader.",
)


def show_agreement(result: Mapping[str, Any]) -> Shown:
    """Lay out agree.json: the matrix of the headline, each reader's agreement with the others, and who stands apart."""
    leading = result["scores"][result["headline"]]
    words = f"{title(result['headline'])}, mean over {result['n_cases']} cases: a row is the reference"
    further = []
    for name, entry in result["scores"].items():
        further += [_readers(result, entry, title(name))] if entry is not leading else []
        further.append(_pairs(result, entry, f"{title(name)} of each pair"))
    return Shown(
        tables=[_matrix(result, leading, words), _readers(result, leading, f"readers by {title(result['headline'])}")],
        further=further,
        verdicts=verdicts(result),
        notes=notes(result),
        objections=_OBJECTIONS,
    )


def verdicts(result: Mapping[str, Any]) -> list[str]:
    """State who stands apart, and whether each model is further from the readers than they are from each other."""
    contrasts, lines = result["scores"][result["headline"]]["contrast"], []
    if any(name in contrasts for name in result["readers"]):
        told = ", ".join(result["apart"])
        lines.append(f"stands apart: {told}" if told else "no reader stands apart beyond chance")
    for name in (name for name in result["models"] if name in contrasts):
        told = f"{signed(contrasts[name]['mean'])} {interval(contrasts[name]['ci95'], 3)}"
        lines.append(f"{name} to the readers, minus the readers to each other: {told} ({_ceiling(contrasts[name])})")
    return lines


def _ceiling(one: Mapping[str, Any]) -> str:
    """Compare a model with the human ceiling, by the interval of its contrast."""
    ends = [float(end) for end in one["ci95"] or () if end is not None]
    if len(ends) < 2 or ends[0] <= 0 <= ends[1]:
        return "not told apart from the human ceiling"
    return "further than readers from each other" if one["change"] == "worse" else "closer than readers to each other"


def notes(result: Mapping[str, Any]) -> list[str]:
    """State how the agreement was measured."""
    resampling = result["bootstrap"]
    units = "clusters" if resampling["cluster"] else "cases"
    lines = [
        f"convention {result['convention']}",
        f"95 % intervals: {resampling['interval']} bootstrap, {resampling['resamples']} draws of {units}",
        "contrast: agreement with the others, minus the agreement of the others among each other; 0 if all are alike",
    ]
    if len(result["readers"]) < 3:
        lines.append("two readers: there is no majority and no contrast, so neither can be told to stand apart")
    elif len(result["readers"]) ** (1.0 - resampling["n_units"]) >= CERTAIN:  # the smallest p-value
        lines.append(f"{resampling['n_units']} {units}: too few to tell anyone apart, whatever the difference")
    shares = {kind: share for kind, share in result["tied"].items() if share}
    if shares:
        told = ", ".join(f"{100 * share:.2f} % ({kind})" for kind, share in shares.items())
        lines.append(f"pixels without a majority are left out there, which flatters every reader: {told}")
    if result.get("left_out"):
        lines.append(f"{len(result['left_out'])} cases left out, as not every reader has them")
    return lines + ([resampling["warning"]] if resampling["warning"] else [])


def _names(result: Mapping[str, Any]) -> list[str]:
    return [*result["readers"], *result["models"]]


def _mean(entry: Mapping[str, Any] | None) -> str:
    return "" if entry is None else number(entry["mean"])


def _with_ends(entry: Mapping[str, Any] | None) -> str:
    return "" if entry is None else f"{_mean(entry)} {interval(entry['ci95'], 3)}".rstrip()


def _matrix(result: Mapping[str, Any], entry: Mapping[str, Any], words: str) -> Table:
    """Lay out the mean score of each pair; the darker, the better the agreement."""
    names = _names(result)
    cells = [[entry["matrix"][a].get(b) for b in names] for a in names]
    known = [one["mean"] for row in cells for one in row if one and isinstance(one["mean"], float)]
    worst, best = min(known, default=0.0), max(known, default=0.0)
    worst, best = (best, worst) if entry["better"] == "lower" else (worst, best)

    def shade(one: Mapping[str, Any] | None) -> int:
        told = one is not None and isinstance(one["mean"], float) and best != worst
        return round(4 * (one["mean"] - worst) / (best - worst)) if one and told else -1

    rows = [[a, *map(_mean, row)] for a, row in zip(names, cells, strict=True)]
    shades = [[-1, *map(shade, row)] for row in cells]
    return Table(heads=["", *names], rows=rows, title=words, strong=(), shades=shades)


def _readers(result: Mapping[str, Any], entry: Mapping[str, Any], words: str) -> Table:
    """Lay out readers, then models: agreement with both majorities, and the contrast."""
    rows, apart = [], []
    for place, name in enumerate(_names(result)):
        found = entry["contrast"].get(name)
        contrast = f"{signed(found['mean'])} {interval(found['ci95'], 3)}".rstrip() if found else ""
        p = probability(found.get("p_holm")) if found else ""
        rows.append([name, *(_with_ends(entry[kind].get(name)) for kind in ("majority", "rest")), contrast, p])
        apart += [place] if found and found.get("apart") else []
    heads = ["reader", "with the majority", "with the rest's majority", "contrast", "p (Holm)"]
    return Table(heads=heads, rows=rows, title=words, strong=apart)


def _pairs(result: Mapping[str, Any], entry: Mapping[str, Any], words: str) -> Table:
    pairs = [(a, b, one) for a in _names(result) for b, one in entry["matrix"][a].items()]
    rows = [[a, b, _mean(one), interval(one["ci95"], 3), str(one["n_used"])] for a, b, one in pairs]
    return Table(heads=["reference", "reader", "mean", "95 %", "cases"], rows=rows, names=2, title=words, strong=())
