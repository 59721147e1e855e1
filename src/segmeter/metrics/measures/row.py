"""Makes the row of one case from its maps: its counts, its measures, and the checksum of its target.

Every evaluation comes through `make_row`. The checksum tells whether two runs were scored against the same references.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import imagecodecs
import numpy as np
from numpy.typing import NDArray

from segmeter.classes import ClassSpec
from segmeter.data.files.array import LazyArray
from segmeter.errors import DataError, InputError
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.measures.protocol import OBJECTS, CaseMaps, Measure, measure_case
from segmeter.metrics.pixels.confusion import count_case_and_hidden

_crc32: Callable[..., int] = imagecodecs.deflate_crc32  # 20 GB/s and more, where a pass over the pixels takes time
_FEW = 1 << 16  # a table of so many numbers is made in no time


class TargetHash:
    """CRC-32 of a label map that arrives in bands of lines; for multilabel, the CRC-32 of its planes' checksums.

    It depends neither on the file that the labels came from nor on its dtype.

    Examples
    --------
    >>> spec = ClassSpec(task="binary", names=("ground", "cell"), colours=((0, 0, 0), (255, 255, 255)))
    >>> target = np.eye(4, dtype=np.int64)
    >>> parts = TargetHash(spec)
    >>> parts.add(target[:1]), parts.add(target[1:])
    (None, None)
    >>> parts.value() == hash_target(target, spec) != hash_target(1 - target, spec)
    True
    """

    def __init__(self, spec: ClassSpec) -> None:
        self._spec = spec
        self._sums = [0] * (spec.num_classes if spec.is_multilabel else 1)

    def add(self, target: NDArray[Any]) -> None:
        """Add the next lines, (h, W) or (K, h, W) for multilabel; a volume comes as a whole."""
        planes = target if self._spec.is_multilabel else [target]
        dtype = self._spec.label_dtype.newbyteorder("<")
        self._sums = [
            _crc32(np.ascontiguousarray(plane, dtype).reshape(-1).view(np.uint8), known)
            for plane, known in zip(planes, self._sums, strict=True)
        ]

    def value(self) -> int:
        """Return the checksum of the lines so far, in 0 to 2^32 - 1."""
        return self._sums[0] if len(self._sums) == 1 else _crc32(np.array(self._sums, "<u4").view(np.uint8))


def hash_target(target: NDArray[Any], spec: ClassSpec) -> int:
    """Compute the checksum of a target whose values are labels; leading axes of length 1 do not matter.

    Parameters
    ----------
    target : (H, W), (D, H, W) or multilabel (K, H, W), (K, D, H, W), integer
        Labels.
    spec
        The classes.

    Returns
    -------
    int in 0 to 2^32 - 1.
    """
    found = TargetHash(spec)
    found.add(target)
    return found.value()


def hash_objects(objects: NDArray[Any]) -> int:
    """Compute the checksum of an instance map, in which the position of its first pixel stands for each object's
    number.

    Parameters
    ----------
    objects : integer
        The object of each pixel, 0 where there is none.

    Returns
    -------
    int in 0 to 2^32 - 1.

    Examples
    --------
    >>> hash_objects(np.array([[0, 7], [3, 7]])) == hash_objects(np.array([[0, 1], [2, 1]]))
    True
    """
    flat = objects.reshape(-1)
    if flat.min(initial=0) < 0 or flat.max(initial=0) > 2 * flat.size + _FEW:
        values, first, places = np.unique(flat, return_index=True, return_inverse=True)
        named = np.where(values == 0, 0, first + 1)[places]
    else:
        first = np.zeros(int(flat.max(initial=0)) + 1, np.int64)
        first[flat[::-1]] = np.arange(flat.size, 0, -1)  # of a place that is written twice, the last value stays
        first[0] = 0
        named = first[flat]
    return _crc32(np.ascontiguousarray(named, "<i8").view(np.uint8))


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
