"""Pairs -> the groups that a thread takes at a time: handing over one small pair takes as long as counting it."""

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress

from segmeter.classes import ClassSpec
from segmeter.data.files.sniff import stored_size
from segmeter.evaluation.pairing import MaskPair

_AT_ONCE = 8  # small pairs
_PLAIN_AT_ONCE = 64  # at most, of those that are counted the short way: after each call Python finds the caches cold
_GROUP_BYTES = 1 << 20  # of their counts together
_PARTS = 16  # a group is at most this part of what is left
_SMALL = 1 << 20  # bytes of a file


def split_groups(pairs: Sequence[MaskPair], spec: ClassSpec, *, plain: bool) -> Iterator[list[MaskPair]]:
    """Give all pairs in their order, fewer at a time towards the end, where no thread shall wait long for another.

    Parameters
    ----------
    pairs
        The first stands for all.
    spec
        The classes.
    plain
        Whether they are counted by `count_plain`.
    """
    start, most = 0, 1
    with suppress(OSError):  # what is wrong with the files is said when they are read
        if all(stored_size(path) < _SMALL for pair in pairs[:1] for path in pair.references):
            fitting = _GROUP_BYTES // (8 * math.prod(spec.counts_shape))
            most = max(_AT_ONCE, min(_PLAIN_AT_ONCE, fitting)) if plain else _AT_ONCE
    while start < len(pairs):
        size = min(most, max(_AT_ONCE, (len(pairs) - start) // _PARTS))
        yield list(pairs[start : start + size])
        start += size
