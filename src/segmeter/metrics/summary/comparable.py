"""Checks whether runs can be compared: they need the same cases and targets and, for lengths, the same spacing."""

import logging
import math
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np

from segmeter.checks import expected, shorten
from segmeter.errors import InputError
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
                given = f"{len(missing)} missing from {name!r}: {shorten(missing, most=_LISTED)}"
                problems.append(expected("compare", "runs", "to have the same cases", given))
        raise InputError(problems or [expected("compare", "runs", "to hold a case", "none")])
    problems, unverified = [], []
    for name, other in others:
        if differences := _differences(one, other):
            given = f"{len(differences)} cases of {name!r} with another target: {shorten(differences, most=_LISTED)}"
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
        sides = ([run.spacings[index] for index in run.spacing.tolist()] for run in (one, other))
        differing = np.array([not _same_spacing(*pair) for pair in zip(*sides, strict=True)], bool)
        if differing.any():
            place = int(differing.argmax())
            edges = (run.spacings[run.spacing[place]] for run in (one, other))
            ours, theirs = (
                "pixels" if sizes is None else f"{' x '.join(f'{edge:g}' for edge in sizes)} {unit or 'of no unit'}"
                for sizes, unit in edges
            )
            rule = f"to measure {spaced[0]} by the same spacing, as {first!r} with {ours} in {one.case_ids[place]!r}"
            given = f"{theirs} in {name!r} ({int(differing.sum())} cases differ)"
            problems.append(expected("compare", "runs", rule, given, "Measure one of them again."))
    if problems:
        raise InputError(problems)


@cache
def _same_spacing(one: Edges, other: Edges) -> bool:
    """Tell whether two spacings are equal, as files may keep 32 or 64 bits of them."""
    (ours, unit), (theirs, its_unit) = one, other
    if ours is None or theirs is None:
        return ours is theirs
    pairs = zip(ours, theirs, strict=False)
    return unit == its_unit and len(ours) == len(theirs) and all(math.isclose(*pair, rel_tol=1e-6) for pair in pairs)
