"""Rows -> arrays of all cases, in one pass: stored rows are decoded anew each time that they are read."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from segmeter.classes import ClassSpec
from segmeter.metrics.arrays import FloatArray, divide
from segmeter.metrics.cases.table import CaseRow, MeasureColumn
from segmeter.metrics.cases.typed import class_statuses
from segmeter.metrics.config.scores import is_number
from segmeter.metrics.pixels.overlap import class_totals, headline_scores, score_totals
from segmeter.report import figures
from segmeter.report.data.cells import CellLists

HEADLINE = "headline"
NOT_CHANGED = -1  # pixels of a step that a case has no number of
NOT_COUNTED = -1  # objects

_MOST_ROWS = 4096  # laid out at a time
_MOST_COUNTS = 4_000_000  # and numbers of their matrices

_NUMBERS = {"instances": "", "sizes": "object_", "events": "objects_"}  # sums and metrics begin with

_Name = TypeVar("_Name", bound=Hashable)
_Values = Mapping[_Name, NDArray[Any]]


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """What is known of N cases of K classes, in the order of the rows.

    Parameters
    ----------
    case_ids, sizes
        Name and shape of each; a shape is (H, W), or (D, H, W) of a volume.
    scores : (N,), float64
        "headline", the aggregates, and "loss" where any case has one, be it undefined.
    by_class : (N, K), float64
        "iou", "dice", "precision" and "recall".
    support : (N, K), int64
        Pixels of each class in the target.
    statuses : (N, K), int8
        Index into `STATUSES`.
    groups : (N,), float64
        IoU of each group of classes.
    invalid : (N,), int64
        Pixels predicted as no class, or None where these are not counted.
    changed : (N,), int64
        By post-processing step, `NOT_CHANGED` where a case has none.
    extra : (N,), float64
        Further scores by name.
    measured : (N,), float64
        By metric and region.
    numbers : (N,), float64
        Numbers of objects that the data set's add up, by metric and region, `NOT_COUNTED` where a case has none.
    """

    case_ids: list[str]
    sizes: list[tuple[int, ...]]
    scores: _Values[str]
    by_class: _Values[str]
    support: NDArray[np.int64]
    statuses: NDArray[np.int8]
    groups: _Values[str]
    invalid: NDArray[np.int64] | None
    changed: _Values[str]
    extra: _Values[str]
    measured: _Values[tuple[str, str]]
    numbers: _Values[tuple[str, str]]

    def headlines(self) -> dict[str, float | None]:
        """The headline by case id, None where undefined."""
        scores = zip(self.case_ids, self.scores[HEADLINE].tolist(), strict=True)
        return {case_id: None if math.isnan(value) else value for case_id, value in scores}


def gather(
    rows: Sequence[CaseRow], spec: ClassSpec, summary: Mapping[str, Any], *, cells: CellLists | None = None
) -> Gathered:
    """Read each row once.

    Parameters
    ----------
    rows
        At least one.
    spec
        The classes.
    summary
        Of metrics.json: over which classes means run, and the groups of classes.
    cells
        Is given the counts of all cases, if it is not None.
    """
    step = max(1, min(_MOST_ROWS, _MOST_COUNTS // math.prod(spec.counts_shape)))
    sizes: dict[tuple[int, ...], tuple[int, ...]] = {}  # each shape is kept once
    parts = []
    for start in range(0, len(rows), step):
        group = list(rows[start : start + step])
        counts = np.stack([row.counts for row in group])
        if cells is not None:
            cells.add(counts)
        parts.append(_gather_group(group, counts, spec, summary))
        shapes = parts[-1].sizes
        shapes[:] = [sizes.setdefault(shape, shape) for shape in shapes]
    return _join(parts)


def _gather_group(
    rows: Sequence[CaseRow], counts: NDArray[np.int64], spec: ClassSpec, summary: Mapping[str, Any]
) -> Gathered:
    counted = [spec.names.index(name) for name in summary.get("mean_classes", spec.names)]
    totals = class_totals(counts, task=spec.task, count_invalid=spec.count_invalid)
    scores = score_totals(totals, task=spec.task, classes=counted)
    aggregates = {key: getattr(scores, key) for key in figures.AGGREGATES}
    losses = _columns([{} if row.loss is None else {"loss": row.loss} for row in rows], np.nan)
    measured = [{column.key[:2]: column.value for column in row.measured if not column.summed} for row in rows]
    numbers = [
        {(metric, column.region): column.value for column in row.measured if (metric := _number_of(column))}
        for row in rows
    ]
    return Gathered(
        case_ids=[row.case_id for row in rows],
        sizes=[row.shape for row in rows],
        scores={HEADLINE: headline_scores(scores, spec)} | aggregates | losses,
        by_class={key: getattr(scores, key) for key in figures.SCORES},
        support=totals.target,
        statuses=class_statuses(totals).astype(np.int8),
        groups=_score_groups(counts, spec, summary),
        invalid=counts[..., -1].sum(axis=-1) if spec.count_invalid else None,
        changed=_columns([row.changed_pixels for row in rows], NOT_CHANGED),
        extra=_columns([row.extra for row in rows], np.nan),
        measured=_columns(measured, np.nan),
        numbers=_columns(numbers, NOT_COUNTED),
    )


def _number_of(column: MeasureColumn) -> str:
    """The number of objects that a sum is of a case, "" if it is something else."""
    return _number_of_sum(column.metric) if column.summed else ""


@cache
def _number_of_sum(name: str) -> str:
    kind, _, rest = name.partition("_")
    metric = f"{_NUMBERS[kind]}{rest}" if kind in _NUMBERS else name
    return metric if is_number(metric) else ""


def _score_groups(counts: NDArray[np.int64], spec: ClassSpec, summary: Mapping[str, Any]) -> dict[str, FloatArray]:
    """IoU of each group of classes that was scored as one region."""
    found = {}
    for name, entry in (summary.get("per_group") or {}).items():
        held = [spec.names.index(member) for member in entry["classes"]]
        both = counts[:, held][:, :, held].sum(axis=(1, 2))
        either = counts[:, held].sum(axis=(1, 2)) + counts[:, :, held].sum(axis=(1, 2)) - both
        found[name] = divide(both, either)
    return found


def _columns(found: Sequence[Mapping[_Name, float]], missing: float) -> dict[_Name, NDArray[Any]]:
    """Values of cases by name -> a column per name."""
    names = dict.fromkeys(name for one in found for name in one)
    return {name: np.array([one.get(name, missing) for one in found]) for name in names}


def _join(parts: Sequence[Gathered]) -> Gathered:
    sizes = [len(part.case_ids) for part in parts]

    def values(tables: Sequence[_Values[_Name]], missing: float = np.nan) -> _Values[_Name]:
        names = dict.fromkeys(name for table in tables for name in table)
        filled = [np.full(size, missing) for size in sizes] if any(len(table) < len(names) for table in tables) else []
        return {
            name: np.concatenate([table[name] if name in table else filled[i] for i, table in enumerate(tables)])
            for name in names
        }

    invalid = [part.invalid for part in parts if part.invalid is not None]
    return Gathered(
        case_ids=[name for part in parts for name in part.case_ids],
        sizes=[shape for part in parts for shape in part.sizes],
        scores=values([part.scores for part in parts]),
        by_class=values([part.by_class for part in parts]),
        support=np.concatenate([part.support for part in parts]),
        statuses=np.concatenate([part.statuses for part in parts]),
        groups=values([part.groups for part in parts]),
        invalid=np.concatenate(invalid) if invalid else None,
        changed=values([part.changed for part in parts], NOT_CHANGED),
        extra=values([part.extra for part in parts]),
        measured=values([part.measured for part in parts]),
        numbers=values([part.numbers for part in parts], NOT_COUNTED),
    )
