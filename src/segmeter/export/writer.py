"""One case's arrays -> its files under predictions/, checked before they are queued."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected
from segmeter.classes import ClassSpec, Colour
from segmeter.data.files.array import LazyArray
from segmeter.data.location import UNKNOWN, Location
from segmeter.errors import ConfigError, InputError
from segmeter.export import formats
from segmeter.export.config import ExportConfig, ProbsDtype
from segmeter.export.itk import ENCODERS
from segmeter.export.labels import encode_labels_png, palette_of
from segmeter.export.objects import OBJECT_FILES, Encode
from segmeter.export.queue import Write, WriteQueue
from segmeter.files import safe_id, write_bytes
from segmeter.progress import Stages

MIB = 2**20
BLACK: Colour = (0, 0, 0)
_MOST_INSTANCES = 2**31 - 1  # what int32 holds
_PROBS: dict[str, tuple[str, Write]] = {
    "npy": (".npy", formats.write_npy),
    "npz": (".npz", formats.write_npz),
    "zarr": (".zarr", formats.write_zarr),
}


class Writer:
    """Writes label maps, probabilities and instances in threads; use it as a context manager.

    Arrays are copied on entry, so the caller may reuse them. A `write_` call waits while the queue is full. After the
    first fault nothing more is written: that fault is raised by the next call and by `close`, naming the case.
    Leaving the block by an exception (Ctrl-C too) finishes the files being written and drops those that wait.

    Parameters
    ----------
    folder
        The predictions folder; labels/, probs/ and instances/ are made in it when first needed.
    config
        Formats, threads and the queue's size.
    spec
        Gives label maps their range and colours.
    hashed
        Whether files are hashed when they are written, for `take_written`.
    stages
        Where the time that writing takes is added up; None does not count it.
    locate
        From the id of a case to where its pixels lie, which TIFF files, and label maps in Zarr, then say; called in
        threads.

    Raises
    ------
    ConfigError
        ``export.dtype`` can't hold every class and the ignored value.
    """

    def __init__(
        self,
        folder: Path,
        config: ExportConfig,
        spec: ClassSpec,
        *,
        hashed: bool = False,
        stages: Stages | None = None,
        locate: Callable[[str], Location] = lambda case_id: UNKNOWN,
    ) -> None:
        self.folder = folder
        self._locate = locate
        self.config = config
        self.spec = spec
        self.dtype = labels_dtype(config, spec)
        self._taken: set[Path] = set()
        self._fresh: list[str] = []
        self._queue = WriteQueue(workers=config.workers, limit=config.queue_mb * MIB, hashed=hashed, stages=stages)

    def queued_names(self) -> list[str]:
        """The files that were queued since the last call, relative to the folder."""
        names, self._fresh = self._fresh, []
        return names

    def take_written(self, names: Sequence[str]) -> dict[str, dict[str, Any]] | None:
        """Size and hash of files, by their names relative to the folder, once; None until all are complete."""
        found = self._queue.take_written([self.folder / name for name in names])
        return None if found is None else dict(zip(names, found, strict=True))

    def write_labels(self, case_id: str, labels: NDArray[Any] | LazyArray) -> None:
        """Queue a label map of any integer dtype.

        One that is read by lines, as it does not fit into memory, becomes a BigTIFF, or a Zarr folder where label maps
        are Zarr.

        (H, W) becomes labels/<case>.png or .tif. For multilabel, (K, H, W) becomes one file per class,
        labels/<class>/<case>.png or .tif, which is how multilabel masks are read.

        Raises
        ------
        InputError
            Shape or dtype is wrong, a value is neither a class nor the ignored one, or the case was written before.
        RunError
            An earlier file could not be written.
        """
        spec = self.spec
        folders: list[tuple[str, int | None, tuple[Colour, ...]]] = [("labels", None, spec.colours)]
        if spec.is_multilabel:
            named = enumerate(zip(spec.names, spec.colours, strict=True))
            folders = [(f"labels/{class_folder(name)}", number, (BLACK, colour)) for number, (name, colour) in named]
        if isinstance(labels, np.ndarray):
            _check_labels(case_id, labels, spec)
            labels = labels.astype(self.dtype, order="C")
        for folder, number, colours in folders:
            if not isinstance(labels, np.ndarray):
                plane: Any = formats.LinesOf(labels, self.dtype, number)
            else:
                plane = labels if number is None else labels[number]
            self._put_labels(case_id, folder, plane, colours)

    def write_probs(self, case_id: str, probs: NDArray[np.float32]) -> None:
        """Queue probabilities, (C, H, W) float32 in [0, 1], as probs/<case>; raises as `write_labels` does."""
        if probs.dtype != np.float32 or probs.ndim != 3 or not probs.size:
            given = f"{probs.dtype} {probs.shape} for case {case_id!r}"
            raise InputError(expected("write_probs", "probs", "(C, H, W) float32", given))
        if not (probs.min() >= 0 and probs.max() <= 1):  # NaN fails both
            given = f"{probs.min()} to {probs.max()} for case {case_id!r}"
            raise InputError(expected("write_probs", "probs", "to be in [0, 1]", given, "Apply softmax or sigmoid."))
        suffix, write = {**_PROBS, "tiff": (".tif", self._tiff(case_id))}[self.config.probs_format]
        dtype = self.config.probs_dtype
        named = suffix if dtype == "float32" else f".{dtype}{suffix}"
        self._put(case_id, f"probs/{safe_id(case_id)}{named}", _rounded(probs, dtype), write)

    def write_confidence(self, case_id: str, probs: NDArray[np.float32], labels: NDArray[Any]) -> None:
        """Queue the probability of what was predicted, (H, W) or for multilabel (K, H, W), as confidence/<case>.tif.

        Parameters
        ----------
        probs
            (C, H, W) float32: softmax, or of binary (1, H, W) and multilabel sigmoid.
        labels
            As for `write_labels`, before post-processing.
        """
        _check_labels(case_id, labels, self.spec)
        if self.spec.task == "multiclass":
            chosen = np.take_along_axis(probs, labels[None].astype(np.intp), axis=0)[0]
        else:
            present = probs if self.spec.is_multilabel else probs[0]
            chosen = np.where(labels == 1, present, 1 - present)
        content = chosen.astype(np.float32, order="C")
        self._put(case_id, f"confidence/{safe_id(case_id)}.tif", content, self._tiff(case_id))

    def write_instances(self, case_id: str, instances: NDArray[Any]) -> None:
        """Queue an instance map of any integer dtype, 0 = background, as instances/<case>; raises as `write_labels`.

        (H, W) up to 65535 objects is uint16; more, or (K, H, W), int32. It is a PNG where label maps are and it is
        uint16, else a TIFF, which says where its pixels lie.
        """
        highest = _check_instances(case_id, instances)
        name = f"instances/{safe_id(case_id)}"
        short = instances.ndim == 2 and highest <= np.iinfo(np.uint16).max
        content = instances.astype(np.uint16 if short else np.int32, order="C")
        if short and self.config.labels_format == "png":
            return self._put(case_id, f"{name}.png", content, _write_grey_png)
        return self._put(case_id, f"{name}.tif", content, self._tiff(case_id))

    def write_objects(self, case_id: str, labels: NDArray[Any], instances: NDArray[Any] | None) -> None:
        """Queue the files of ``export.objects`` as objects/<case>: outlines, run lengths, measurements.

        Parameters
        ----------
        labels, instances
            As for `write_labels` and `write_instances`; without instances the parts of each class that touch are its
            objects.

        Raises
        ------
        InputError, RunError
            As `write_labels` does.
        """
        _check_labels(case_id, labels, self.spec)
        if instances is not None:
            _check_instances(case_id, instances)
        maps = [labels] if instances is None else [labels, instances]
        for name in self.config.objects:
            suffix, encode = OBJECT_FILES[name]
            write = partial(_write_objects, case_id=case_id, spec=self.spec, encode=encode)
            self._put(case_id, f"objects/{safe_id(case_id)}{suffix}", np.stack(maps).astype(np.int32), write)

    def close(self) -> int:
        """Wait for every queued file; returns how many were written in all, or raises the first fault (RunError)."""
        return self._queue.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._queue.abandon()

    def _put_labels(
        self, case_id: str, folder: str, labels: NDArray[Any] | formats.LinesOf, colours: tuple[Colour, ...]
    ) -> None:
        form, name = self.config.labels_format, f"{folder}/{safe_id(case_id)}"
        if form == "zarr":
            write_zarr = partial(formats.write_zarr, locate=partial(self._locate, case_id))
            self._put(case_id, f"{name}.zarr", labels, write_zarr)
        elif form == "tiff" or isinstance(labels, formats.LinesOf):
            palette = palette_of(colours, self.spec.ignore_index) if labels.dtype.itemsize == 1 else None
            self._put(case_id, f"{name}.tif", labels, self._tiff(case_id, palette))
        elif form in ENCODERS:
            self._put(
                case_id, f"{name}.{form}", labels, partial(_write_itk, form=form, locate=partial(self._locate, case_id))
            )
        else:
            write = partial(_write_labels_png, colours=colours, ignore_index=self.spec.ignore_index)
            self._put(case_id, f"{name}.png", labels, write)

    def _tiff(self, case_id: str, palette: NDArray[np.uint16] | None = None) -> Write:
        locate = partial(self._locate, case_id)
        return partial(formats.write_tiff, compression=self.config.compression, palette=palette, locate=locate)

    def _put(self, case_id: str, name: str, array: Any, write: Write) -> None:
        path = self.folder / name
        if path in self._taken:
            raise InputError(expected("Writer", "case_id", f"to be new under {path.parent.name}", repr(case_id)))
        self._taken.add(path)
        self._fresh.append(name)
        self._queue.put(case_id, path, array, write)


def labels_dtype(config: ExportConfig, spec: ClassSpec) -> np.dtype[Any]:
    """The dtype of exported label maps: uint8 unless a class or the ignored value is above 255.

    Raises
    ------
    ConfigError
        ``export.dtype`` can't hold them.
    """
    wanted = spec.label_dtype if config.dtype == "auto" else np.dtype(config.dtype)
    if wanted.itemsize < spec.label_dtype.itemsize:
        highest = max(spec.num_values - 1, spec.ignore_index or 0)
        given, remedy = (
            f"{config.dtype!r} for labels up to {highest}",
            "Set export.dtype=uint16, which holds up to 65535.",
        )
        raise ConfigError(expected("export", "dtype", "to hold every label", given, remedy))
    return wanted


def _check_labels(case_id: str, labels: NDArray[Any], spec: ClassSpec) -> None:
    multilabel = spec.is_multilabel
    axes = f"({spec.num_classes}, H, W)" if multilabel else "(H, W)"
    shaped = labels.ndim == 3 and len(labels) == spec.num_classes if multilabel else labels.ndim == 2
    if labels.dtype.kind not in "iu" or not shaped or not labels.size:
        given = f"{labels.dtype} {labels.shape} for case {case_id!r}"
        raise InputError(expected("write_labels", "labels", f"{axes}, integer", given))
    if labels.min() >= 0 and labels.max() < spec.num_values:
        return
    found = np.unique(labels)
    strange = found[(found < 0) | (found >= spec.num_values)].tolist()
    if strange != [spec.ignore_index]:
        given = f"{strange[:5]} in case {case_id!r}"
        raise InputError(expected("write_labels", "labels", f"to be in 0 .. {spec.num_values - 1}", given))


def _check_instances(case_id: str, instances: NDArray[Any]) -> int:
    """Check the instances, and return the highest number."""
    if instances.dtype.kind not in "iu" or instances.ndim not in (2, 3) or not instances.size:
        given = f"{instances.dtype} {instances.shape} for case {case_id!r}"
        raise InputError(expected("write_instances", "instances", "(H, W) or (K, H, W), integer", given))
    low, high = int(instances.min()), int(instances.max())
    if low < 0 or high > _MOST_INSTANCES:
        given = f"{low} to {high} for case {case_id!r}"
        raise InputError(expected("write_instances", "instances", f"to be in 0 .. {_MOST_INSTANCES}", given))
    return high


def class_folder(name: str) -> str:
    """A class's folder: its name where that is one, as the data sets read it."""
    return name if Path(name).name == name and not name.startswith(".") and name.isprintable() else safe_id(name)


def _rounded(probs: NDArray[np.float32], dtype: ProbsDtype) -> NDArray[Any]:
    """A copy in the wanted dtype, or what nobody can change as it is; uint8 is the nearest of 255 steps."""
    if dtype == "uint8":
        return np.rint(probs * 255).astype(np.uint8)
    return probs.astype(dtype, order="C", copy=probs.flags.writeable)


def _write_objects(path: Path, maps: NDArray[Any], *, case_id: str, spec: ClassSpec, encode: Encode) -> None:
    write_bytes(path, encode(case_id, maps[0], maps[1] if len(maps) > 1 else None, spec))


def _write_labels_png(
    path: Path, labels: NDArray[Any], *, colours: tuple[Colour, ...], ignore_index: int | None
) -> None:
    write_bytes(path, encode_labels_png(labels, colours, ignore_index=ignore_index))


def _write_itk(path: Path, labels: NDArray[Any], *, form: str, locate: formats.Locate) -> None:
    write_bytes(path, ENCODERS[form](labels, locate()))


def _write_grey_png(path: Path, array: NDArray[Any]) -> None:
    write_bytes(path, encode_labels_png(array, ()))
