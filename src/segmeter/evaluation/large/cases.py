"""A case that is read by rows -> its files, its row of counts, and a small picture of it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected
from segmeter.classes import ClassSpec
from segmeter.data.by_rows.rows import Rows
from segmeter.data.by_rows.thumbnail import Tapped, Thumbnail, thumbnail_step
from segmeter.data.dataset import Dataset
from segmeter.data.sample import Sample
from segmeter.errors import ConfigError, DataError
from segmeter.export.banded import Bands, open_bands
from segmeter.export.config import ExportConfig
from segmeter.export.labels import palette_of
from segmeter.export.writer import BLACK, class_folder, labels_dtype
from segmeter.files import describe_file, safe_id
from segmeter.inference.async_results import Prediction
from segmeter.inference.bands import Band, BandLoss, sums_by_bands
from segmeter.inference.config import WHOLE_PIXELS, InferenceConfig
from segmeter.inference.predictor import Loss, Predictor
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.cases.typed import divide_terms
from segmeter.metrics.pixels.confusion import count_case
from segmeter.metrics.pixels.target_hash import TargetHash
from segmeter.parallel import map_in_threads
from segmeter.postprocess.banded import BandedSteps, unbounded_steps
from segmeter.postprocess.config import PostprocessConfig
from segmeter.postprocess.pipeline import Cleaned

ROWS_PIXELS = 1 << 23  # of the largest image in tiles that is read at once: small ones are read ahead of each other


WriteLabels = Callable[[str, NDArray[Any]], None]


@dataclass(frozen=True, kw_only=True)
class LargeRun:
    """What is done with each case that is read by rows.

    Parameters
    ----------
    predictor, dataset, export, postprocess
        As for any case.
    folder
        The predictions folder.
    loss
        A sum over pixels, or None.
    measured
        Whether pixels are counted, which needs a target.
    spacing
        Of the row.
    """

    predictor: Predictor
    dataset: Dataset
    export: ExportConfig
    postprocess: PostprocessConfig
    folder: Path
    loss: Loss | None = None
    measured: bool = False
    spacing: tuple[float, ...] | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class LargeCase:
    """A finished one: `prediction` and `cleaned` hold the small picture, every n-th pixel of the case.

    `note` and `files` are what the manifest notes: how it was run, and size and hash of each file that was written by
    bands, by its name.
    """

    prediction: Prediction
    cleaned: Cleaned
    row: CaseRow | None
    note: dict[str, Any]
    files: dict[str, dict[str, Any]]


def check_streamable(run: LargeRun, *, measures: Sequence[str] = (), calibration: bool = False) -> None:
    """Refuse, all at once, what needs a whole map at a time, where there are cases that are read by rows.

    Raises
    ------
    ConfigError
        One line per setting.
    """
    streamed = sorted(run.dataset.streamed_cases())
    if not streamed:
        return
    needs = _whole_map_needs(run.export, run.postprocess, run.dataset.spec)
    needs += [(f"metrics.measures: {name}", "Leave it out; pixels are counted.") for name in measures]
    needs += [("metrics.calibration", "Set it to false.")] if calibration else []
    if run.loss is not None and not sums_by_bands(run.loss):
        needs.append(("loss", "Set loss=focal, which is a sum over pixels."))
    rule = f"to work by rows, as {_why_by_rows(run.dataset, streamed[0])}"
    if needs:
        raise ConfigError([expected("config", what, rule, "what needs it whole", remedy) for what, remedy in needs])


def _why_by_rows(dataset: Dataset, index: int) -> str:
    found = dataset.header_of(index)
    why = "a Zarr image" if found.format == "zarr" else f"{found.height} x {found.width} pixels"
    return f"case {dataset.case_ids[index]!r} is read by rows ({why})"


def _whole_map_needs(export: ExportConfig, postprocess: PostprocessConfig, spec: ClassSpec) -> list[tuple[str, str]]:
    """What is asked for that needs a whole map at a time, each with its remedy."""
    steps = unbounded_steps(postprocess.steps, spec)
    needs = [(f"postprocess.{name}", "Leave it out; an opening needs `fill`.") for name in steps]
    flags = [name for name in ("probs", "confidence") if getattr(export, name)]
    needs += [(f"export.{name}", "Set it to false.") for name in flags]
    return needs + ([("export.objects", "Set it to [].")] if export.objects else [])


def prefer_rows(
    dataset: Dataset, *, inference: InferenceConfig, export: ExportConfig, postprocess: PostprocessConfig
) -> Dataset:
    """The same data set, which gives images that are run in tiles by rows, unless something needs a whole map.

    Their labels are the same either way: what differs is the memory.
    """
    if _whole_map_needs(export, postprocess, dataset.spec):
        return dataset
    tile = inference.tile
    return replace(dataset, rows_above=WHOLE_PIXELS if tile is None else max(ROWS_PIXELS, tile**2))


def fits_memory(dataset: Dataset, index: int) -> bool:
    """Whether the image of a case could be read at once, so that its labels are written as those of any other."""
    return not dataset.header_of(index).streamed


def describe_large(case_id: str, image: Rows) -> dict[str, Any]:
    """What a case's entry notes of its image: the case is a batch of its own."""
    return {"image": [*image.shape, str(image.dtype), "by rows", case_id]}


