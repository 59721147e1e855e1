"""Large cases that are put together in memory all the same, for their probabilities: one at a time, or refused."""

from segmeter.data.files.array import Header
from segmeter.evaluation.large.cases import LargeRun
from segmeter.evaluation.memory import check_memory
from segmeter.inference.config import WHOLE_PIXELS
from segmeter.parallel import map_in_threads

_WORKING = 16  # bytes per pixel of labels, masks and what is drawn and counted of them, as measured
_ROUNDED = {"float32": 0, "float16": 2, "uint8": 9}  # bytes per probability, beside itself, as it is written
_CONFIDENCE = 12  # bytes per pixel of picking one of them
_REMEDY = "Set export.probs=false and export.confidence=false, with which large images are read by rows, or cut it."


def check_whole_maps(run: LargeRun, streamed: frozenset[int]) -> frozenset[int]:
    """Find the cases of more than `WHOLE_PIXELS` that are not read by rows; several at a time would fill the memory.

    Parameters
    ----------
    run
        One that keeps probabilities.
    streamed
        The cases that are read by rows.

    Raises
    ------
    InputError
        The largest of them takes more memory than is free.
    DataError
        The header of an image can't be read.
    """
    dataset = run.dataset
    indices = [index for index in range(len(dataset)) if index not in streamed]
    headers = map_in_threads(dataset.header_of, indices)
    large = {index: found for index, found in zip(indices, headers, strict=True) if _pixels(found) > WHOLE_PIXELS}
    if large:
        index, found = max(large.items(), key=lambda item: _pixels(item[1]))
        what = f"inference: case {dataset.case_ids[index]!r}, {found.height} x {found.width} with its probabilities"
        check_memory(_pixels(found) * _bytes_per_pixel(run, found), what=what, remedy=_REMEDY)
    return frozenset(large)


def _pixels(found: Header) -> int:
    return found.height * found.width


def _bytes_per_pixel(run: LargeRun, found: Header) -> int:
    probs = run.dataset.spec.num_channels * (4 + (_ROUNDED[run.export.probs_dtype] if run.export.probs else 0))
    return _WORKING + found.channels * found.dtype.itemsize + probs + (_CONFIDENCE if run.export.confidence else 0)
