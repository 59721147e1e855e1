"""Zarr folder -> rows of one level of its picture, its kind and size known before a chunk is read."""

import threading
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected
from segmeter.data.files.header import Header, Kind
from segmeter.data.files.sniff import damaged, show
from segmeter.data.files.zarr import open_picture
from segmeter.data.files.zarr_chunks import check_chunks
from segmeter.errors import DataError

_KINDS: dict[int, Kind] = {1: "gray", 3: "rgb"}


class ZarrRows:
    """The rows of a Zarr array, or of a level of OME multiscales, as they are stored: (H, W), or (H, W, C).

    Parameters
    ----------
    path
        The folder of an array or group.
    level
        Which level of the multiscales, 0 being the finest.
    max_pixels
        The most pixels of a chunk.
    checked
        Whether the chunks are checked, which any reading needs; the header does not.

    Raises
    ------
    DataError
        There is no such array, its axes are no (height, width) with channels before or behind, or its chunks are too
        large or unpack to more than their pixels.
    """

    def __init__(self, path: Path, *, level: int, max_pixels: int, checked: bool = True) -> None:
        try:
            found = open_picture(path, level=level)
            self._array, self.levels = found.array, found.levels
            self._axes = _plane_axes(path, found.axes, tuple(self._array.shape))
            self._lead = (0,) * (self._array.ndim - len(self._axes))
            sizes = dict(zip(self._axes, self._array.shape[len(self._lead) :], strict=True))
            self.height, self.width, self.samples = sizes["y"], sizes["x"], sizes.get("c", 1)
            self.dtype: np.dtype[Any] = np.dtype(self._array.dtype).newbyteorder("=")
            if checked:
                check_chunks(path, self._array, found.note, folder=found.folder, max_pixels=max_pixels, large=True)
        except DataError:
            raise
        except Exception as error:  # zarr, its codecs and JSON raise many types on hostile bytes
            raise damaged(path, error) from error
        self._path, self._folder, self._lock = path, found.folder, threading.Lock()

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.height, self.width) if self.samples == 1 else (self.height, self.width, self.samples)

    def header(self) -> Header:
        """What the metadata say about the pixels."""
        return Header(
            format="zarr",
            height=self.height,
            width=self.width,
            channels=self.samples,
            kind=_KINDS.get(self.samples, "array"),
            bits=self.dtype.itemsize * 8,
            dtype=self.dtype,
            levels=self.levels,
        )

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Read the chunks of these rows; DataError where one is damaged."""
        return self.read_window(slice(start, stop), slice(0, self.width))

    def files(self, rows: slice, columns: slice) -> list[Path]:
        """The files of the chunks, or shards, that meet a window; those that hold nothing but zeros may be absent."""
        where = {"y": rows, "x": columns, "c": slice(0, self.samples)}
        steps = (self._array.shards or self._array.chunks)[len(self._lead) :]
        spans = [
            range(where[axis].start // step, (where[axis].stop - 1) // step + 1)
            for axis, step in zip(self._axes, steps, strict=True)
        ]
        keys = (self._array.metadata.encode_chunk_key((*self._lead, *place)) for place in product(*spans))
        return [self._folder / key for key in keys]

    def read_window(self, rows: slice, columns: slice) -> NDArray[Any]:
        """Read the chunks that meet some rows and columns: (h, w), or (h, w, C); DataError where one is damaged."""
        where = {"y": rows, "x": columns}
        try:
            with self._lock:
                stored = self._array[(*self._lead, *(where.get(axis, slice(None)) for axis in self._axes))]
        except Exception as error:  # as above
            raise damaged(self._path, error) from error
        pixels = np.asarray(stored)
        pixels = pixels.astype(pixels.dtype.newbyteorder("="), copy=False)
        if "c" not in self._axes:
            return pixels
        last = np.moveaxis(pixels, self._axes.index("c"), -1)
        return last[..., 0] if self.samples == 1 else last


def _plane_axes(path: Path, names: list[str], shape: tuple[int, ...]) -> str:
    """Letters of the last axes, "yx", "cyx" or "yxc"; axes before them must have one element."""
    if not names and sum(size > 1 for size in shape[:-2]) == 0:
        return "yx"
    kept = "".join("c" if name == "channel" else name for name in names)
    found = next((axes for axes in ("cyx", "yxc", "yx") if kept.endswith(axes)), "")
    if len(kept) == len(shape) and found and all(size == 1 for size in shape[: len(shape) - len(found)]):
        return found
    rule, given = "to be named (c, y, x), (y, x, c) or (y, x)", f"{names or 'no names'} of {shape}"
    raise DataError(expected(show(path), "axes", rule, given, "Name them in OME multiscales or dimension_names."))