def run_large(run: LargeRun, index: int, *, write_labels: WriteLabels | None) -> LargeCase:
    """Predict one case by bands: post-processing, counting and writing go on beside the forward passes.

    Parameters
    ----------
    write_labels
        Takes case id and labels of a case that fits into memory; None writes them nowhere. Those of larger cases are
        written by bands.

    Raises
    ------
    DataError
        A file is damaged, or the target is missing.
    RunError
        Logits are not finite, or a file can't be written.
    """
    with run.dataset.open_rows(index) as (image, target):
        fits, case_id = fits_memory(run.dataset, index), run.dataset.case_ids[index]
        work = _Work(run=run, case_id=case_id, image=image, target=target, fits=fits, write_labels=write_labels)
        work.go()
        return work.case()


@dataclass(kw_only=True, eq=False)
class _Work:
    """One case under way."""

    run: LargeRun
    case_id: str
    image: Rows
    target: Rows | None
    fits: bool
    write_labels: WriteLabels | None
    counts: NDArray[np.int64] = field(init=False)
    target_hash: TargetHash = field(init=False)
    loss: BandLoss | None = None
    names: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        spec, (height, width) = self.run.dataset.spec, self.image.shape[:2]
        if self.run.measured and self.target is None:
            raise DataError(f"evaluate: expected a target for every case, got none for {self.case_id}. Use predict.")
        self.counts, self.target_hash = np.zeros(spec.counts_shape, np.int64), TargetHash(spec)
        self.steps = BandedSteps(self.run.postprocess.steps, spec, height=height)
        stride = thumbnail_step(height, width)
        axes = {"image": -3, "labels": -2, "target": -2}
        self.pictures = {name: Thumbnail(stride, axis) for name, axis in axes.items()}
        self.tapped = Tapped(self.image, self.pictures["image"])
        if self.target is not None and sums_by_bands(self.run.loss):
            self.loss = BandLoss(self.run.loss, self.run.predictor.device)
        self._waiting: list[NDArray[Any]] = []  # rows of the target whose labels are not given out yet
        self._top = 0
        kept = self.fits and self.run.export.labels and self.write_labels is not None
        shape = (spec.num_classes, height, width) if spec.is_multilabel else (height, width)
        self._whole = np.empty(shape, spec.label_dtype) if kept else None

    def go(self) -> None:
        """Run all bands."""
        with ExitStack() as stack:
            sinks = self._open(stack)
            stream = self.run.predictor.stream(self.tapped, case_id=self.case_id, target=self.target, loss=self.loss)
            finished = map_in_threads(lambda band: self._finish(band, sinks), stream, threads=1, ahead=2, name="finish")
            with closing(finished):
                for _ in finished:
                    pass
        if self._whole is not None and self.write_labels is not None:
            self.write_labels(self.case_id, self._whole)

    def case(self) -> LargeCase:
        """What is left of the case, when all bands are done."""
        run, (height, width) = self.run, self.image.shape[:2]
        row = None
        if run.measured:
            terms = None if self.loss is None else self.loss.terms()
            row = CaseRow(
                case_id=self.case_id,
                height=height,
                width=width,
                counts=self.counts,
                loss=None if terms is None else divide_terms(terms[None]),
                loss_terms=()
                if terms is None
                else tuple((sums, denominators) for sums, denominators in terms.tolist()),
                changed_pixels=self.steps.changed,
                spacing=run.spacing,
                target_crc32=self.target_hash.value(),
            )
        image, labels = self.pictures["image"].pixels(), self.pictures["labels"].pixels()
        target = None if self.target is None else self.pictures["target"].pixels()
        sample = Sample(case_id=self.case_id, image=image, target=target)
        return LargeCase(
            prediction=Prediction(sample=sample, labels=labels),
            cleaned=Cleaned(labels=labels, instances=None, changed=self.steps.changed),
            row=row,
            note=describe_large(self.case_id, self.image),
            files={name: describe_file(run.folder / name) for name in self.names},
        )

    def _open(self, stack: ExitStack) -> list[Bands]:
        run, spec = self.run, self.run.dataset.spec
        if run.export.labels and not self.fits:
            self.names = label_files(self.case_id, run.export, spec)
        height, width = self.image.shape[:2]
        dtype = labels_dtype(run.export, spec)
        layout: dict[str, Any] = {"shape": (height, width), "dtype": dtype, "compression": run.export.compression}
        layout["location"] = run.dataset.locate(self.case_id)
        colours = [(BLACK, colour) for colour in spec.colours] if spec.is_multilabel else [spec.colours]
        palettes = [palette_of(each, spec.ignore_index) if dtype.itemsize == 1 else None for each in colours]
        return [
            stack.enter_context(open_bands(run.folder / name, palette=palette, **layout))
            for name, palette in zip(self.names, palettes, strict=bool(self.names))
        ]

    def _finish(self, band: Band, sinks: Sequence[Bands]) -> None:
        """Post-process, count and write a band, in a thread that gets one after the other."""
        stages, spec = self.run.predictor.stages, self.run.dataset.spec
        with stages.timed("post-process"):
            labels = self.steps.push(band.labels)
        if band.target is not None:
            with stages.timed("measure"):
                target = self._target_of(labels, band.target)
                if self.run.measured and labels.shape[-2]:
                    self.counts += count_case(target, labels, spec)
                    self.target_hash.add(target)
            self.pictures["target"].add(self._top, target)
        self.pictures["labels"].add(self._top, labels)
        if self._whole is not None:
            self._whole[..., self._top : self._top + labels.shape[-2], :] = labels
        with stages.timed("write"):
            planes = labels if spec.is_multilabel else [labels]
            for sink, plane in zip(sinks, planes, strict=False):
                sink.write(plane.astype(labels_dtype(self.run.export, spec), copy=False))
        self._top += labels.shape[-2]

    def _target_of(self, labels: NDArray[Any], target: NDArray[Any]) -> NDArray[Any]:
        """The rows of the target that these labels belong to; post-processing holds some back."""
        held = np.concatenate([*self._waiting, target], -2)
        count = labels.shape[-2]
        self._waiting = [held[..., count:, :]]
        return held[..., :count, :]


def label_files(case_id: str, export: ExportConfig, spec: ClassSpec) -> list[str]:
    """Names of the files of a case's labels, one per class for multilabel: Zarr where asked for, else tiled BigTIFF."""
    name = f"{safe_id(case_id)}{'.zarr' if export.labels_format == 'zarr' else '.tif'}"
    if not spec.is_multilabel:
        return [f"labels/{name}"]
    return [f"labels/{class_folder(each)}/{name}" for each in spec.names]


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
