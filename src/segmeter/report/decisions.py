"""Shows the results of decisions (`segmeter plan`, `tune`, `agree`, `suspects`): tables, charts, and their limits.

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
_SPARE = {"10 more": 3, "now": 2, "from": 1}  # These columns of a plan give way where there is too little room.
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
        The leading tables, and further ones that only the page has, folded.
    rest
        Names the rows of the last leading table and where all of them are; the terminal prints only the first ones.
    verdicts, notes, objections
        Lines: the answer in words, explanations of the tables, and the objections of a statistician.
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
    rows = result["rows"]
    units = "clusters" if result["cluster"] else "cases"
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
            subgroup, needed = row["slice"], row[aim]
            label = f"{subgroup['by']}={subgroup['value']}" if subgroup else "all"
            line = [title(row["score"]), _KINDS[row["kind"]], label]
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
    """Say why some scores have no answer, and how many more cases clusters need."""
    notes = list[str]()
    for row in rows:
        subgroup = f" in {row['slice']['value']}" if row["slice"] else ""
        score = f"{title(row['score'])} ({_KINDS[row['kind']]}){subgroup}"
        if row["cannot_tell"]:
            again = f" Ask again with about {row['ask_again']:,} {units}." if row["ask_again"] else ""
            notes.append(f"{score}: this pilot cannot tell: {row['cannot_tell']}.{again}")
        elif None in (needed["units"] for needed in (row["width"], row["power"]) if needed):
            notes.append(f"{score}: 10 million {units} do not reach this aim. Ask for a larger width or difference.")
        elif row["design_effect"] is not None:
            notes.append(f"{score}: design effect {row['design_effect']:.2f} ({units} need as many times the cases)")
    if any(row["n_units"] is None for row in rows):
        notes.append("The standard deviation counts as exact; cases=N, which it is from, gives an interval.")
    return notes


def _plan_charts(
    rows: Sequence[Mapping[str, Any]], aim: str, result: Mapping[str, Any], units: str
) -> list[tuple[str, Chart]]:
    """Draw how the first score's interval or power depends on the units, over the data set and as the mean of cases."""
    drawn = [row for row in rows if row["score"] == rows[0]["score"] and row["slice"] is None and row[aim] is not None]
    curves, marks = list[Curve](), dict[str, float]()
    for row, colour in zip(drawn, COLOURS[0::2], strict=False):
        band = [(p["units"], *p["width_ci95"]) for p in row["curve"] if aim == "width" and p["width_ci95"]]
        points = [(p["units"], p[aim]) for p in row["curve"]]
        dots = [(p["units"], p[f"drawn_{aim}"]) for p in row["curve"] if p[f"drawn_{aim}"] is not None]
        curves.append(Curve(name=_KINDS[row["kind"]], points=points, dots=dots, band=band, colour=colour))
        if row[aim]["units"]:
            marks[f"{row[aim]['units']:,}"] = row[aim]["units"]
    if not curves:
        return []
    asked = result["width"] if aim == "width" else result["power"]
    highest = max(p[1] for curve in curves for p in curve.points[2:])
    label, top = ("width of the interval", min(highest, 6 * asked)) if aim == "width" else ("power", 1)
    chart = Chart(
        curves=curves,
        x_label=units,
        y_label=label,
        log_x=True,
        vertical=marks,
        horizontal={"asked": asked},
        y_range=(0, top),
    )
    caption = (
        "squares are data sets that were drawn from the pilot, lines follow the root law. The line of the data set "
        "allows for large cases that a pilot seldom holds, and may lie above its squares."
    )
    return [(f"{title(rows[0]['score'])}: {caption}", chart)]


def show_tuned(result: Mapping[str, Any]) -> Shown:
    """Lay out the content of tune.json."""
    settings, chosen, usual = result["settings"], result["chosen"], result["usual"]
    sign = -1 if result["better"] == "lower" else 1

    def order(index: int) -> float:
        score = settings[index]["score"]
        return math.inf if score is None else -sign * float(score)  # "inf" is a number here; undefined comes last

    ranked = sorted(range(len(settings)), key=order)
    heads = [*settings[0]["values"], "", title(result["by"]), "95 %", "gain", "chosen in"]
    rows = []
    for index in dict.fromkeys([chosen, *ranked[:MOST_ROWS], usual]):
        setting = settings[index]
        mark = "chosen" if index == chosen else "usual" if index == usual else ""
        scores = [number(setting["score"], 4), interval(setting["ci95"], 4), signed(setting["gain"])]
        rows.append([*map(str, setting["values"].values()), mark, *scores, f"{setting['share']:.0%}"])
    names = len(settings[0]["values"]) + 1
    words = f"{len(settings)} settings by {title(result['by'])} ({_KINDS[result['kind']]}), {result['n_cases']} cases"
    table = Table(heads=heads, rows=rows, names=names, title=f"{words} of split {result['split']}")
    low, high = result["gain_ci95"]
    notes = [f"gain over the usual setting {signed(result['gain'])}"]
    if low is not None:  # without an interval, the correction would be noise
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
    """Draw the score along the key with the most numbers, with the other keys as chosen."""
    settings = result["settings"]
    chosen = settings[result["chosen"]]["values"]
    numbers = {key: [_number(setting["values"][key]) for setting in settings] for key in chosen}
    key = max(numbers, key=lambda name: len({*numbers[name]} - {None}))
    varied = [setting for setting in settings if setting["values"] | {key: ""} == chosen | {key: ""}]
    scored = [(_number(setting["values"][key]), setting) for setting in varied if isinstance(setting["score"], float)]
    pairs = sorted(((x, setting) for x, setting in scored if x is not None), key=lambda pair: pair[0])
    chosen_x = _number(chosen[key])
    if len(pairs) < 2 or chosen_x is None:
        return []
    points = [(x, setting["score"]) for x, setting in pairs]
    band = [(x, *setting["ci95"]) for x, setting in pairs if all(isinstance(end, float) for end in setting["ci95"])]
    curve = Curve(name="", points=points, dots=points, band=band)
    chart = Chart(curves=[curve], x_label=key, y_label=title(result["by"]), vertical={"chosen": chosen_x})
    return [(f"{title(result['by'])} by {key}, the other keys as chosen. The band is the 95 % interval.", chart)]


def _number(text: str) -> float | None:
    with suppress(ValueError):
        return float(text)
    return None
