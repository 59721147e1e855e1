"""The tables of a finished evaluation: what the terminal prints, and what a notebook shows."""

from collections.abc import Mapping, Sequence
from typing import IO, Any

from segmeter.metrics.config.scores import MEAN, is_number
from segmeter.report import figures
from segmeter.report.figures import interval, number, probability, signed
from segmeter.report.tables import MOST_ROWS, Printer, Table, html_of

MOST_CLASSES = 20  # rows of classes; of more, the worst
_FILES = "in metrics.json and in the report"


def print_summary(summary: Mapping[str, Any], *, file: IO[str] | None = None) -> None:
    """Print the leading scores, the classes, further measures, slices, conventions, and how sure the scores are.

    Parameters
    ----------
    summary
        The content of metrics.json, schema 1.
    file
        Where to; None is the standard output.
    """
    out = Printer(file)
    for table in summary_tables(summary):
        out.table(table)
    for line in small_print(summary):
        out.line(line)


def render_summary(summary: Mapping[str, Any]) -> str:
    """Render the tables of metrics.json for notebooks, as HTML without script."""
    return html_of(summary_tables(summary), small_print(summary))


def small_print(summary: Mapping[str, Any]) -> list[str]:
    """Lines that belong below the tables."""
    rows = figures.conventions(summary)
    differing = [f"{row['name']} differs from ours: {'; '.join(row['differs'])}" for row in rows if row["differs"]]
    return [*differing, *figures.refused(summary), "; ".join(figures.notes(summary))]


def summary_tables(summary: Mapping[str, Any]) -> list[Table]:
    """Lay out the tables of a summary, each at most 80 columns wide for ordinary names."""
    tables = [_scores(summary), _classes(summary)]
    if summary.get("measures"):
        tables.append(_measures(summary))
    if summary.get("slices"):
        tables.append(_slices(summary))
    if summary.get("calibration"):
        tables.append(_calibration(summary))
    if summary.get("conventions"):
        names = figures.headlines(summary)
        rows = [
            [row["name"], *(number(row["figures"][name]) if name in row["figures"] else "-" for name in names)]
            for row in figures.conventions(summary)
        ]
        tables.append(Table(heads=["convention", *names.values()], rows=rows))
    return tables


def _scores(summary: Mapping[str, Any]) -> Table:
    rows = []
    for row in figures.aggregates(summary):
        total = (row["n_used"] or 0) + (row["n_undefined"] or 0)
        used = "" if not total else f"{row['n_used']} of {total}" if row["n_undefined"] else f"{total}"
        cells = [row["name"], number(row["dataset"]), interval(row["dataset_ci95"], 3)]
        rows.append([*cells, figures.mean_of_cases(row, 4), interval(row["mean_ci95"], 3), used])
    heads = ["score", "data set", "95 % interval", "mean of cases (sd)", "95 % interval", "cases"]
    return Table(heads=heads, rows=rows)


def _classes(summary: Mapping[str, Any]) -> Table:
    """Scores of each class and group: over the data set, and as mean over cases with its standard deviation."""
    entries = {**summary.get("per_class", {}), **summary.get("per_group", {})}
    rows = []
    for row, name in zip([*figures.classes(summary), *figures.groups(summary)], entries, strict=True):
        cells = [row["name"]]
        for score in ("iou", "dice"):
            cells += [number(row[score], 3), figures.mean_of_cases(figures.score_row(summary, f"{score}/{name}"))]
        share = "" if row.get("share") is None else f"{100 * row['share']:.1f}%"
        cells += [number(row["precision"], 3), number(row["recall"], 3), share]
        rows.append((row["iou"], cells))
    if len(rows) > MOST_CLASSES:
        rows = sorted(rows, key=lambda pair: (pair[0] is None, pair[0]))
    heads = ["class", "IoU", "mean of cases (sd)", "Dice", "mean of cases (sd)", "precision", "recall", "share"]
    table = Table(heads=heads, rows=[cells for _, cells in rows], strong=())
    return table if len(rows) <= MOST_CLASSES else table.first(MOST_ROWS, f"with higher IoU {_FILES}.")


def shown_measures(summary: Mapping[str, Any]) -> tuple[list[dict[str, Any]], int]:
    """Rows of the measures that lead, and how many are left to the files.

    With more than ten rows, those of single classes give way to their means.
    """
    rows = figures.measures(summary)
    regions: dict[str, list[str]] = {}
    for row in rows:
        regions.setdefault(row["metric"], []).append(row["region"])
    if len(rows) <= MOST_ROWS:
        return rows, 0
    averaged = {metric for metric, found in regions.items() if MEAN in found}
    kept = [row for row in rows if row["region"] == MEAN or row["metric"] not in averaged]
    kept = sorted(kept, key=lambda row: not figures.headline(summary).startswith(f"{row['metric']}/"))
    return kept[:MOST_ROWS], len(rows) - len(kept[:MOST_ROWS])


def _measures(summary: Mapping[str, Any]) -> Table:
    (shown, left_out), units, rows = shown_measures(summary), summary.get("units", {}), []
    for row in shown:
        whole = row["dataset"] if row["whole"] else None
        of_set = "" if not row["whole"] else f"{whole:,.0f}" if _counts(row["metric"], whole) else number(whole, 3)
        name = figures.with_unit(figures.title(f"{row['metric']}/{row['region']}"), units.get(row["metric"]))
        cells = [name, of_set, interval(row["dataset_ci95"], 3)]
        if row["n_used"] is None:
            rows.append([*cells, "", "", "", ""])
            continue
        median = number(row["median"], 3)
        rows.append([*cells, number(row["mean"], 3), median, str(row["n_used"]), str(row["n_penalised"])])
    heads = ["measure", "data set", "95 % interval", "mean of cases", "median", "cases", "failed"]
    note = f"{left_out} more {_FILES}." if left_out else ""
    return Table(heads=heads, rows=rows, strong=(), note=note)


def _counts(metric: str, value: Any) -> bool:
    return is_number(metric) and isinstance(value, int | float)


def _slices(summary: Mapping[str, Any]) -> Table:
    """The headline of each slice; the worst is marked."""
    rows = []
    for row in figures.slices(summary):
        label = row["slice"] + (" (worst)" if row["worst"] else "")
        cells = [row["by"], label, str(row["n"]), number(row["value"]), interval(row["ci95"], 3)]
        rows.append([*cells, signed(row["difference"]), probability(row["p_holm"])])
    heads = ["slices by", "slice", "cases", "value", "95 % interval", "difference to the rest", "p (Holm)"]
    strong = [i for i, row in enumerate(figures.slices(summary)) if row["worst"]]
    return Table(
        heads=heads, rows=rows, names=2, strong=strong, title=f"{figures.title(summary['slices']['headline'])} by slice"
    )


def _calibration(summary: Mapping[str, Any]) -> Table:
    rows: list[Sequence[str]] = [
        [row["name"], number(row["value"]), "", "", ""] for row in figures.calibration(summary)
    ]
    for name, entry in summary["calibration"]["per_class"].items():
        keys = ("average_precision", "best_f1", "best_threshold")
        rows.append([name, "", *(number(entry[key]) for key in keys)])
    return Table(heads=["probabilities", "", "average precision", "best F1", "at threshold"], rows=rows, strong=())
