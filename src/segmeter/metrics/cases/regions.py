"""Rows -> the margins of classes and of groups of classes, each group scored as one class."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from segmeter.classes import ClassSpec
from segmeter.metrics.cases.table import CaseRow, in_groups
from segmeter.metrics.pixels.overlap import ClassTotals, class_totals


def region_totals(rows: Sequence[CaseRow], spec: ClassSpec, regions: Mapping[str, Sequence[int]]) -> ClassTotals:
    """Margins (N, R) of regions, each a class or several: exact, as a region's counts are sums of the matrix's cells.

    Parameters
    ----------
    rows
        N cases.
    spec
        The classes.
    regions
        Name of a region to the indices of its classes; of one class each for multilabel.
    """
    members = list(regions.values())
    columns, done = np.empty((len(rows), 4 * len(members)), np.int64), 0
    for group in in_groups(rows):
        margins = region_margins(np.stack([row.counts for row in group]), spec, members)
        columns[done : (done := done + len(group))] = margins.columns()
    return ClassTotals.from_columns(columns)


def region_margins(counts: NDArray[np.int64], spec: ClassSpec, members: Sequence[Sequence[int]]) -> ClassTotals:
    """Margins (N, R) of the counts (N, ...) of some cases; `members` are the classes of each region."""
    if all(len(held) == 1 for held in members):
        every = class_totals(counts, task=spec.task, count_invalid=spec.count_invalid)
        return _chosen(every, [held[0] for held in members])
    tp = np.stack([counts[:, held][:, :, held].sum(axis=(1, 2)) for held in members], axis=1)
    target = np.stack([counts[:, held].sum(axis=(1, 2)) for held in members], axis=1)
    predicted = np.stack([counts[:, :, held].sum(axis=(1, 2)) for held in members], axis=1)
    total = np.broadcast_to(counts.sum(axis=(1, 2))[:, None], tp.shape)
    return ClassTotals(tp=tp, target=target, predicted=predicted, total=total)


def _chosen(every: ClassTotals, classes: list[int]) -> ClassTotals:
    return ClassTotals(
        tp=every.tp[:, classes],
        target=every.target[:, classes],
        predicted=every.predicted[:, classes],
        total=every.total[:, classes],
    )


def class_regions(spec: ClassSpec, groups: Mapping[str, Sequence[str]]) -> dict[str, list[int]]:
    """Every class, then the groups, by name; `check_metrics` refuses a group with the name of a class."""
    return {name: [k] for k, name in enumerate(spec.names)} | {
        name: [spec.names.index(one) for one in members] for name, members in groups.items()
    }
