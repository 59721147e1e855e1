"""rows of several runs -> whether they may be compared: the same cases, targets and, for lengths, spacing."""

import logging
import math
from collections.abc import Iterator, Mapping, Sequence

from segmeter.checks import expected
from segmeter.classes import ClassSpec
from segmeter.errors import InputError
from segmeter.metrics.cases.table import CaseRow, in_groups, stack_totals
from segmeter.metrics.summary.directions import find_direction

_LOG = logging.getLogger(__name__)
_SPACED = ("hd", "assd", "masd", "nsd", "object_masd", "brats_", "autopet_")  # how scores begin that need the spacing
_SCORE_AGAIN = "Score them again against the same files, read in the same way."
_UNVERIFIED = (
    "compare: only the shapes and class totals of the references of %r were compared with those of %s, as one of the "
    "runs has no checksums of its references"
)
_LISTED = 8  # cases named in one message


def check_same_cases(ordered: Mapping[str, Sequence[CaseRow]], spec: ClassSpec) -> None:
    """Refuse runs with different cases or references; warn where references of equal totals could not be told apart.

    Raises
    ------
    InputError
        With what is missing from each run, or the cases whose targets differ.
    """
    ids = {name: [row.case_id for row in rows] for name, rows in ordered.items()}
    every = sorted(set().union(*ids.values()))
    missing = {name: sorted(set(every) - set(mine)) for name, mine in ids.items()}
    problems = [
        expected("compare", "runs", "to have the same cases", f"{len(cases)} missing from {name!r}: {_list(cases)}")
        for name, cases in missing.items()
        if cases
    ]
    if not every:
        problems.append(expected("compare", "runs", "to hold a case", "none"))
    if problems:
        raise InputError(problems)
    first, *others = ordered
    counted = stack_totals(ordered[first], spec).target
    unverified = []
    for name in others:
        apart = (stack_totals(ordered[name], spec).target != counted).any(axis=1)
        differing, unknown = [], 0
        for row, other, differs in zip(_singly(ordered[first]), _singly(ordered[name]), apart, strict=True):
            difference = _difference(row, other, labels_differ=bool(differs))
            differing += [f"{row.case_id} ({difference})"] if difference else []
            unknown += None in (row.target_crc32, other.target_crc32)
        unverified += [f"{name!r} ({unknown} cases)"] if unknown else []
        if differing:
            given = f"{len(differing)} cases of {name!r} with another target: {_list(differing)}"
            problems.append(expected("compare", "runs", "to have the same references", given, _SCORE_AGAIN))
    if problems:
        raise InputError(problems)
    if unverified:
        _LOG.warning(_UNVERIFIED, first, ", ".join(unverified))


def _difference(row: CaseRow, other: CaseRow, *, labels_differ: bool) -> str:
    """What two targets differ in, as far as that is known; a volume of depth 1 is an image."""
    shapes = [each.shape[1:] if each.depth == 1 else each.shape for each in (row, other)]
    if shapes[0] != shapes[1]:
        return "shape {} and {}".format(*(" x ".join(map(str, shape)) for shape in shapes))
    if labels_differ or _known_apart(row.target_crc32, other.target_crc32):
        return "labels"
    return "objects" if _known_apart(row.objects_crc32, other.objects_crc32) else ""


def _known_apart(one: int | None, other: int | None) -> bool:
    return None not in (one, other) and one != other


def check_same_spacing(ordered: Mapping[str, Sequence[CaseRow]], names: Sequence[str]) -> None:
    """Refuse runs with lengths whose cases are measured in another unit or by another spacing.

    Parameters
    ----------
    ordered
        Name of a run to its rows, ordered by case id, of the same cases.
    names
        The scores that are compared. Of one that is not ours nothing says that it is no length.

    Raises
    ------
    InputError
        One line per run, with the first case.
    """
    spaced = [name for name in names if name.startswith(_SPACED) or find_direction(name) is None]
    (first, rows), *others = ordered.items()
    problems = []
    for name, other in others if spaced else ():
        pairs = zip(_singly(rows), _singly(other), strict=True)
        differing = [(row, its) for row, its in pairs if not _same_spacing(row, its)]
        if differing:
            row, its = differing[0]
            rule = f"to measure {spaced[0]} by the same spacing, as {first!r} with {_spacing(row)} in {row.case_id!r}"
            given = f"{_spacing(its)} in {name!r} ({len(differing)} cases differ)"
            problems.append(expected("compare", "runs", rule, given, "Measure one of them again."))
    if problems:
        raise InputError(problems)


def _singly(rows: Sequence[CaseRow]) -> Iterator[CaseRow]:
    return (row for group in in_groups(rows) for row in group)


def _same_spacing(row: CaseRow, other: CaseRow) -> bool:
    """Files keep a spacing in 32 bits or in 64."""
    one, two = row.spacing or (), other.spacing or ()
    close = len(one) == len(two) and all(math.isclose(*edges, rel_tol=1e-6) for edges in zip(one, two, strict=True))
    return close and row.length_unit == other.length_unit


def _spacing(row: CaseRow) -> str:
    if row.spacing is None:
        return "pixels"
    return f"{' x '.join(f'{edge:g}' for edge in row.spacing)} {row.unit or 'of no unit'}"


def _list(cases: Sequence[str]) -> str:
    return ", ".join(cases[:_LISTED]) + (" ..." if len(cases) > _LISTED else "")
