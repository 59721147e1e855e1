"""Columns of a table as NumPy arrays: totals of classes and regions, losses, and all that runs are compared by."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.classes import ClassSpec
from segmeter.metrics.arrays import FloatArray
from segmeter.metrics.cases.columns import ColumnKey
from segmeter.metrics.cases.table import CaseRow, Edges, as_table
from segmeter.metrics.pixels.overlap import ClassTotals, class_totals

STATUSES = ("ok", "both_empty", "prediction_empty", "target_empty")


class Margins:
    """The margins of R regions in N cases, in 32 bits where they fit.

    The regions share a column of totals until there is a case in which these differ, as there may be of multilabel.

    Parameters
    ----------
    count
        N.
    regions
        R.
    """

    def __init__(self, count: int, regions: int) -> None:
        self.count = count
        self.regions = regions
        self._own: list[NDArray[np.integer]] = [np.zeros(count, np.int32) for _ in range(3 * regions)]
        self._totals: list[NDArray[np.integer]] = [np.zeros(count, np.int32)]

    def put(self, part: slice, margins: ClassTotals) -> None:
        """Fill in some cases."""
        own, totals = [*margins.tp.T, *margins.target.T, *margins.predicted.T], margins.total.T
        if len(self._totals) == 1 and (totals != totals[:1]).any():
            self._totals = [self._totals[0].copy() for _ in totals]
        for held, found in ((self._own, own), (self._totals, totals[: len(self._totals)])):
            for place, values in enumerate(found):
                if np.abs(values).max(initial=0) > np.iinfo(held[place].dtype).max:
                    held[place] = held[place].astype(np.int64)
                held[place][part] = values

    @property
    def columns(self) -> list[NDArray[np.integer]]:
        """Those of `ClassTotals.columns`: 4 R arrays (N,), of which the totals may be one array."""
        return [*self._own, *(self._totals * self.regions)[: self.regions]]

    @property
    def target(self) -> list[NDArray[np.integer]]:
        """Pixels of each region in the targets, (N,) each."""
        return self._own[self.regions : 2 * self.regions]

    def totals(self, region: int) -> ClassTotals:
        """Margins (N,) of one region, int64."""
        tp, target, predicted, total = (one.astype(np.int64) for one in self.columns[region :: self.regions])
        return ClassTotals(tp=tp, target=target, predicted=predicted, total=total)


@dataclass(frozen=True, kw_only=True)
class RunColumns:
    """All cases of a run, some hundred bytes each; parameters that `CaseBlock` has are as there, of all N cases.

    Parameters
    ----------
    margins
        Of R regions.
    spacings
        The distinct pairs of spacing and unit.
    spacing : (N,)
        Which of `spacings` each case has.
    counts
        Of all cases together.
    loss : (N,)
        NaN where there is none.
    loss_terms : (N, P, 2) or None
        The sum and the denominator of each part of the loss; None where a case has none, or another number of them.
    """

    case_ids: list[str]
    margins: Margins
    shapes: NDArray[np.int64]
    hashes: NDArray[np.int64]
    spacings: list[Edges]
    spacing: NDArray[np.int32]
    measured: dict[ColumnKey, FloatArray]
    counts: NDArray[np.int64]
    loss: FloatArray
    loss_terms: FloatArray | None


def lay_out_run(rows: Sequence[CaseRow], spec: ClassSpec, regions: Mapping[str, Sequence[int]]) -> RunColumns:
    """Lay out one case or more, in their order, with the margins of regions, each a class or several."""
    count, members = len(rows), list(regions.values())
    margins = Margins(count, len(members))
    shapes, hashes = np.empty((count, 3), np.int64), np.empty((count, 2), np.int64)
    spacing, places = np.empty(count, np.int32), dict[Edges, int]()
    total, loss, terms = np.zeros(spec.counts_shape, np.int64), np.empty(count), list[FloatArray | None]()
    case_ids, measured, done = list[str](), dict[ColumnKey, FloatArray](), 0
    for block in as_table(rows).blocks():
        part = slice(done, done := done + len(block.case_ids))
        case_ids += block.case_ids
        shapes[part], hashes[part] = block.shapes, block.hashes
        spacing[part] = [places.setdefault(edges, len(places)) for edges in block.edges]
        margins.put(part, region_margins(block.counts, spec, members))
        _put_measured(measured, block.measured, part, count)
        total += block.counts.sum(axis=0)
        loss[part] = block.loss
        terms.append(np.array(block.loss_terms) if len({len(one) for one in block.loss_terms}) == 1 else None)
    known = [each for each in terms if each is not None and each.size]
    same = len(known) == len(terms) and len({each.shape[1] for each in known}) == 1
    return RunColumns(
        case_ids=case_ids,
        margins=margins,
        shapes=shapes,
        hashes=hashes,
        spacings=list(places),
        spacing=spacing,
        measured=measured,
        counts=total,
        loss=loss,
        loss_terms=np.concatenate(known) if same else None,
    )


def measured_columns(rows: Sequence[CaseRow]) -> dict[ColumnKey, FloatArray]:
    """Columns (N,) of the measures by their keys; NaN where a case has none."""
    measured, done = dict[ColumnKey, FloatArray](), 0
    for block in as_table(rows).blocks() if rows else ():
        part = slice(done, done := done + len(block.case_ids))
        _put_measured(measured, block.measured, part, len(rows))
    return measured


def _put_measured(
    measured: dict[ColumnKey, FloatArray], found: Mapping[ColumnKey, FloatArray], part: slice, count: int
) -> None:
    for key, values in found.items():
        if key not in measured:
            measured[key] = np.full(count, np.nan)
        measured[key][part] = values


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
    table = as_table(rows)
    for part in table.parts():
        margins = region_margins(table.counts(part), spec, members)
        columns[done : (done := done + len(part))] = margins.columns()
    return ClassTotals.from_columns(columns)


def region_margins(counts: NDArray[np.int64], spec: ClassSpec, members: Sequence[Sequence[int]]) -> ClassTotals:
    """Margins (N, R) of the counts (N, ...) of some cases; `members` are the classes of each region."""
    if all(len(held) == 1 for held in members):
        every = class_totals(counts, task=spec.task, count_invalid=spec.count_invalid)
        chosen = [held[0] for held in members]
        names = ("tp", "target", "predicted", "total")
        return ClassTotals(**{name: getattr(every, name)[:, chosen] for name in names})
    tp = np.stack([counts[:, held][:, :, held].sum(axis=(1, 2)) for held in members], axis=1)
    target = np.stack([counts[:, held].sum(axis=(1, 2)) for held in members], axis=1)
    predicted = np.stack([counts[:, :, held].sum(axis=(1, 2)) for held in members], axis=1)
    total = np.broadcast_to(counts.sum(axis=(1, 2))[:, None], tp.shape)
    return ClassTotals(tp=tp, target=target, predicted=predicted, total=total)


def class_regions(spec: ClassSpec, groups: Mapping[str, Sequence[str]]) -> dict[str, list[int]]:
    """Every class, then the groups, by name; `check_metrics` refuses a group with the name of a class."""
    return {name: [k] for k, name in enumerate(spec.names)} | {
        name: [spec.names.index(one) for one in members] for name, members in groups.items()
    }


def stack_totals(rows: Sequence[CaseRow], spec: ClassSpec) -> ClassTotals:
    """Margins (N, K), int64, of all rows; only some thousands of confusion matrices are copied at a time."""
    return region_totals(rows, spec, class_regions(spec, {}))


def sum_counts(rows: Sequence[CaseRow], spec: ClassSpec) -> NDArray[np.int64]:
    """Counts of all cases together."""
    total = np.zeros(spec.counts_shape, np.int64)
    table = as_table(rows)
    for part in table.parts():
        total += table.counts(part).sum(axis=0)
    return total


def divide_terms(terms: NDArray[np.float64]) -> float:
    """The loss of cases together, from the sums and denominators (N, P, 2) of its P parts.

    A part whose denominators are 0 does not add up, as it is divided already, and is averaged over the cases.

    Examples
    --------
    Two cases of 1 and 3 pixels, with losses of 2 and 1 per pixel:

    >>> divide_terms(np.array([[[2.0, 1.0]], [[3.0, 3.0]]]))
    1.25
    """
    sums, denominators = terms.sum(axis=0).T
    return float((sums / np.where(denominators > 0, denominators, len(terms))).sum())


def class_statuses(margins: ClassTotals) -> NDArray[np.int64]:
    """Index into `STATUSES` per case and class."""
    no_target, no_prediction = margins.target == 0, margins.predicted == 0
    chosen: NDArray[Any] = np.select([no_target & no_prediction, no_prediction, no_target], [1, 2, 3], 0)
    return chosen
