"""Shows what a decision found (`segmeter plan`, `tune`, `agree`, `suspects`): tables, charts, and its limits.

The terminal and the page of every decision show the same parts, which `Shown` holds.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from segmeter.files import write_bytes
from segmeter.report.drawing import COLOURS, Chart, Curve
from segmeter.report.figures import interval, number, signed, title
from segmeter.report.tables import MOST_ROWS, Table, print_tables

_KINDS = {"dataset": "data set", "per_case": "mean of cases"}
_SPARE = {"10 more": 3, "now": 2, "from": 1}  # columns of a plan that give way where there is too little room
_PLAN_OBJECTIONS = (
    "The pilot's cases must be drawn like those of the real study. Another site, scanner or season has another spread, "
    "and no interval here knows of it.",
    "Cases of one patient or sequence are not independent. Without metrics.cluster the answer is too small.",
    "A pilot that was chosen because its result looked good promises too much. Plan for a difference that would "
    "matter, not for the one that the pilot shows.",
    "A spread is harder to know than a mean. Take the upper end of the interval where too few cases would cost more "
    "than too many.",
    "Each of several scores or slices needs its own number, and testing several needs more (Holm).",
)

_TUNING_OBJECTIONS = (
    "The interval is of the gain on cases like these. Another site or scanner may need another threshold.",
    "The best checkpoint was chosen on the same validation cases, which no resample repeats. So the score is still a "
    "little too good: report that of the test split.",
    "Tuning again after looking at the test split makes that a validation split too.",
    "Cases of one patient or sequence are not independent. Set metrics.cluster.",
    "The optimism is that of these settings. Those that were tried before and left out of the list count too.",
)


@dataclass(frozen=True, kw_only=True)
class Shown:
    """The parts of a decision; the terminal shows verdicts, tables and notes.

    Parameters
    ----------
    tables, further
        Those that lead, and those that only the page has, folded.
    rest
        What the rows of the last leading table are, and where all of them are; the terminal prints the first ones.
    verdicts, notes, objections
        Lines: the answer in words, what explains the tables, and what a statistician would object.
    charts, crops
        Pictures, each with its caption; a crop is the address of its file's content.
    ids
        Case ids that a button of the page copies.
    """

    tables: Sequence[Table]
    further: Sequence[Table] = ()
    rest: str = ""
    verdicts: Sequence[str] = ()
    notes: Sequence[str] = ()
    objections: Sequence[str] = ()
    charts: Sequence[tuple[str, Chart]] = ()
    crops: Sequence[tuple[str, str]] = ()
    ids: Sequence[str] = ()


def write_charts(folder: Path, name: str, shown: Shown) -> None:
    """Write the first chart as <name>.svg and <name>.png, and further ones with a number."""
    for i, (_, chart) in enumerate(shown.charts, 1):
        stem = folder / (name if i == 1 else f"{name}-{i}")
        write_bytes(stem.with_suffix(".svg"), chart.svg().encode())
        write_bytes(stem.with_suffix(".png"), chart.png())


def print_shown(shown: Shown, paths: Mapping[str, Path]) -> None:
    """Print the tables, the lines below them, and where the files are."""
    *leading, last = shown.tables
    last = last.first(MOST_ROWS, shown.rest) if shown.rest else last
    print_tables([*leading, last], [*shown.verdicts, *shown.notes])
    sys.stdout.write("".join(f"{name:<9} {path}\n" for name, path in paths.items()))


def show_plan(result: Mapping[str, Any]) -> Shown:
    """Lay out the content of plan.json."""
    rows, units = result["rows"], "clusters" if result["cluster"] else "cases"
    tables, charts = list[Table](), list[tuple[str, Chart]]()
    aims = {"width": f"95 % interval of width {result['width']:g}"} if result["width"] else {}
    if result["detect"]:
        aims["power"] = f"difference of {result['detect']:g} told with power {result['power']:g}"
    heads = ["score", "of", "slice", "needed", "95 %", *(["cases"] if result["cluster"] else [])]
    heads += ["now", "10 more", "from"]
    spares = [_SPARE.get(head, 0) for head in heads]
    for aim, words in aims.items():
        lines = []
        for row in rows:
            part, needed = row["slice"], row[aim]
            line = [title(row["score"]), _KINDS[row["kind"]], f"{part['by']}={part['value']}" if part else "all"]
            if needed is None:
                line += ["can't tell", *[""] * (len(heads) - 4)]
            else:
                ends = "" if needed["units_ci95"] is None else f"[{', '.join(map(_count, needed['units_ci95']))}]"
                line += [_count(needed["units"]), ends, *([_count(needed["cases"])] if result["cluster"] else [])]
                law = "root law" if needed["extrapolated"] else "pilot"
                line += [number(needed["now"], 3), number(needed["after_10_more"], 3), law]
            lines.append(line)
        tables.append(Table(heads=heads, rows=lines, names=3, title=f"{words}: {units} needed", spares=spares))
        charts += _plan_charts(rows, aim, result, units)
    return Shown(tables=tables, charts=charts, notes=_plan_notes(rows, units), objections=_PLAN_OBJECTIONS)


def _count(units: int | None) -> str:
    return "> 10 million" if units is None else f"{units:,}"


def _plan_notes(rows: Sequence[Mapping[str, Any]], units: str) -> list[str]:
    """Say why scores have no answer, and how much clusters cost."""
    notes = list[str]()
    for row in rows:
        place = f" in {row['slice']['value']}" if row["slice"] else ""
        named = f"{title(row['score'])} ({_KINDS[row['kind']]}){place}"
        if row["cannot_tell"]:
            again = f" Ask again with about {row['ask_again']:,} {units}." if row["ask_again"] else ""
            notes.append(f"{named}: this pilot cannot tell: {row['cannot_tell']}.{again}")
        elif None in (one["units"] for one in (row["width"], row["power"]) if one):
            notes.append(f"{named}: 10 million {units} do not reach this aim. Ask for a larger width or difference.")
        elif row["design_effect"] is not None:
            notes.append(f"{named}: design effect {row['design_effect']:.2f} ({units} need as many times the cases)")
    if any(row["n_units"] is None for row in rows):
        notes.append("The standard deviation counts as exact; cases=N, which it is from, gives an interval.")
    return notes


def _plan_charts(
    rows: Sequence[Mapping[str, Any]], aim: str, result: Mapping[str, Any], units: str
) -> list[tuple[str, Chart]]:
    """Draw the law of the first score, for the whole data set and as the mean over cases."""
    told = [row for row in rows if row["score"] == rows[0]["score"] and row["slice"] is None and row[aim] is not None]
    curves, marks = list[Curve](), dict[str, float]()
    for row, colour in zip(told, COLOURS[0::2], strict=False):
        ends = [(p["units"], *p["width_ci95"]) for p in row["curve"] if aim == "width" and p["width_ci95"]]
        points = [(p["units"], p[aim]) for p in row["curve"]]
        dots = [(p["units"], p[f"drawn_{aim}"]) for p in row["curve"] if p[f"drawn_{aim}"] is not None]
        curves.append(Curve(name=_KINDS[row["kind"]], points=points, dots=dots, band=ends, colour=colour))
        if row[aim]["units"]:
            marks[f"{row[aim]['units']:,}"] = row[aim]["units"]
    if not curves:
        return []
    asked = result["width"] if aim == "width" else result["power"]
    top = max(p[1] for curve in curves for p in curve.points[2:])
    label, most = ("width of the interval", min(top, 6 * asked)) if aim == "width" else ("power", 1)
    both: dict[str, Any] = {"vertical": marks, "horizontal": {"asked": asked}, "y_range": (0, most)}
    chart = Chart(curves=curves, x_label=units, y_label=label, log_x=True, **both)
    caption = (
        "squares are data sets that were drawn from the pilot, lines follow the root law. The line of the data set "
        "allows for large cases that a pilot seldom holds, and may lie above its squares."
    )
    return [(f"{title(rows[0]['score'])}: {caption}", chart)]


def show_tuned(result: Mapping[str, Any]) -> Shown:
    """Lay out the content of tune.json."""
    every, chosen, usual = result["settings"], result["chosen"], result["usual"]
    sign = -1 if result["better"] == "lower" else 1
    ranked = sorted(  # "inf" is a number here, and an undefined score comes last
        range(len(every)), key=lambda s: math.inf if every[s]["score"] is None else -sign * float(every[s]["score"])
    )
    heads, rows = [*every[0]["values"], "", title(result["by"]), "95 %", "gain", "chosen in"], []
    for s in dict.fromkeys([chosen, *ranked[:MOST_ROWS], usual]):
        one, mark = every[s], "chosen" if s == chosen else "usual" if s == usual else ""
        shown = [number(one["score"], 4), interval(one["ci95"], 4), signed(one["gain"]), f"{one['share']:.0%}"]
        rows.append([*map(str, one["values"].values()), mark, *shown])
    names = len(every[0]["values"]) + 1
    words = f"{len(every)} settings by {title(result['by'])} ({_KINDS[result['kind']]}), {result['n_cases']} cases"
    table = Table(heads=heads, rows=rows, names=names, title=f"{words} of split {result['split']}")
    low, high = result["gain_ci95"]
    notes = [f"gain over the usual setting {signed(result['gain'])}"]
    if low is not None:  # without an interval, a correction is noise
        notes = [
            f"{notes[0]}, less {signed(result['optimism'])} from choosing: "
            f"corrected {signed(result['corrected_gain'])} {interval(result['gain_ci95'])}",
            f"{title(result['by'])} of the chosen setting, corrected for choosing: {number(result['score'])} "
            f"{interval(result['score_ci95'])}",
        ]
    if chosen == usual:
        notes.append("The usual setting is the best of them." + (" Too few cases for an interval." * (low is None)))
    elif low is None:
        notes.append("Too few cases for an interval: whether the chosen setting is better is unknown.")
    elif low <= 0 <= high:
        notes.append("These cases can't tell the chosen setting from the usual one.")
    return Shown(tables=[table], charts=_tuning_chart(result), notes=notes, objections=_TUNING_OBJECTIONS)


def _tuning_chart(result: Mapping[str, Any]) -> list[tuple[str, Chart]]:
    """Draw the score along the key with most numbers, with the other keys as chosen."""
    every, chosen = result["settings"], result["settings"][result["chosen"]]["values"]
    places = {key: [_number(one["values"][key]) for one in every] for key in chosen}
    key = max(places, key=lambda name: len({*places[name]} - {None}))
    alike = [one for one in every if one["values"] | {key: ""} == chosen | {key: ""}]
    numbered = [(_number(one["values"][key]), one) for one in alike if isinstance(one["score"], float)]
    held = sorted(((at, one) for at, one in numbered if at is not None), key=lambda pair: pair[0])
    at = _number(chosen[key])
    if len(held) < 2 or at is None:
        return []
    points = [(place, one["score"]) for place, one in held]
    band = [(place, *one["ci95"]) for place, one in held if all(isinstance(end, float) for end in one["ci95"])]
    curve = Curve(name="", points=points, dots=points, band=band)
    chart = Chart(curves=[curve], x_label=key, y_label=title(result["by"]), vertical={"chosen": at})
    return [(f"{title(result['by'])} by {key}, the other keys as chosen. The band is the 95 % interval.", chart)]


def _number(text: str) -> float | None:
    with suppress(ValueError):
        return float(text)
    return None
