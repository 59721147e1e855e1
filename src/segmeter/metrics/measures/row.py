"""Makes the row of one case, with its counts and measures, from its maps. Every evaluation comes through here."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
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

_LINES = 1024  # of a map that is read in bands, counted at a time


@dataclass(frozen=True, kw_only=True, eq=False)
class BandedMaps:
    """The maps of a case that is larger than memory. They are read in bands of lines and can only be counted.

    Parameters
    ----------
    case_id
        The case's name.
    target, labels : (H, W), for multilabel (K, H, W)
        Reference and prediction.
    spec
        The classes.
    """

    case_id: str
    target: LazyArray
    labels: LazyArray
    spec: ClassSpec

    @property
    def shape(self) -> tuple[int, ...]:
        """(H, W)."""
        return self.target.shape[-2:]


class Explain(Protocol):
    """Lists the problems of a band, one line each; `hidden` if only ignored pixels have them."""

    def __call__(self, target: NDArray[Any], labels: NDArray[Any], *, hidden: bool) -> list[str]: ...


def make_row(maps: CaseMaps | BandedMaps, measures: Sequence[Measure], explain: Explain | None = None) -> CaseRow:
    """Count a case band by band, and measure it if its maps are in memory; those are one band.

    Parameters
    ----------
    maps
        Reference and prediction.
    measures
        From `build_measures`.
    explain
        Called for a band that can't be counted, and for one whose ignored pixels hide labels outside the classes. No
        lines mean no problem.

    Returns
    -------
    CaseRow
        Without loss, changed pixels and spacing, which the maps do not tell.

    Raises
    ------
    DataError
        With the lines of `explain`.
    InputError
        A counted pixel is outside the classes and there is no `explain`, or a measure refuses the maps.
    """
    counts, target_hash = np.zeros(maps.spec.counts_shape, np.int64), TargetHash(maps.spec)
    for target, labels in _bands(maps):
        try:
            found, hidden = count_case_and_hidden(target, labels, maps.spec)
        except InputError:
            if explain is None:
                raise
            raise DataError(explain(target, labels, hidden=False)) from None
        problems = explain(target, labels, hidden=True) if explain is not None and hidden else []
        if problems:
            raise DataError(problems)
        counts += found
        target_hash.add(target)
    *depth, height, width = maps.shape
    row = CaseRow(
        case_id=maps.case_id,
        height=height,
        width=width,
        depth=depth[0] if depth else None,
        counts=counts,
        target_crc32=target_hash.value(),
    )
    if isinstance(maps, BandedMaps):
        return row
    return replace(
        row,
        measured=measure_case(maps, measures),
        objects=maps.kept.get(OBJECTS, b""),
        objects_crc32=None if maps.target_instances is None else hash_objects(maps.target_instances),
    )


def _bands(maps: CaseMaps | BandedMaps) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Yield the same lines of target and labels."""
    if isinstance(maps, CaseMaps):
        yield maps.target, maps.labels
        return
    height = maps.shape[0]
    for top in range(0, height, _LINES):
        stop = min(top + _LINES, height)
        yield maps.target.read(top, stop), maps.labels.read(top, stop)
