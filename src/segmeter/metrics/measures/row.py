"""Makes the row of one case from its maps: its counts, its measures, and the checksum of its target.

Every evaluation calls `make_row`. The checksum shows whether two runs were scored against the same references.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import imagecodecs
import numpy as np
from numpy.typing import NDArray

from segmeter.classes import ClassSpec
from segmeter.data.files.array import LazyArray
from segmeter.errors import DataError
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.measures.protocol import OBJECTS, CaseMaps, Measure, measure_case
from segmeter.metrics.pixels.confusion import count_case_and_hidden

_crc32: Callable[..., int] = imagecodecs.deflate_crc32  # 20 GB/s: faster than any other pass over the pixels
_SMALL_TABLE = 1 << 16  # Tables of up to this many numbers are cheap to allocate.


def hash_objects(objects: NDArray[Any]) -> int:
    """Compute the checksum of an instance map. It doesn't depend on the objects' numbers: each is replaced by the
    position of its first pixel.

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
    if flat.min(initial=0) < 0 or flat.max(initial=0) > 2 * flat.size + _SMALL_TABLE:
        values, first_pixels, indices = np.unique(flat, return_index=True, return_inverse=True)
        renamed = np.where(values == 0, 0, first_pixels + 1)[indices]
    else:
        first_pixels = np.zeros(int(flat.max(initial=0)) + 1, np.int64)
        first_pixels[flat[::-1]] = np.arange(flat.size, 0, -1)  # backwards: the last write, of the first pixel, stays
        first_pixels[0] = 0
        renamed = first_pixels[flat]
    return _crc32(np.ascontiguousarray(renamed, "<i8").view(np.uint8))


_LINES = 1024  # A map that is read in bands is counted this many lines at a time.


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
        """Height and width."""
        return self.target.shape[-2:]


def bands_of(maps: CaseMaps | BandedMaps) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Yield target and labels, some lines at a time; maps in memory are a single band."""
    if isinstance(maps, CaseMaps):
        yield maps.target, maps.labels
        return
    for top in range(0, maps.shape[0], _LINES):
        stop = min(top + _LINES, maps.shape[0])
        yield maps.target.read(top, stop), maps.labels.read(top, stop)


def make_row(
    maps: CaseMaps | BandedMaps, measures: Sequence[Measure], problems: Callable[[], list[str]] = list
) -> CaseRow:
    """Count a case band by band, and measure it if its maps are in memory.

    Parameters
    ----------
    maps
        Reference and prediction.
    measures
        From `build_measures`.
    problems
        Called if ignored pixels hide labels outside the classes. It returns a line for each that is refused even there.

    Returns
    -------
    CaseRow
        Without loss, changed pixels and spacing, which don't follow from the maps.

    Raises
    ------
    DataError
        With the lines of `problems`.
    InputError
        A counted pixel is outside the classes, or a measure refuses the maps.
    """
    counts = np.zeros(maps.spec.counts_shape, np.int64)
    checksums = [0] * (maps.spec.num_classes if maps.spec.is_multilabel else 1)
    # The CRC-32 of each plane continues from band to band. It depends neither on the file that the labels came from nor
    # on their dtype, nor on leading axes of length 1.
    label_dtype = maps.spec.label_dtype.newbyteorder("<")
    for target, labels in bands_of(maps):
        band_counts, has_hidden = count_case_and_hidden(target, labels, maps.spec)
        if has_hidden and (lines := problems()):
            raise DataError(lines)
        counts += band_counts
        planes = np.ascontiguousarray(target, label_dtype).reshape(len(checksums), -1)
        checksums = list(map(_crc32, planes.view(np.uint8), checksums))
    *depth, height, width = maps.shape
    measured: dict[str, Any] = {}
    if isinstance(maps, CaseMaps):
        measured = {"measured": measure_case(maps, measures), "objects": maps.kept.get(OBJECTS)}
        if maps.target_instances is not None:
            measured["objects_crc32"] = hash_objects(maps.target_instances)
    return CaseRow(
        case_id=maps.case_id,
        height=height,
        width=width,
        depth=depth[0] if depth else None,
        counts=counts,
        target_crc32=checksums[0] if len(checksums) == 1 else _crc32(np.array(checksums, "<u4").view(np.uint8)),
        **measured,
    )
