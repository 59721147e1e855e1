"""An image or mask that is larger than memory -> its rows, with every check that a smaller one gets."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected
from segmeter.classes import ClassSpec
from segmeter.data.by_rows.rows import ArrayRows, Rows
from segmeter.data.by_rows.tiff_rows import TiffRows
from segmeter.data.by_rows.zarr_rows import ZarrRows
from segmeter.data.files.geometry import Geometry
from segmeter.data.files.header import Header, read_header
from segmeter.data.files.images import (
    Orientation,
    as_image,
    check_image_header,
    check_mask_header,
    decode_mask,
    read_file,
)
from segmeter.data.files.label_mapping import to_labels
from segmeter.data.files.sniff import damaged, open_regular, show
from segmeter.data.files.tiff import read_tiff_geometry
from segmeter.data.files.zarr import is_zarr, open_picture
from segmeter.errors import DataError


@dataclass(frozen=True, eq=False)
class _Converted:
    """Rows of another kind, such as labels of stored values; `change` keeps height and width."""

    rows: Rows
    change: Any
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def read(self, start: int, stop: int) -> NDArray[Any]:
        changed: NDArray[Any] = self.change(self.rows.read(start, stop))
        return changed


def header_of(path: Path, *, max_pixels: int, level: int = 0, streams: bool = True) -> Header:
    """The header of a file or Zarr folder; those that are read by rows may have any number of pixels."""
    if streams and path.is_dir() and is_zarr(path):
        return ZarrRows(path, level=level, max_pixels=max_pixels, checked=False).header()
    return read_header(path, max_pixels=max_pixels, level=level, streams=streams)


@contextmanager
def open_image_rows(
    path: Path, *, channels: int | None, orientation: Orientation, max_pixels: int, level: int
) -> Iterator[Rows]:
    """Open a TIFF file or a Zarr folder, and give its rows as `read_image` would: (H, W, C) uint8, uint16 or float32.

    Raises
    ------
    DataError
        It is damaged or not such an image; reading a row may raise it too.
    """
    header = header_of(path, max_pixels=max_pixels, level=level)
    check_image_header(path, header, channels=channels, orientation=orientation, level=level)
    if header.orientation != 1 and orientation == "apply":
        remedy = "Turn the pixels themselves and clear the tag."
        raise DataError(expected(show(path), "EXIF orientation", "to be 1 in a large file", header.orientation, remedy))
    with _open_stored(path, header, level=level, max_pixels=max_pixels) as rows:
        dtype = {"bool": "uint8", "float16": "float32"}.get(rows.dtype.name, rows.dtype.name)
        shape = rows.shape if len(rows.shape) == 3 else (*rows.shape, 1)
        yield _Converted(rows, partial(_finite_image, path), shape, np.dtype(dtype))


@contextmanager
def open_label_rows(
    path: Path, *, spec: ClassSpec, label_map: Mapping[str, int], max_pixels: int, level: int = 0
) -> Iterator[Rows]:
    """Open a mask, and give its rows as labels (H, W); what is not read by rows is decoded at once.

    Raises
    ------
    DataError
        It is damaged, or not a mask; reading a row also raises it where a value is no label.
    """
    header = header_of(path, max_pixels=max_pixels, level=level)
    check_mask_header(path, header, label_map=label_map)
    change = partial(to_labels, path, spec=spec, label_map=label_map, nodata=header.nodata)
    shape = (header.height, header.width)
    if not header.streamed:
        stored = decode_mask(read_file(path, max_pixels=max_pixels, level=level), label_map=label_map)
        yield _Converted(ArrayRows(stored), change, shape, spec.label_dtype)
        return
    with _open_stored(path, header, level=level, max_pixels=max_pixels) as rows:
        yield _Converted(rows, change, shape, spec.label_dtype)


def read_geometry(path: Path) -> Geometry:
    """Where the pixels of a TIFF file or a Zarr folder lie, without reading any."""
    if path.is_dir():
        try:
            return open_picture(path).geometry
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise damaged(path, error) from error
    with open_regular(path) as file:
        return read_tiff_geometry(path, file)


@contextmanager
def _open_stored(path: Path, header: Header, *, level: int, max_pixels: int) -> Iterator[Rows]:
    if header.format == "zarr":
        yield ZarrRows(path, level=level, max_pixels=max_pixels)
        return
    with open_regular(path) as file:
        yield TiffRows(path, file, level=level, max_pixels=max_pixels)


def _finite_image(path: Path, pixels: NDArray[Any]) -> NDArray[Any]:
    image = as_image(pixels)
    if image.dtype == np.float32 and not np.isfinite(image).all():
        bad = int(image.size - np.isfinite(image).sum())
        remedy = "Replace them before."
        raise DataError(expected(show(path), "image", "to be finite", f"{bad} NaN or infinite values", remedy))
    return np.ascontiguousarray(image)
