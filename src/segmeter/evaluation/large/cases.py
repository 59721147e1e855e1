"""Predicts images too large for memory some lines at a time, and refuses what needs their whole map.

Labels wait in a temporary file. Counting and writing then read them by lines, as they read any other map.
"""

import math
import tempfile
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected
from segmeter.classes import ClassSpec
from segmeter.data.dataset import Dataset
from segmeter.data.files.array import Header, LazyArray
from segmeter.data.sample import Sample
from segmeter.data.thumbnail import Thumbnail, tapped, thumbnail_step
from segmeter.errors import ConfigError
from segmeter.evaluation.memory import check_memory
from segmeter.export.config import ExportConfig
from segmeter.files import make_folder
from segmeter.inference.async_results import Prediction
from segmeter.inference.bands import BandLoss, sums_by_bands
from segmeter.inference.config import WHOLE_PIXELS, InferenceConfig
from segmeter.inference.predictor import Loss, Predictor
from segmeter.parallel import map_in_threads
from segmeter.postprocess.banded import BandedSteps, unbounded_steps
from segmeter.postprocess.config import PostprocessConfig
from segmeter.postprocess.pipeline import Cleaned

ROWS_PIXELS = 1 << 23  # of the largest image in tiles that is read at once: small ones are read ahead of each other

_WORKING = 16  # bytes per pixel of labels, masks and what is drawn and counted of them, as measured
_ROUNDED = {"float32": 0, "float16": 2, "uint8": 9}  # bytes per probability, beside itself, as it is written
_CONFIDENCE = 12  # bytes per pixel of picking one of them


