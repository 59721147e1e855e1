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
    EXTRA_PREFIX,
    HASHES,
    LARGE,
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
_LARGEST_INT32 = np.iinfo(np.int32).max
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
        The ids, in the order of the rows.
    regions
        The R names of every class, then of the groups of classes.
    region_totals : (N, R) each
        The totals of the regions, in 32 bits where they fit; `totals` widens them. The number of all pixels, `total`,
        is kept once for the regions of one map.
    shapes : (N, 3), int64
        Depth, height and width; the depth of an image is `UNKNOWN`.
    hashes : (N, 2), int64
        Checksums of the target and of its objects, or `UNKNOWN`.
    spacings
        The distinct pairs of spacing and unit.
    spacing : (N,)
        Index into `spacings` of each case.
    measured
        Columns (N,) of the measures by their keys; NaN where a case has no value.
    counts
        The counts of all cases together.
    loss : (N,)
        The loss of each case; NaN if it has none.
    loss_terms : (N, P, 2) or None
        The sum and the denominator of each part of the loss; None if a case has none, or another number of them.
    """

    case_ids: list[str]
    regions: list[str]
    region_totals: ClassTotals
    shapes: IntArray
    hashes: IntArray
    spacings: list[Edges]
    spacing: NDArray[np.int32]
    measured: dict[ColumnKey, FloatArray]
    counts: IntArray
    loss: FloatArray
    loss_terms: FloatArray | None

    def totals(self, regions: str | Sequence[str], cases: slice = slice(None)) -> ClassTotals:
        """Return the totals of some regions (n, R) in some cases, or of a single region (n,), int64."""
        find = self.regions.index
        columns: int | list[int] = find(regions) if isinstance(regions, str) else [find(name) for name in regions]
        return self.region_totals.map(lambda part: part[cases, columns].astype(np.int64, order="C"))


def lay_out_run(rows: Sequence[CaseRow], spec: ClassSpec, groups: Mapping[str, Sequence[str]]) -> RunColumns:
    """Lay out cases in their order, with the totals of every class and group of classes."""
    table = as_table(rows)
    regions = [*spec.names, *groups]  # `check_metrics` refuses a group with a class's name
    members = [[spec.names.index(label) for label in groups.get(name, (name,))] for name in regions]
    spacings = dict[Edges, int]()
    spacing = list[int]()
    summed_counts = np.zeros(spec.counts_shape, np.int64)
    blocks = list[list[IntArray]]()
    small_columns = list[pa.Table]()
    for part in table.parts():
        counts = table.counts(part).reshape(-1, *spec.counts_shape)
        summed_counts += counts.sum(axis=0)
        totals = sum_regions(counts, spec, members)
        sums = (*totals[:3], totals.total if spec.is_multilabel else totals.total[:, :1])  # regions of one map share it
        fits = [np.int32 if values.max(initial=0) <= _LARGEST_INT32 else np.int64 for values in sums]
        blocks.append([np.ascontiguousarray(values.T, dtype) for values, dtype in zip(sums, fits, strict=True)])
        edges = map(read_edges, part["spacing"].to_pylist(), part["unit"].to_pylist())
        spacing += [spacings.setdefault(pair, len(spacings)) for pair in edges]
        small_columns.append(part.select([name for name in part.column_names if name not in LARGE]))
    columns = pa.concat_tables(small_columns, promote_options="default")
    keys = {
        name: decode_key(name.removeprefix(EXTRA_PREFIX))
        for name in columns.column_names
        if name.startswith(EXTRA_PREFIX)
    }
    # joined one after the other, so that no more than one is in memory twice
    joined = [np.concatenate([block.pop(0) for block in blocks], axis=1).T for _ in ClassTotals._fields]
    terms = [columns[name].combine_chunks() for name in TERMS]
    lengths = pc.unique(pc.list_value_length(terms[0])).to_pylist()
    loss_terms = None
    if len(lengths) == 1 and lengths[0]:
        loss_terms = np.stack([np.asarray(column.flatten()).reshape(-1, lengths[0]) for column in terms], axis=2)
    return RunColumns(
        case_ids=table.case_ids,
        regions=regions,
        region_totals=ClassTotals(*(np.broadcast_to(values, (len(values), len(regions))) for values in joined)),
        shapes=np.stack([whole_numbers(columns[name]) for name in ("depth", "height", "width")], axis=1),
        hashes=np.stack([whole_numbers(columns[name]) for name in HASHES], axis=1),
        spacings=list(spacings),
        spacing=np.array(spacing, np.int32),
        measured={key: floats_of(columns[name]) for name, key in keys.items() if key},
        counts=summed_counts,
        loss=floats_of(columns["loss"]),
        loss_terms=loss_terms,
    )


def sum_regions(counts: NDArray[np.int64], spec: ClassSpec, members: Sequence[Sequence[int]]) -> ClassTotals:
    """Return the totals (N, R) from the counts (N, ...) of some cases; `members` are the classes of each region."""
    if all(len(labels) == 1 for labels in members):
        by_class = class_totals(counts, task=spec.task, count_invalid=spec.count_invalid)
        return by_class.map(lambda part: part[:, [labels[0] for labels in members]])
    tp = np.stack([counts[:, labels][:, :, labels].sum(axis=(1, 2)) for labels in members], axis=1)
    target = np.stack([counts[:, labels].sum(axis=(1, 2)) for labels in members], axis=1)
    predicted = np.stack([counts[:, :, labels].sum(axis=(1, 2)) for labels in members], axis=1)
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


def class_statuses(totals: ClassTotals) -> NDArray[np.int64]:
    """Return an index into `STATUSES` per case and class."""
    no_target, no_prediction = totals.target == 0, totals.predicted == 0
    indices: NDArray[Any] = np.select([no_target & no_prediction, no_prediction, no_target], [1, 2, 3], 0)
    return indices


def check_same_cases(runs: Mapping[str, RunColumns]) -> None:
    """Refuse runs with different cases or references; warn if only the totals of references could be compared.

    Raises
    ------
    InputError
        Names the cases that are missing from each run, or whose targets differ.
    """
    ids = {name: run.case_ids for name, run in runs.items()}
    (base_name, base), *others = runs.items()
    if not base.case_ids or any(case_ids != base.case_ids for case_ids in ids.values()):  # else no set is needed
        all_ids = set().union(*ids.values())
        problems = list[str]()
        for name, case_ids in ids.items():
            if missing := sorted(all_ids - set(case_ids)):
                given = f"{len(missing)} missing from {name!r}: {shorten(missing)}"
                problems.append(expected("compare", "runs", "to have the same cases", given))
        raise InputError(problems or [expected("compare", "runs", "to hold a case", "none")])
    problems, unverified = [], []
    for name, other in others:
        if differences := _differences(base, other):
            given = f"{len(differences)} cases of {name!r} with another target: {shorten(differences)}"
            problems.append(expected("compare", "runs", "to have the same references", given, _SCORE_AGAIN))
        unknown = int(((base.hashes[:, 0] == UNKNOWN) | (other.hashes[:, 0] == UNKNOWN)).sum())
        unverified += [f"{name!r} ({unknown} cases)"] if unknown else []
    if problems:
        raise InputError(problems)
    if unverified:
        _LOG.warning(_UNVERIFIED, base_name, ", ".join(unverified))


def _differences(base: RunColumns, other: RunColumns) -> list[str]:
    """Describe the cases whose targets are known to differ."""
    ours, theirs = (np.where((run.shapes == 1) & [True, False, False], UNKNOWN, run.shapes) for run in (base, other))
    shapes = (ours != theirs).any(axis=1)  # a volume of depth 1 is an image
    comparable = (base.hashes != UNKNOWN) & (other.hashes != UNKNOWN)
    labels, objects = ((base.hashes != other.hashes) & comparable).T
    labels = labels | (base.region_totals.target != other.region_totals.target).any(axis=1)
    lines = []
    for case in np.flatnonzero(shapes | labels | objects).tolist():
        what = "labels" if labels[case] else "objects"
        if shapes[case]:
            sizes = (" x ".join(str(edge) for edge in run[case].tolist() if edge != UNKNOWN) for run in (ours, theirs))
            what = f"shape {' and '.join(sizes)}"
        lines.append(f"{base.case_ids[case]} ({what})")
    return lines


def check_same_spacing(runs: Mapping[str, RunColumns], names: Sequence[str]) -> None:
    """Refuse runs whose lengths were measured in another unit or by another spacing.

    Parameters
    ----------
    runs
        Name of a run to its cases; all runs have the same cases.
    names
        The compared scores that depend on the spacing.

    Raises
    ------
    InputError
        One line per run, which names the first case that differs.
    """
    (base_name, base), *others = runs.items()
    problems = []
    for name, other in others if names else ():
        pairs = [
            (base.spacings[base_index], other.spacings[index])
            for base_index, index in zip(base.spacing.tolist(), other.spacing.tolist(), strict=True)
        ]
        same = {pair: _same_spacing(*pair) for pair in set(pairs)}
        if differing := [case for case, pair in enumerate(pairs) if not same[pair]]:
            ours, theirs = (
                "pixels" if sizes is None else f"{' x '.join(f'{edge:g}' for edge in sizes)} {unit or 'of no unit'}"
                for sizes, unit in pairs[differing[0]]
            )
            case_id = base.case_ids[differing[0]]
            rule = f"to measure {names[0]} by the same spacing, as {base_name!r} with {ours} in {case_id!r}"
            given = f"{theirs} in {name!r} ({len(differing)} cases differ)"
            problems.append(expected("compare", "runs", rule, given, "Measure one of them again."))
    if problems:
        raise InputError(problems)


def _same_spacing(one: Edges, other: Edges) -> bool:
    """Tell whether two spacings are equal but for rounding, as files may keep 32 or 64 bits of them."""
    (ours, unit), (theirs, other_unit) = one, other
    if unit != other_unit or ours is None or theirs is None or len(ours) != len(theirs):
        return one == other
    return np.allclose(ours, theirs, rtol=1e-6, atol=0)
