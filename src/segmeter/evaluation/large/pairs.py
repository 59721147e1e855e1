"""Label maps that are larger than memory -> counts, from some rows of reference and prediction at a time. No torch."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected
from segmeter.data.files import array
from segmeter.data.files.array import ArrayRows, LazyArray, stack_planes
from segmeter.data.files.opened import open_array, read_header
from segmeter.data.files.sniff import show, unchanged
from segmeter.data.in_time import TimeLimit
from segmeter.data.masks.options import Reading
from segmeter.data.masks.reading import StoredMap, check_labels, hash_map, open_map, read_map
from segmeter.errors import DataError
from segmeter.evaluation.pairing import MaskPair, limit_of
from segmeter.metrics.config.metrics import MetricsConfig

_ROWS = 1024  # read at a time
_BY_ROWS = (".tif", ".tiff", ".zarr")


def is_large(path: Path, reading: Reading) -> bool:
    """Whether a file is a picture of one channel that is too large to be decoded at once, and is read by rows."""
    if path.suffix.lower() not in _BY_ROWS or reading.key is not None or reading.has_colours:
        return False
    try:
        found = read_header(path, **reading.options(path), streams=True)
    except DataError:  # a stack, a volume, or damaged: the usual way says what is wrong
        return False
    plane = found.channels == 1 and not found.lead
    return plane and found.height * found.width > array.STREAMED_PIXELS


def open_large(
    pair: MaskPair, reading: Reading, metrics: MetricsConfig, files: ExitStack
) -> tuple[list[StoredMap], LazyArray, LazyArray]:
    """Open a pair of which a file `is_large`, for as long as `files` is open.

    Returns
    -------
    What is known of each file, of a large one its size in place of its values; target and labels, each (H, W) or
    multilabel (K, H, W), whose lines are read when they are asked for.

    Raises
    ------
    DataError
        A measure or objects are asked for, which need the whole map; or what is wrong with the files.
    """
    _refuse_whole_maps(pair, reading, metrics)
    paths, count, in_time = (
        (*pair.references, *pair.predictions),
        len(pair.references),
        limit_of(pair, reading.timeout_s),
    )
    opened = [in_time(partial(files.enter_context, _open(path, reading, in_time))) for path in paths]
    rows = [in_time.lines(each.rows) for each in opened]
    target = _planes(rows[:count], multilabel=reading.spec.is_multilabel)
    if pair.predictions:
        labels = _planes(rows[count:], multilabel=reading.spec.is_multilabel)
    else:
        nothing = np.broadcast_to(np.zeros((), reading.spec.label_dtype), target.shape)
        labels = ArrayRows(nothing, axis=len(target.shape) - 2)
    return [each.stored for each in opened], target, labels


@dataclass(frozen=True, eq=False)
class _Opened:
    rows: LazyArray
    stored: StoredMap


@contextmanager
def _open(path: Path, reading: Reading, in_time: TimeLimit) -> Iterator[_Opened]:
    """The labels of one file, by rows where it is large."""
    if not is_large(path, reading):
        found = read_map(path, reading)
        labels = found.values if reading.label_map else check_labels(path, found.values, reading)
        yield _Opened(ArrayRows(labels), found)
        return
    with unchanged([path], in_time), open_map(path, reading) as rows:
        with open_array(path, **reading.options(path), streams=True) as found_again:
            geometry, sha256 = found_again.geometry, hash_map(path)
        size: NDArray[Any] = np.broadcast_to(np.zeros((), np.uint8), rows.shape)  # takes one byte
        yield _Opened(rows, StoredMap(values=size, geometry=geometry, sha256=sha256))


def _planes(rows: list[LazyArray], *, multilabel: bool) -> LazyArray:
    return stack_planes(rows) if multilabel else rows[0]


def _refuse_whole_maps(pair: MaskPair, reading: Reading, metrics: MetricsConfig) -> None:
    needs = [f"metrics.measures: {measure.name}" for measure in metrics.measures]
    needs += ["data.instances"] if reading.instances else []
    needs += ["metrics.calibration"] if metrics.calibration else []
    needs += ["data.invalid"] if reading.spec.count_invalid else []
    if needs:
        rule, remedy = (
            "to be counted alone, as it is read by rows",
            f"Leave out {', '.join(needs)}, or cut it into tiles.",
        )
        raise DataError(expected(show(pair.references[0]), "map", rule, "a measure that needs it whole", remedy))
