"""Lays out the tables of a finished evaluation, for terminals, notebooks and its page."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import IO, Any

from segmeter.metrics.config.scores import MEAN
from segmeter.report import figures
from segmeter.report.figures import interval, number, probability, quantity, signed
from segmeter.report.tables import MOST_ROWS, PAGE, Column, Table, html_of, print_tables

MOST_CLASSES = 20  # Of more classes, only the worst are shown.
_FILES = "in metrics.json and in the report"
_ENDS = partial(interval, digits=3)
_SHORT = partial(number, digits=3)
_ANY_ENDS = partial(interval, digits=3, form=quantity)

_SCORES = (
    Column("score", "name"),
    Column("data set", "dataset", number),
    Column("95 % interval", "dataset_ci95", _ENDS),
    Column("mean of cases (sd)", "means"),
    Column("95 % interval", "mean_ci95", _ENDS),
    Column("cases", "cases"),
)
_CLASSES = (
    Column("class", "name"),
    Column("IoU", "iou", _SHORT),
    Column("95 %", "ci95", _ENDS, spare=PAGE),
    Column("mean of cases (sd)", "mean_iou"),
    Column("Dice", "dice", _SHORT),
    Column("mean of cases (sd)", "mean_dice"),
    Column("precision", "precision", _SHORT),
    Column("recall", "recall", _SHORT),
    Column("share", "share", lambda share: "" if share is None else f"{100 * share:.1f}%", 1),
    Column("pixels", "support", lambda pixels: f"{pixels or 0:,}", spare=PAGE),
)
GROUPS = (Column("group", "name"), *_CLASSES[1:])
MEASURES = (
    Column("measure", "label"),
    Column("class", "region"),
    Column("data set", "dataset", quantity),
    Column("95 %", "dataset_ci95", _ANY_ENDS),
    Column("mean of cases", "mean", quantity),
    Column("95 %", "ci95", _ANY_ENDS, spare=PAGE),
    Column("median", "median", quantity, 1),
    Column("cases", "n_used"),
    Column("failed", "n_penalised"),
    Column("undefined", "n_undefined", spare=PAGE),
)
_SLICES = (
    Column("slices by", "by"),
    Column("slice", "label"),
    Column("cases", "n"),
    Column("value", "value", number),
    Column("95 % interval", "ci95", _ENDS),
    Column("difference to the rest", "difference", signed),
    Column("95 %", "difference_ci95", _ENDS, spare=PAGE),
    Column("p (Holm)", "p_holm", probability),
)
CALIBRATION = (  # The calibration over all classes, and of each class.
    (Column("probabilities", "name"), Column("", "value", number)),
    (
        Column("class", "name"),
        Column("ECE", "ece", number),
        Column("MCE", "mce", number),
        Column("average precision", "average_precision", number),
        Column("best F1", "best_f1", number),
        Column("at threshold", "best_threshold", number),
    ),
)


def print_summary(summary: Mapping[str, Any], *, file: IO[str] | None = None) -> None:
    """Print the leading scores, the classes, further measures, slices and conventions, with intervals.

    Parameters
    ----------
    summary
        The content of metrics.json, schema 1.
    file
        Where to write; None is the standard output.
    """
    print_tables(summary_tables(summary), small_print(summary), file=file)


def render_summary(summary: Mapping[str, Any]) -> str:
    """Render the tables of metrics.json for notebooks, as HTML without script."""
    return html_of(summary_tables(summary), small_print(summary))


def small_print(summary: Mapping[str, Any]) -> list[str]:
    """Return the lines below the tables."""
    _, rows = figures.conventions(summary)
    differing = [f"{row['name']} differs from ours: {row['differs']}" for row in rows if row["differs"]]
    refused = [row["refused"] for row in rows if row["refused"]]
    return [*differing, *refused, *figures.on_lines(figures.notes(summary))]


def summary_tables(summary: Mapping[str, Any]) -> list[Table]:
    """Lay out the tables of a summary, each at most 80 columns wide for ordinary names.

    If there are many classes, only the worst are shown; of many measures, means rather than single classes. The files
    have the rest.
    """
    rows = figures.aggregates(summary)
    for row in rows:
        total = (row["n_used"] or 0) + (row["n_undefined"] or 0)
        used = f"{row['n_used']} of {total}" if row["n_undefined"] else f"{total or ''}"
        row |= {"means": figures.mean_of_cases(row, 4), "cases": used}
    regions = [*figures.classes(summary), *figures.classes(summary, groups=True)]
    if many := len(regions) > MOST_CLASSES:
        regions.sort(key=lambda row: (row["iou"] is None, row["iou"]))
    classes = Table.of(_CLASSES, regions, strong=())
    measures = figures.measures(summary)
    most = MOST_ROWS
    if len(measures) > most:
        leading_metric = figures.headline(summary).partition("/")[0]
        averaged = {row["metric"] for row in measures if row["region"] == MEAN}
        for row in measures:
            row["spare"] = row["region"] != MEAN and row["metric"] in averaged
        measures.sort(key=lambda row: (row["spare"], row["metric"] != leading_metric))
        most = min(most, sum(not row["spare"] for row in measures))
    tables = [Table.of(MEASURES, measures, names=2, strong=()).first(most, f"{_FILES}.")]
    tables.append(slice_table(summary, figures.slices(summary)))
    calibration = zip(CALIBRATION, figures.calibration(summary), strict=True)
    tables += [Table.of(columns, calibrated, strong=()) for columns, calibrated in calibration]
    tables.append(convention_table(summary))
    leading = [Table.of(_SCORES, rows), classes.first(MOST_ROWS, f"with higher IoU {_FILES}.") if many else classes]
    return [*leading, *(table for table in tables if table.rows)]


def slice_table(summary: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Table:
    """Lay out rows of `figures.slices`: the headline of each slice, with the worst in bold."""
    title = f"{figures.title(summary['slices']['headline'])} by slice" if rows else ""
    strong = [i for i, row in enumerate(rows) if row["worst"]]
    return Table.of(_SLICES, rows, names=2, strong=strong, title=title)


def convention_table(summary: Mapping[str, Any]) -> Table:
    """Lay out the leading scores by the definitions of other tools."""
    names, conventions = figures.conventions(summary)
    scores = [Column(words, name, lambda value: "-" if value == "" else number(value)) for name, words in names.items()]
    rows = [dict.fromkeys(names, "") | row["figures"] | row for row in conventions]
    differs = Column("what differs from ours", "differs", spare=PAGE)
    return Table.of([Column("convention", "name"), *scores, differs], rows)
