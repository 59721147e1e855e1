"""A checksum of a target, by which runs are known to be scored against the same references."""

from collections.abc import Callable
from typing import Any

import imagecodecs
import numpy as np
from numpy.typing import NDArray

from segmeter.classes import ClassSpec

_crc32: Callable[..., int] = imagecodecs.deflate_crc32  # 20 GB/s and more, where a pass over the pixels takes time
_FEW = 1 << 16  # a table of so many numbers is made in no time


class TargetHash:
    """CRC-32 of labels, taken from some rows at a time; of multilabel that of its planes' checksums.

    It does not depend on the file that the labels came from, nor on its dtype.

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
        """Take the next rows: (h, W), or of multilabel (K, h, W); a volume is taken whole."""
        planes = target if self._spec.is_multilabel else [target]
        dtype = self._spec.label_dtype.newbyteorder("<")
        self._sums = [
            _crc32(np.ascontiguousarray(plane, dtype).reshape(-1).view(np.uint8), known)
            for plane, known in zip(planes, self._sums, strict=True)
        ]

    def value(self) -> int:
        """The checksum of what was taken, in 0 to 2^32 - 1."""
        return self._sums[0] if len(self._sums) == 1 else _crc32(np.array(self._sums, "<u4").view(np.uint8))


def hash_target(target: NDArray[Any], spec: ClassSpec) -> int:
    """The checksum of a target whose values are labels, whether or not axes of length 1 lead it.

    Parameters
    ----------
    target : (H, W), (D, H, W) or multilabel (K, H, W), (K, D, H, W), integer
        Labels.
    spec
        What they mean.

    Returns
    -------
    int in 0 to 2^32 - 1.
    """
    found = TargetHash(spec)
    found.add(target)
    return found.value()


def hash_objects(objects: NDArray[Any]) -> int:
    """The checksum of a map of objects, each called by the place of its first pixel instead of by its number.

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
