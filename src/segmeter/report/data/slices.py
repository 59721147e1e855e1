"""The slices of a run's summary -> columns that say which of them each case is in."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from segmeter.classes import ClassSpec
from segmeter.errors import SegmeterError
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.cases.typed import class_regions, lay_out_run
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
    columns, lost = list[Column](), list[str]()
    if not hashes:
        return columns, lost
    config = MetricsConfig(groups={key: tuple(group) for key, group in groups.items()})
    run = lay_out_run(rows, spec, class_regions(spec, config.groups))
    for name, known in hashes.items():
        labels: list[str] | None = None
        with suppress(SegmeterError):
            labels = slice_labels(run, spec, config.replace(slices=table, slice_by=(name,)))[name]
        if labels is None or hash_labels(run.case_ids, labels) != known:
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
