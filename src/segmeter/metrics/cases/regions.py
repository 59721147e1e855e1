"""Rows -> the margins of classes and of groups of classes, each group scored as one class."""

from collections.abc import Mapping, Sequence

import numpy as np

from segmeter.classes import ClassSpec
from segmeter.metrics.cases.table import CaseRow, in_groups, stack_totals
from segmeter.metrics.pixels.overlap import ClassTotals


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
    if all(len(held) == 1 for held in members):
        chosen = [held[0] for held in members]
        every = stack_totals(rows, spec)
        return ClassTotals(
            tp=every.tp[:, chosen],
            target=every.target[:, chosen],
            predicted=every.predicted[:, chosen],
            total=every.total[:, chosen],
        )
    parts = []
    for group in in_groups(rows):
        counts = np.stack([row.counts for row in group])
        tp = np.stack([counts[:, held][:, :, held].sum(axis=(1, 2)) for held in members], axis=1)
        target = np.stack([counts[:, held].sum(axis=(1, 2)) for held in members], axis=1)
        predicted = np.stack([counts[:, :, held].sum(axis=(1, 2)) for held in members], axis=1)
        total = np.broadcast_to(counts.sum(axis=(1, 2))[:, None], tp.shape)
        parts.append(ClassTotals(tp=tp, target=target, predicted=predicted, total=total).columns())
    return ClassTotals.from_columns(np.concatenate(parts))


def class_regions(spec: ClassSpec, groups: Mapping[str, Sequence[str]]) -> dict[str, list[int]]:
    """Every class, then the groups, by name; `check_metrics` refuses a group with the name of a class."""
    return {name: [k] for k, name in enumerate(spec.names)} | {
        name: [spec.names.index(one) for one in members] for name, members in groups.items()
    }
