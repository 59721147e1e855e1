"""Checks whether runs can be compared: they need the same cases and targets and, for lengths, the same spacing."""

import logging
import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected
from segmeter.errors import InputError
from segmeter.metrics.arrays import BoolArray
from segmeter.metrics.cases.table import UNKNOWN, Edges
from segmeter.metrics.cases.typed import RunColumns
from segmeter.metrics.config.scores import find_facts

_LOG = logging.getLogger(__name__)
_SCORE_AGAIN = "Score them again against the same files, read in the same way."
_UNVERIFIED = (
    "compare: only the shapes and class totals of the references of %r were compared with those of %s, as one of the "
    "runs has no checksums of its references"
)
_LISTED = 8  # cases named in one message


def check_same_cases(runs: Mapping[str, RunColumns]) -> None:
    """Refuse runs with different cases or references; warn where references of equal totals could not be told apart.

    Raises
    ------
    InputError
        With what is missing from each run, or the cases whose targets differ.
    """
    first, *others = runs
    _check_ids({name: run.case_ids for name, run in runs.items()})
    problems, unverified = [], []
    for name in others:
        one, other = runs[first], runs[name]
        differences = _differences(one, other)
        listed = [f"{one.case_ids[place]} ({difference})" for place, difference in differences[:_LISTED]]
        if differences:
            given = f"{len(differences)} cases of {name!r} with another target: {_list(listed, len(differences))}"
            problems.append(expected("compare", "runs", "to have the same references", given, _SCORE_AGAIN))
        unknown = int(((one.hashes[:, 0] == UNKNOWN) | (other.hashes[:, 0] == UNKNOWN)).sum())
        unverified += [f"{name!r} ({unknown} cases)"] if unknown else []
    if problems:
        raise InputError(problems)
    if unverified:
        _LOG.warning(_UNVERIFIED, first, ", ".join(unverified))


def _check_ids(ids: Mapping[str, list[str]]) -> None:
    first = next(iter(ids.values()))
    if first and all(mine == first for mine in ids.values()):  # else there would be a set of each run's
        return
    every = sorted(set().union(*ids.values()))
    missing = {name: sorted(set(every) - set(mine)) for name, mine in ids.items()}
    problems = [
        expected("compare", "runs", "to have the same cases", f"{len(cases)} missing from {name!r}: {_list(cases)}")
        for name, cases in missing.items()
        if cases
    ]
    if not every:
        problems.append(expected("compare", "runs", "to hold a case", "none"))
    raise InputError(problems)


def _differences(one: RunColumns, other: RunColumns) -> list[tuple[int, str]]:
    """List the cases whose targets are known to differ, and in what."""
    ours, theirs = _flat(one.shapes), _flat(other.shapes)
    shapes = (ours != theirs).any(axis=1)
    labels, objects = (_known_apart(one.hashes[:, k], other.hashes[:, k]) for k in range(2))
    for mine, its in zip(one.margins.target, other.margins.target, strict=True):
        labels |= mine != its
    found = []
    for place in np.flatnonzero(shapes | labels | objects).tolist():
        if shapes[place]:
            said = "shape {} and {}".format(*map(_shape, (ours[place], theirs[place])))
        else:
            said = "labels" if labels[place] else "objects"
        found.append((place, said))
    return found


def _flat(shapes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Turn volumes of depth 1 into images."""
    flat = shapes.copy()
    flat[flat[:, 0] == 1, 0] = UNKNOWN
    return flat


def _shape(shape: NDArray[np.int64]) -> str:
    return " x ".join(str(edge) for edge in shape.tolist() if edge != UNKNOWN)


def _known_apart(one: NDArray[np.int64], other: NDArray[np.int64]) -> BoolArray:
    apart: BoolArray = (one != other) & (one != UNKNOWN) & (other != UNKNOWN)
    return apart


def check_same_spacing(runs: Mapping[str, RunColumns], names: Sequence[str]) -> None:
    """Refuse runs with lengths whose cases are measured in another unit or by another spacing.

    Parameters
    ----------
    runs
        Name of a run to its cases, which are those of the others.
    names
        The scores that are compared. An unknown score may be a length.

    Raises
    ------
    InputError
        One line per run, with the first case.
    """
    spaced = [name for name in names if (facts := find_facts(name)) is None or facts.spaced]
    (first, one), *others = runs.items()
    problems = []
    for name, other in others if spaced else ():
        differing = _spaced_apart(one, other)
        if differing.any():
            place = int(differing.argmax())
            ours, theirs = (run.spacings[run.spacing[place]] for run in (one, other))
            rule = f"to measure {spaced[0]} by the same spacing, as {first!r} with {_spacing(*ours)}"
            rule += f" in {one.case_ids[place]!r}"
            given = f"{_spacing(*theirs)} in {name!r} ({int(differing.sum())} cases differ)"
            problems.append(expected("compare", "runs", rule, given, "Measure one of them again."))
    if problems:
        raise InputError(problems)


def _spaced_apart(one: RunColumns, other: RunColumns) -> BoolArray:
    """Mark the cases (N,) whose spacings differ."""
    pairs, index = np.unique(np.stack([one.spacing, other.spacing]), axis=1, return_inverse=True)
    apart = [not _same_spacing(one.spacings[i], other.spacings[j]) for i, j in pairs.T.tolist()]
    found: BoolArray = np.array(apart)[index.reshape(-1)]
    return found


def _same_spacing(one: Edges, other: Edges) -> bool:
    """Compare two spacings, of which files may keep 32 or 64 bits."""
    (ours, unit), (theirs, its_unit) = one, other
    pairs = zip(ours or (), theirs or (), strict=False)
    close = len(ours or ()) == len(theirs or ()) and all(math.isclose(*edges, rel_tol=1e-6) for edges in pairs)
    return close and (ours is None) == (theirs is None) and (ours is None or unit == its_unit)


def _spacing(edges: tuple[float, ...] | None, unit: str) -> str:
    return "pixels" if edges is None else f"{' x '.join(f'{edge:g}' for edge in edges)} {unit or 'of no unit'}"


def _list(cases: Sequence[str], count: int | None = None) -> str:
    return ", ".join(cases[:_LISTED]) + (" ..." if (count or len(cases)) > _LISTED else "")
