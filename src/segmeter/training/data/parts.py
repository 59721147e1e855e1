"""Cuts windows from large images without decoding the rest of them: the arrays of a sample stay in their files."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.data.dataset import Dataset, content_changed
from segmeter.data.files.array import FileArray, Header
from segmeter.data.files.opened import open_array
from segmeter.data.files.sniff import read_state
from segmeter.data.masks.label_mapping import to_labels
from segmeter.data.masks.reading import has_pixels, hash_map
from segmeter.data.sample import Sample

State = tuple[int, int, int, int]
ABSENT: State = (0, 0, 0, 0)
LEAST_PIXELS = 1 << 22  # of an image; smaller ones decode about as fast as the tiles under a window
_READABLE = ("uint8", "uint16", "int16", "uint32", "int32", "float32")  # read as they are stored


def has_windows(header: Header) -> bool:
    """Tell whether windows of a file can be read: upright TIFF, NPY and Zarr with values that need no conversion."""
    plain = header.orientation == 1 and header.kind != "cmyk" and not header.lead
    return header.format in ("tiff", "npy", "zarr") and header.dtype.name in _READABLE and plain


class StoredArray:
    """An array in a file; ``image[rows, columns]`` and ``target[..., rows, columns]`` read that part."""

    def __init__(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], read: Callable[[slice, slice], NDArray[Any]], *, axis: int
    ) -> None:
        self.shape, self.dtype, self.ndim = shape, dtype, len(shape)
        self.nbytes = int(np.prod(shape)) * dtype.itemsize  # of the whole array in memory
        self._read, self._size = read, shape[axis : axis + 2]

    def __getitem__(self, key: tuple[Any, ...]) -> NDArray[Any]:
        (top, bottom, _), (left, right, _) = (
            span.indices(side) for span, side in zip(key[-2:], self._size, strict=True)
        )
        return self._read(slice(top, bottom), slice(left, right))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self[slice(None), slice(None)].astype(dtype or self.dtype, copy=False)


class PartReader:
    """Opens large cases without decoding them; threads may share it.

    At its first read a file's content is compared with the verified one. Later reads compare its size, times and inode,
    in a Zarr folder those of the chunks under a window.

    Parameters
    ----------
    dataset
        Its cases are read in parts if all of their files are TIFF, NPY or Zarr.
    """

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._samples: dict[int, Sample | None] = {}
        self._folders: dict[Path, FileArray] = {}  # of Zarr, which hold no file open
        self._states: dict[Path, dict[Path, State]] = {}  # of each file, or of all files below a folder

    def __call__(self, index: int) -> Sample | None:
        """Return a case with `StoredArray`s; None if it is small or can't be read in parts."""
        if index not in self._samples:
            self._samples[index] = self._open(index)
        return self._samples[index]

    def _open(self, index: int) -> Sample | None:
        data, pair = self._dataset, self._dataset.pairs[index]
        if data.reading.instances or not all(map(has_pixels, pair.files)):
            return None
        image, *masks = headers = [data.header_of(index, number) for number in range(len(pair.paths))]
        size = (image.height, image.width)
        exact = image.channels == data.in_channels and image.dtype.name in ("uint8", "uint16", "float32")
        plain = all(mask.channels == 1 and mask.dtype.kind in "iu" for mask in masks) and image.kind != "palette"
        if not (math.prod(size) >= LEAST_PIXELS and exact and plain and all(map(has_windows, headers))):
            return None
        lead = (len(masks),) if data.spec.is_multilabel else ()
        pixels = StoredArray((*size, image.channels), image.dtype, partial(self._image, index), axis=0)
        target = StoredArray((*lead, *size), data.spec.label_dtype, partial(self._target, index), axis=len(lead))
        arrays: dict[str, Any] = {"image": pixels, "target": target if masks else None}
        return Sample(case_id=pair.case_id, **arrays)

    def _image(self, index: int, rows: slice, columns: slice) -> NDArray[Any]:
        pixels, _ = self._stored(index, 0, rows, columns)
        return pixels[..., None] if pixels.ndim == 2 else pixels

    def _target(self, index: int, rows: slice, columns: slice) -> NDArray[Any]:
        data, labels = self._dataset, []
        for number, path in enumerate(data.pairs[index].masks, 1):
            plane, nodata = self._stored(index, number, rows, columns)
            labels.append(to_labels(path, plane, spec=data.spec, label_map=data.reading.label_map, nodata=nodata))
        return data.stack(labels)

    def _stored(self, index: int, number: int, rows: slice, columns: slice) -> tuple[NDArray[Any], Any]:
        """Read a window of a file's pixels within the case's time limit, and the value that marks missing data."""
        return self._dataset.limit(index)(partial(self._read, index, number, rows, columns))

    def _read(self, index: int, number: int, rows: slice, columns: slice) -> tuple[NDArray[Any], Any]:
        pair = self._dataset.pairs[index]
        path = Path(pair.paths[number])
        if path not in self._states:
            self._verify(path, pair.sha256[number] if pair.sha256 else "")
        known = self._states[path]
        with self._opened(path, is_mask=number > 0) as array:
            met = array.parts(rows, columns)
            try:
                pixels = np.ascontiguousarray(array.read(rows.start, rows.stop, columns))
            finally:  # a file that changed may be unreadable too
                if any(read_state(each) != known.get(each, ABSENT) for each in met):
                    raise content_changed(path)
            return pixels, array.nodata

    @contextmanager
    def _opened(self, path: Path, *, is_mask: bool) -> Iterator[FileArray]:
        if path in self._folders:
            yield self._folders[path]
            return
        reading = self._dataset.reading
        options = reading.options(path) if is_mask else {"level": reading.level, "max_pixels": reading.max_pixels}
        with open_array(path, **options, streams=self._dataset.streams) as array:
            if path.is_dir():
                self._folders[path] = array
            yield array

    def _verify(self, path: Path, sha256: str) -> None:
        """Record the state of a file, or of all files of a folder, if its content is the verified one."""
        files = [each for each in path.rglob("*") if each.is_file()] if path.is_dir() else [path]
        states = {each: read_state(each) for each in files}
        if sha256 and hash_map(path) != sha256:
            raise content_changed(path)
        self._states[path] = states
