"""Make the row of one case, with its counts and measures, from its maps."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from segmeter.classes import ClassSpec
from segmeter.data.files.array import LazyArray
from segmeter.errors import DataError, InputError
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.measures.protocol import OBJECTS, CaseMaps, Measure, measure_case
from segmeter.metrics.pixels.confusion import count_case_and_hidden
from segmeter.metrics.pixels.target_hash import TargetHash, hash_objects

_LINES = 1024  # of a map that is read by lines, counted at a time


class Explain(Protocol):
    """Gives one line for each thing that is wrong with a band; `hidden` where only ignored pixels are."""

    def __call__(self, target: NDArray[Any], labels: NDArray[Any], *, hidden: bool) -> list[str]: ...


def make_row(maps: CaseMaps, measures: Sequence[Measure]) -> CaseRow:
    """Count a case and measure it.

    Parameters
    ----------
    maps
        Reference and prediction.
    measures
        From `build_measures`.

    Returns
    -------
    CaseRow
        Without loss, changed pixels and spacing, which the maps do not tell.

    Raises
    ------
    InputError
        A counted pixel is outside the classes, or a measure can't be taken of such maps.
    """
    row = count_bands(maps.case_id, maps.shape, [(maps.target, maps.labels)], maps.spec)
    return measure_row(row, maps, measures)


def measure_row(row: CaseRow, maps: CaseMaps, measures: Sequence[Measure]) -> CaseRow:
    """Add the measures of a case that was counted; raises as `make_row`."""
    measured = measure_case(maps, measures)
    return replace(
        row,
        measured=measured,
        objects=maps.kept.get(OBJECTS, b""),
        objects_crc32=None if maps.target_instances is None else hash_objects(maps.target_instances),
    )


def count_bands(
    case_id: str,
    shape: tuple[int, ...],
    bands: Iterable[tuple[NDArray[Any], NDArray[Any]]],
    spec: ClassSpec,
    explain: Explain | None = None,
) -> CaseRow:
    """Count a case, some lines of target and labels at a time.

    Parameters
    ----------
    shape
        (H, W) or (D, H, W).
    bands
        Lines of target and labels, from top to bottom; a map in memory is one band.
    explain
        Gives what is wrong with a band that can't be counted, or whose ignored pixels hide labels outside the classes
        (`hidden`). Nothing is wrong where it gives no line.

    Returns
    -------
    CaseRow
        With counts and the hash of the target alone.

    Raises
    ------
    DataError
        With the lines that `explain` gives.
    InputError
        A counted pixel is outside the classes, and nobody explains it.
    """
    total, target_hash = np.zeros(spec.counts_shape, np.int64), TargetHash(spec)
    for target, labels in bands:
        try:
            counts, hidden = count_case_and_hidden(target, labels, spec)
        except InputError:
            if explain is None:
                raise
            raise DataError(explain(target, labels, hidden=False)) from None
        problems = explain(target, labels, hidden=True) if explain is not None and hidden else []
        if problems:
            raise DataError(problems)
        total += counts
        target_hash.add(target)
    *depth, height, width = shape
    return CaseRow(
        case_id=case_id,
        height=height,
        width=width,
        depth=depth[0] if depth else None,
        counts=total,
        target_crc32=target_hash.value(),
    )


def bands_of(target: LazyArray, labels: LazyArray) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Read two maps of one size, the same lines of both at a time."""
    height = target.shape[-2]
    for top in range(0, height, _LINES):
        stop = min(top + _LINES, height)
        yield target.read(top, stop), labels.read(top, stop)
