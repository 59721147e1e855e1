"""Turns columns of a table into NumPy arrays: totals of classes and regions, losses, and facts to compare runs by.

Runs can be compared if they have the same cases and targets and, for lengths, the same spacing.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from segmeter.checks import expected, shorten
from segmeter.classes import ClassSpec
from segmeter.errors import InputError
from segmeter.metrics.arrays import FloatArray, IntArray, Status
from segmeter.metrics.cases.table import (
    HASHES,
    LARGE,
    SCORE,
    TERMS,
    UNKNOWN,
    CaseRow,
    ColumnKey,
    Edges,
    as_table,
    decode_key,
    floats_of,
    read_edges,
    whole_numbers,
)
from segmeter.metrics.pixels.overlap import ClassTotals, class_totals

_LOG = logging.getLogger(__name__)
STATUSES: tuple[Status, ...] = get_args(Status)
_MOST = np.iinfo(np.int32).max
_SCORE_AGAIN = "Score them again against the same files, read in the same way."
_UNVERIFIED = (
    "compare: only the shapes and class totals of the references of %r were compared with those of %s, as one of the "
    "runs has no checksums of its references"
)


@dataclass(frozen=True, kw_only=True)
class RunColumns:
    """All N cases of a run, some hundred bytes each.

    Parameters
    ----------
    case_ids
        In the order of the rows.
    regions
        Every class, then the groups of classes; R names.
    margins : (N, R) each
        The totals of the regions, in 32 bits where they fit; `totals` widens them. Regions of one map share the memory
        of their total.
    shapes : (N, 3), int64
        Depth, height and width; the depth of an image is `UNKNOWN`.
    hashes : (N, 2), int64
        Checksums of the target and of its objects, or `UNKNOWN`.
    spacings
        The distinct pairs of spacing and unit.
    spacing : (N,)
        Which of `spacings` each case has.
    measured
        Columns (N,) of the measures by their keys; NaN where a case has none.
    counts
        Of all cases together.
    loss : (N,)
        NaN where there is none.
    loss_terms : (N, P, 2) or None
        The sum and the denominator of each part of the loss; None where a case has none, or another number of them.
    """

    case_ids: list[str]
    regions: list[str]
    margins: ClassTotals
    shapes: IntArray
    hashes: IntArray
    spacings: list[Edges]
    spacing: NDArray[np.int32]
    measured: dict[ColumnKey, FloatArray]
    counts: IntArray
    loss: FloatArray
    loss_terms: FloatArray | None

    def totals(self, regions: str | Sequence[str], cases: slice = slice(None)) -> ClassTotals:
        """Return the margins of some regions (n, R) in some cases, or of a single one (n,), int64."""
        index = self.regions.index
        places: Any = index(regions) if isinstance(regions, str) else [index(one) for one in regions]
        return self.margins.map(lambda part: part[cases, places].astype(np.int64, order="C"))


def lay_out_run(rows: Sequence[CaseRow], spec: ClassSpec, groups: Mapping[str, Sequence[str]]) -> RunColumns:
    """Lay out cases in their order, with the margins of every class and group of classes."""
    table, regions = as_table(rows), [*spec.names, *groups]  # `check_metrics` refuses a group with a class's name
    members = [[spec.names.index(one) for one in groups.get(name, (name,))] for name in regions]
    spacings, spacing = dict[Edges, int](), list[int]()
    total, margins, others = np.zeros(spec.counts_shape, np.int64), list[list[IntArray]](), list[pa.Table]()
    for part in table.parts():
        counts = table.counts(part).reshape(-1, *spec.counts_shape)
        total += counts.sum(axis=0)
        found = region_margins(counts, spec, members)
        sums = (*found[:3], found.total if spec.is_multilabel else found.total[:, :1])  # regions of one map share it
        margins.append(
            [np.ascontiguousarray(one.T, np.int32 if one.max(initial=0) <= _MOST else np.int64) for one in sums]
        )
        edges = map(read_edges, part["spacing"].to_pylist(), part["unit"].to_pylist())
        spacing += [spacings.setdefault(each, len(spacings)) for each in edges]
        others.append(part.select([name for name in part.column_names if name not in LARGE]))
    columns = pa.concat_tables(others, promote_options="default")
    keys = {name: decode_key(name.removeprefix(SCORE)) for name in columns.column_names if name.startswith(SCORE)}
    # one after the other, so that no more than one is in memory twice
    joined = [np.concatenate([parts.pop(0) for parts in margins], axis=1).T for _ in ClassTotals._fields]
    terms = [columns[name].combine_chunks() for name in TERMS]
    lengths = pc.unique(pc.list_value_length(terms[0])).to_pylist()
    loss_terms = None
    if len(lengths) == 1 and lengths[0]:
        loss_terms = np.stack([np.asarray(one.flatten()).reshape(-1, lengths[0]) for one in terms], axis=2)
    return RunColumns(
        case_ids=table.case_ids,
        regions=regions,
        margins=ClassTotals(*(np.broadcast_to(one, (len(one), len(regions))) for one in joined)),
        shapes=np.stack([whole_numbers(columns[name]) for name in ("depth", "height", "width")], axis=1),
        hashes=np.stack([whole_numbers(columns[name]) for name in HASHES], axis=1),
        spacings=list(spacings),
        spacing=np.array(spacing, np.int32),
        measured={key: floats_of(columns[name]) for name, key in keys.items() if key},
        counts=total,
        loss=floats_of(columns["loss"]),
        loss_terms=loss_terms,
    )


def region_margins(counts: NDArray[np.int64], spec: ClassSpec, members: Sequence[Sequence[int]]) -> ClassTotals:
    """Return the margins (N, R) of the counts (N, ...) of some cases; `members` are the classes of each region."""
    if all(len(held) == 1 for held in members):
        every = class_totals(counts, task=spec.task, count_invalid=spec.count_invalid)
        return every.map(lambda part: part[:, [held[0] for held in members]])
    tp = np.stack([counts[:, held][:, :, held].sum(axis=(1, 2)) for held in members], axis=1)
    target = np.stack([counts[:, held].sum(axis=(1, 2)) for held in members], axis=1)
    predicted = np.stack([counts[:, :, held].sum(axis=(1, 2)) for held in members], axis=1)
    total = np.broadcast_to(counts.sum(axis=(1, 2))[:, None], tp.shape)
    return ClassTotals(tp, target, predicted, total)


def divide_terms(terms: NDArray[np.float64]) -> float:
    """Compute the loss of all cases together from the sums and denominators (N, P, 2) of its P parts.

    A part whose denominators are 0 is a mean already, and is averaged over the cases.

    Examples
    --------
    Two cases of 1 and 3 pixels, with losses of 2 and 1 per pixel:

    >>> divide_terms(np.array([[[2.0, 1.0]], [[3.0, 3.0]]]))
    1.25
    """
    sums, denominators = terms.sum(axis=0).T
    return float((sums / np.where(denominators > 0, denominators, len(terms))).sum())


def class_statuses(margins: ClassTotals) -> NDArray[np.int64]:
    """Return an index into `STATUSES` per case and class."""
    no_target, no_prediction = margins.target == 0, margins.predicted == 0
    chosen: NDArray[Any] = np.select([no_target & no_prediction, no_prediction, no_target], [1, 2, 3], 0)
    return chosen


def check_same_cases(runs: Mapping[str, RunColumns]) -> None:
    """Refuse runs with different cases or references; warn if only the totals of references could be compared.

    Raises
    ------
    InputError
        With the cases that are missing from each run, or the cases whose targets differ.
    """
    ids = {name: run.case_ids for name, run in runs.items()}
    (first, one), *others = runs.items()
    if not one.case_ids or any(mine != one.case_ids for mine in ids.values()):  # otherwise no run needs a set
        every, problems = set().union(*ids.values()), list[str]()
        for name, mine in ids.items():
            if missing := sorted(every - set(mine)):
                given = f"{len(missing)} missing from {name!r}: {shorten(missing)}"
                problems.append(expected("compare", "runs", "to have the same cases", given))
        raise InputError(problems or [expected("compare", "runs", "to hold a case", "none")])
    problems, unverified = [], []
    for name, other in others:
        if differences := _differences(one, other):
            given = f"{len(differences)} cases of {name!r} with another target: {shorten(differences)}"
            problems.append(expected("compare", "runs", "to have the same references", given, _SCORE_AGAIN))
        unknown = int(((one.hashes[:, 0] == UNKNOWN) | (other.hashes[:, 0] == UNKNOWN)).sum())
        unverified += [f"{name!r} ({unknown} cases)"] if unknown else []
    if problems:
        raise InputError(problems)
    if unverified:
        _LOG.warning(_UNVERIFIED, first, ", ".join(unverified))


def _differences(one: RunColumns, other: RunColumns) -> list[str]:
    """Describe the cases whose targets are known to differ."""
    ours, theirs = (np.where((run.shapes == 1) & [True, False, False], UNKNOWN, run.shapes) for run in (one, other))
    shapes = (ours != theirs).any(axis=1)  # a volume of depth 1 is an image
    known = (one.hashes != UNKNOWN) & (other.hashes != UNKNOWN)
    labels, objects = ((one.hashes != other.hashes) & known).T
    labels = labels | (one.margins.target != other.margins.target).any(axis=1)
    found = []
    for place in np.flatnonzero(shapes | labels | objects).tolist():
        what = "labels" if labels[place] else "objects"
        if shapes[place]:
            sizes = (" x ".join(str(edge) for edge in run[place].tolist() if edge != UNKNOWN) for run in (ours, theirs))
            what = f"shape {' and '.join(sizes)}"
        found.append(f"{one.case_ids[place]} ({what})")
    return found


def check_same_spacing(runs: Mapping[str, RunColumns], names: Sequence[str]) -> None:
    """Refuse runs with lengths whose cases are measured in another unit or by another spacing.

    Parameters
    ----------
    runs
        Name of a run to its cases; all runs have the same cases.
    names
        The compared scores that depend on the spacing.

    Raises
    ------
    InputError
        One line per run, with the first case.
    """
    (first, one), *others = runs.items()
    problems = []
    for name, other in others if names else ():
        pairs = [
            (one.spacings[mine], other.spacings[its])
            for mine, its in zip(one.spacing.tolist(), other.spacing.tolist(), strict=True)
        ]
        same = {pair: _same_spacing(*pair) for pair in set(pairs)}
        if differing := [place for place, pair in enumerate(pairs) if not same[pair]]:
            ours, theirs = (
                "pixels" if sizes is None else f"{' x '.join(f'{edge:g}' for edge in sizes)} {unit or 'of no unit'}"
                for sizes, unit in pairs[differing[0]]
            )
            case_id = one.case_ids[differing[0]]
            rule = f"to measure {names[0]} by the same spacing, as {first!r} with {ours} in {case_id!r}"
            given = f"{theirs} in {name!r} ({len(differing)} cases differ)"
            problems.append(expected("compare", "runs", rule, given, "Measure one of them again."))
    if problems:
        raise InputError(problems)


def _same_spacing(one: Edges, other: Edges) -> bool:
    """Tell whether two spacings are equal, as files may keep 32 or 64 bits of them."""
    (ours, unit), (theirs, its_unit) = one, other
    if unit != its_unit or ours is None or theirs is None or len(ours) != len(theirs):
        return one == other
    return np.allclose(ours, theirs, rtol=1e-6, atol=0)