class Spool:
    """Labels in a temporary file that nobody else sees, written from top to bottom, then read by lines.

    Parameters
    ----------
    folder
        Where the file is made: it takes one or two bytes per pixel there, times K for multilabel.
    shape
        (H, W), multilabel (K, H, W).
    dtype
        Of the labels.
    """

    def __init__(self, folder: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.shape, self.dtype = shape, dtype
        make_folder(folder)
        self._file: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  (read for as long as this is)
        weakref.finalize(self, self._file.close)  # once the files of the case are written
        self._turn = threading.Lock()
        self._line = (*shape[:-2], shape[-1])  # of one line, as it is stored

    def append(self, rows: NDArray[Any]) -> None:
        """Add the next lines, (..., h, W)."""
        self._file.write(np.moveaxis(rows, -2, 0).tobytes())

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Read lines, as any lazy array does; nothing may be appended meanwhile."""
        size = math.prod(self._line) * self.dtype.itemsize
        with self._turn:
            self._file.seek(start * size)
            content = self._file.read((stop - start) * size)
        return np.moveaxis(np.frombuffer(content, self.dtype).reshape(stop - start, *self._line), 0, -2)


def predict_lines(
    predictor: Predictor,
    dataset: Dataset,
    index: int,
    *,
    image: LazyArray,
    target: LazyArray | None,
    postprocess: PostprocessConfig,
    folder: Path,
    loss: Loss | None,
) -> tuple[Prediction, Cleaned]:
    """Predict and post-process one case that is read by lines.

    Parameters
    ----------
    image, target
        From `Dataset.open_rows`.
    folder
        Where labels wait.

    Returns
    -------
    The prediction, whose image is every n-th pixel of the case, and what post-processing left. Labels of both are the
    same `Spool`, and the target is read by lines too.

    Raises
    ------
    DataError
        A file is damaged.
    RunError
        Logits are not finite, or memory ran out.
    """
    spec, case_id, (height, width) = dataset.spec, dataset.case_ids[index], image.shape[:2]
    shape = (spec.num_classes, height, width) if spec.is_multilabel else (height, width)
    spool, steps = Spool(folder, shape, spec.label_dtype), BandedSteps(postprocess.steps, spec, height=height)
    picture = Thumbnail(thumbnail_step(height, width), -3)
    sums = BandLoss(loss, predictor.device) if target is not None and sums_by_bands(loss) else None
    stream = predictor.stream(tapped(image, picture), case_id=case_id, target=target, loss=sums)

    def keep(labels: NDArray[Any]) -> None:
        with predictor.stages.timed("post-process"):
            spool.append(steps.push(labels))

    found = (band.labels for band in stream)
    with closing(map_in_threads(keep, found, threads=1, ahead=2, name="post-process")) as kept:
        for _ in kept:
            pass
    sample = Sample(case_id=case_id, image=picture.pixels(), target=target)  # type: ignore[arg-type]
    labels: Any = spool
    prediction = Prediction(sample=sample, labels=labels, loss=None if sums is None else sums.terms())
    return prediction, Cleaned(labels=labels, instances=None, changed=steps.changed)


def check_streamable(
    dataset: Dataset,
    *,
    export: ExportConfig,
    postprocess: PostprocessConfig,
    loss: Loss | None = None,
    measures: Sequence[str] = (),
    calibration: bool = False,
) -> None:
    """Refuse, all at once, what needs a whole map at a time, where there are cases that are read by lines.

    Raises
    ------
    ConfigError
        One line per setting.
    """
    streamed = sorted(dataset.streamed_cases())
    if not streamed:
        return
    needs = _whole_map_needs(export, postprocess, dataset.spec)
    needs += [(f"metrics.measures: {name}", "Leave it out; pixels are counted.") for name in measures]
    needs += [("metrics.calibration", "Set it to false.")] if calibration else []
    if loss is not None and not sums_by_bands(loss):
        needs.append(("loss", "Set loss=focal, which is a sum over pixels."))
    found = dataset.header_of(streamed[0])
    why = "a Zarr image" if found.format == "zarr" else f"{found.height} x {found.width} pixels"
    rule = f"to work by rows, as case {dataset.case_ids[streamed[0]]!r} is read by rows ({why})"
    if needs:
        raise ConfigError([expected("config", what, rule, "what needs it whole", remedy) for what, remedy in needs])


def _whole_map_needs(export: ExportConfig, postprocess: PostprocessConfig, spec: ClassSpec) -> list[tuple[str, str]]:
    """Find the settings that need a whole map at a time, each with its remedy."""
    steps = unbounded_steps(postprocess.steps, spec)
    needs = [(f"postprocess.{name}", "Leave it out; an opening needs `fill`.") for name in steps]
    flags = [name for name in ("probs", "confidence") if getattr(export, name)]
    needs += [(f"export.{name}", "Set it to false.") for name in flags]
    return needs + ([("export.objects", "Set it to [].")] if export.objects else [])


def prefer_rows(
    dataset: Dataset, *, inference: InferenceConfig, export: ExportConfig, postprocess: PostprocessConfig
) -> Dataset:
    """The same data set, which gives images that are run in tiles by lines, unless something needs a whole map.

    Their labels are the same either way: what differs is the memory.
    """
    if _whole_map_needs(export, postprocess, dataset.spec):
        return dataset
    tile = inference.tile
    return replace(dataset, rows_above=WHOLE_PIXELS if tile is None else max(ROWS_PIXELS, tile**2))


def check_whole_maps(dataset: Dataset, export: ExportConfig, streamed: frozenset[int]) -> frozenset[int]:
    """Find the cases of more than `WHOLE_PIXELS` that are not read by lines; several at a time would fill the memory.

    Parameters
    ----------
    dataset
        Cases whose probabilities are kept.
    export
        Says what is written of them.
    streamed
        The cases that are read by lines.

    Raises
    ------
    InputError
        The largest of them takes more memory than is free.
    DataError
        The header of an image can't be read.
    """
    indices = [index for index in range(len(dataset)) if index not in streamed]
    headers = map_in_threads(dataset.header_of, indices)
    large = {index: found for index, found in zip(indices, headers, strict=True) if _pixels(found) > WHOLE_PIXELS}
    if large:
        index, found = max(large.items(), key=lambda item: _pixels(item[1]))
        probs = dataset.spec.num_channels * (4 + (_ROUNDED[export.probs_dtype] if export.probs else 0))
        each = _WORKING + found.channels * found.dtype.itemsize + probs + (_CONFIDENCE if export.confidence else 0)
        what = f"inference: case {dataset.case_ids[index]!r}, {found.height} x {found.width} with its probabilities"
        remedy = (
            "Set export.probs=false and export.confidence=false, with which large images are read by rows, or cut it."
        )
        check_memory(_pixels(found) * each, what=what, remedy=f"{remedy}, or cut it.")
    return frozenset(large)


def _pixels(found: Header) -> int:
    return found.height * found.width


def split_parts(indices: range, alone: frozenset[int]) -> Iterator[range]:
    """Split consecutive indices so that each of `alone` is a part of its own.

    Examples
    --------
    >>> list(split_parts(range(2, 8), frozenset({3, 4})))
    [range(2, 3), range(3, 4), range(4, 5), range(5, 8)]
    """
    start = indices.start
    for index in sorted(alone & set(indices)):
        if start < index:
            yield range(start, index)
        yield range(index, index + 1)
        start = index + 1
    if start < indices.stop:
        yield range(start, indices.stop)
