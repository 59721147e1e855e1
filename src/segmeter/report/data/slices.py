"""The slices of a run's summary -> columns that say which of them each case is in."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from segmeter.classes import ClassSpec
from segmeter.errors import SegmeterError
from segmeter.metrics.cases.table import CaseRow, as_table
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.summary.slice_labels import hash_labels, order_labels, slice_labels
from segmeter.report.data.columns import Column


def slice_key(by: str) -> str:
    """The key of the column of the slices by one fact."""
    return f"slice/{by}"


def slice_columns(
    rows: Sequence[CaseRow],
    spec: ClassSpec,
    hashes: Mapping[str, str | None],
    *,
    table: str | None,
    groups: Mapping[str, Sequence[str]],
) -> tuple[list[Column], list[str]]:
    """Name the slice of each case, as it was when the run was summarised.

    Parameters
    ----------
    hashes
        Of the summary: fact to the hash of its labels (see `hash_labels`), or None where the run has recorded none.
    table
        Where the facts are from, or None.
    groups
        Classes of each region that the slices may be by.

    Returns
    -------
    list of Column
        One per fact.
    list of str
        The facts without a column: their table has gone or no longer gives each slice the same cases, or their hash is
        None.
    """
    columns, lost = [], []
    case_ids = as_table(rows).case_ids
    for name, known in hashes.items():
        labels: list[str] | None = None
        with suppress(SegmeterError):
            config = MetricsConfig(
                slices=table, slice_by=(name,), groups={key: tuple(group) for key, group in groups.items()}
            )
            labels = slice_labels(rows, spec, config)[name]
        if labels is None or hash_labels(case_ids, labels) != known:
            lost.append(name)
            continue
        columns.append(
            Column(
                key=slice_key(name),
                label=name,
                values=labels,
                kind="choice",
                group="slices",
                order=tuple(order_labels(labels)),
            )
        )
    return columns, lost
