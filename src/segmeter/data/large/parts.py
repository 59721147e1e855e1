"""Data set -> samples whose arrays stay in their files: slices of them are read when they are taken."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected
from segmeter.data.dataset import Dataset, hash_path
from segmeter.data.files.header import Header
from segmeter.data.files.label_mapping import to_labels
from segmeter.data.files.sniff import read_state, show
from segmeter.data.large.windows import WindowFile, has_windows
from segmeter.data.sample import Sample
from segmeter.errors import DataError

State = tuple[int, int, int, int]
ABSENT: State = (0, 0, 0, 0)
LEAST_PIXELS = 1 << 22  # of an image; smaller ones are decoded about as fast as the tiles that a window meets


class StoredArray:
    """An array of a file: ``image[rows, columns]`` and ``target[..., rows, columns]`` read that part of it."""

    def __init__(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], read: Callable[[slice, slice], NDArray[Any]], *, axis: int
    ) -> None:
        self.shape, self.dtype, self.ndim = shape, dtype, len(shape)
        self._read, self._axis = read, axis

    @property
    def nbytes(self) -> int:
        """Bytes that the whole array would take in memory."""
        return int(np.prod(self.shape)) * self.dtype.itemsize

    def __getitem__(self, key: tuple[Any, ...]) -> NDArray[Any]:
        rows, columns = key[1:] if key[0] is Ellipsis else key
        height, width = self.shape[self._axis : self._axis + 2]
        (top, bottom, _), (left, right, _) = rows.indices(height), columns.indices(width)
        return self._read(slice(top, bottom), slice(left, right))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self[..., slice(None), slice(None)].astype(dtype or self.dtype, copy=False)


class PartReader:
    """Gives the samples of large images without decoding them; safe to use from threads.

    A file's content is compared with the verified one when it is first read, and its size, times and inode from then
    on; of a Zarr folder those of the chunks that a window meets.

    Parameters
    ----------
    dataset
        Its images and masks are read in parts where all files of a case are TIFF, NPY or Zarr.
    """

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._samples: dict[int, Sample | None] = {}
        self._files: dict[Path, WindowFile] = {}
        self._states: dict[Path, dict[Path, State]] = {}  # of each file, or of all below a folder

    def __call__(self, index: int) -> Sample | None:
        """The sample of a case, whose arrays are a `StoredArray`; None where it is small or can't be read in parts."""
        if index not in self._samples:
            self._samples[index] = self._open(index)
        return self._samples[index]

    def _open(self, index: int) -> Sample | None:
        data, pair = self._dataset, self._dataset.pairs[index]
        image, *masks = [data.header_of(index, number) for number in range(len(pair.paths))]
        large = image.height * image.width >= LEAST_PIXELS and not data.instances
        exact = image.channels == data.in_channels and image.dtype.name in ("uint8", "uint16", "float32")
        plain = all(mask.channels == 1 and mask.dtype.kind in "iu" for mask in masks)
        if not (large and exact and plain and image.kind != "palette" and all(map(has_windows, (image, *masks)))):
            return None
        size = (image.height, image.width)
        lead = (len(masks),) if data.spec.is_multilabel else ()
        pixels = StoredArray((*size, image.channels), image.dtype, partial(self._image, index, image), axis=0)
        target = StoredArray((*lead, *size), data.spec.label_dtype, partial(self._target, index, masks), axis=len(lead))
        return Sample(
            case_id=pair.case_id,
            image=pixels,  # type: ignore[arg-type]
            target=target if masks else None,  # type: ignore[arg-type]
        )

    def _image(self, index: int, header: Header, rows: slice, columns: slice) -> NDArray[Any]:
        pixels = self._dataset.limit(index)(lambda: self._stored(index, 0, header, rows, columns))
        return pixels[..., None] if pixels.ndim == 2 else pixels

    def _target(self, index: int, headers: list[Header], rows: slice, columns: slice) -> NDArray[Any]:
        data, pair = self._dataset, self._dataset.pairs[index]
        read = partial(self._stored, index, rows=rows, columns=columns)
        planes = [data.limit(index)(partial(read, number, header)) for number, header in enumerate(headers, 1)]
        labels = [
            to_labels(path, plane, spec=data.spec, label_map=data.label_map, nodata=header.nodata)
            for path, header, plane in zip(pair.masks, headers, planes, strict=True)
        ]
        return data.stack(labels)

    def _stored(self, index: int, number: int, header: Header, rows: slice, columns: slice) -> NDArray[Any]:
        pair = self._dataset.pairs[index]
        path = Path(pair.paths[number])
        if path not in self._files:
            self._verify(path, pair.sha256[number] if pair.sha256 else "")
            options = {"level": self._dataset.level, "max_pixels": self._dataset.max_pixels}
            self._files[path] = WindowFile(path, header, **options)
        file, known = self._files[path], self._states[path]
        met = file.files(rows, columns)
        wanted = [known.get(each, ABSENT) for each in met]
        if [read_state(each) for each in met] != wanted:
            raise _changed(path)
        pixels = file.read(rows, columns)
        if [read_state(each) for each in met] != wanted:
            raise _changed(path)
        return pixels

    def _verify(self, path: Path, sha256: str) -> None:
        """Note the states of a file, or of those of a folder, once its content is that which was verified."""
        files = [each for each in path.rglob("*") if each.is_file()] if path.is_dir() else [path]
        states = {each: read_state(each) for each in files}
        if sha256 and hash_path(path) != sha256:
            raise _changed(path)
        self._states[path] = states


def _changed(path: Path) -> DataError:
    rule, remedy = "to have the content that was checked at the start", "Start again once the data is settled."
    return DataError(expected(show(path), "file", rule, "another content", remedy))
