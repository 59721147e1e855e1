"""TIFF bytes -> one plane or a stack of planes, with the spacing where the file names a unit for it."""

import io
import math
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import tifffile

from segmeter.checks import expected
from segmeter.data.arrays import check_pixels
from segmeter.data.formats import show
from segmeter.data.geometry import Geometry
from segmeter.data.header import LOSSY_TIFF, check_strips, damaged
from segmeter.errors import DataError

_DEPTH = "ZQI"  # tifffile's letters for planes along z, and for pages that nothing is said about
_UNITS = {
    "nm": "nm", "nanometer": "nm", "um": "um", "µm": "um", "μm": "um", "micron": "um", "microns": "um",
    "mm": "mm", "millimeter": "mm", "cm": "cm", "m": "m",
}  # fmt: skip


def decode_tiff_map(path: Path, content: bytes, *, max_pixels: int) -> tuple[np.ndarray, Geometry]:
    """Decode a single-channel TIFF of one page, a stack of pages, an ImageJ or an OME stack.

    Returns
    -------
    (H, W), or (D, H, W) for more than one page, as stored; and the spacing, where OME or ImageJ metadata name it with
    its unit. Resolution tags alone are for printing and count for nothing.

    Raises
    ------
    DataError
        The file is damaged, lossy, too large, or has channels or time beside the planes.
    """
    try:
        with tifffile.TiffFile(io.BytesIO(content)) as tiff:
            series = _only_series(path, tiff)
            axes, shape = _axes(path, series)
            check_pixels(path, shape, np.dtype(series.dtype), max_pixels)
            for page in series.pages:
                _check_page(path, page, io.BytesIO(content))
            pixels = np.asarray(series.asarray()).reshape(shape)
            return pixels.astype(pixels.dtype.newbyteorder("="), copy=False), _geometry(tiff, axes)
    except DataError:
        raise
    except Exception as error:  # third-party parsers raise many types on hostile bytes
        raise damaged(path, error) from error


def _only_series(path: Path, tiff: Any) -> Any:
    if len(tiff.series) != 1:
        found, remedy = f"{len(tiff.series)} pictures of different kinds", "Save each as its own file."
        raise DataError(expected(show(path), "file", "to hold one picture or one stack", found, remedy))
    return tiff.series[0]


def _axes(path: Path, series: Any) -> tuple[str, tuple[int, ...]]:
    """Letters and sizes of the axes without those of one element, the plane's own kept."""
    kept = [(axis, size) for axis, size in zip(series.axes, series.shape, strict=True) if size != 1 or axis in "YX"]
    axes = "".join(axis for axis, _ in kept)
    if axes[-2:] != "YX" or len(axes) > 3 or (len(axes) == 3 and axes[0] not in _DEPTH):
        found = f"axes {series.axes} of {' x '.join(map(str, series.shape))}"
        remedy = "Save one file per channel or time, and planes as Z."
        raise DataError(expected(show(path), "mask", "to have one channel", found, remedy))
    return axes, tuple(size for _, size in kept)


def _check_page(path: Path, page: Any, file: io.BytesIO) -> None:
    if page is None:
        raise ValueError("pages are missing")
    page = page.aspage()
    if int(page.compression) in LOSSY_TIFF:
        remedy = "Its values are blurred. Save it without loss."
        raise DataError(expected(show(path), "mask", "to be stored exactly", "a lossy TIFF file", remedy))
    if int(page.tags.valueof(274, 1)) != 1:
        found, remedy = page.tags.valueof(274, 1), "Turn the pixels themselves and clear the tag."
        raise DataError(expected(show(path), "EXIF orientation", "to be 1 (upright)", found, remedy))
    check_strips(page, file)


def _geometry(tiff: Any, axes: str) -> Geometry:
    if tiff.is_ome:
        return _ome(tiff.ome_metadata, axes)
    if tiff.is_imagej:
        return _imagej(tiff, axes)
    return Geometry()


def _ome(xml: str, axes: str) -> Geometry:
    """Physical sizes of the only picture, where each axis has one and all have one unit (micrometres by default)."""
    pictures = [node for node in ElementTree.fromstring(xml).iter() if node.tag.rpartition("}")[2] == "Pixels"]
    if len(pictures) != 1:
        return Geometry()
    names = ["Z" if axis in _DEPTH else axis for axis in axes]
    edges = [pictures[0].get(f"PhysicalSize{name}") for name in names]
    units = {_UNITS.get(pictures[0].get(f"PhysicalSize{name}Unit", "µm")) for name in names}
    return _sound(
        [float(edge) if edge else math.nan for edge in edges], units.pop() if len(units) == 1 else None, "OME"
    )


def _imagej(tiff: Any, axes: str) -> Geometry:
    metadata, page = tiff.imagej_metadata or {}, tiff.pages.first
    unit = str(metadata.get("unit", "")).replace("\\u00B5", "µ")
    edges = []
    for tag in (283, 282):  # y, x: pixels per unit
        pixels, units = page.tags.valueof(tag, (0, 0))
        edges.append(units / pixels if pixels else math.nan)
    depth = [float(metadata.get("spacing", math.nan))] if len(axes) == 3 else []
    return _sound(depth + edges, _UNITS.get(unit), "ImageJ")


def _sound(edges: list[float], unit: str | None, tool: str) -> Geometry:
    if unit is None or not all(math.isfinite(edge) and edge > 0 for edge in edges):
        return Geometry()
    return Geometry(spacing=tuple(edges), unit=unit, source=f"{tool} metadata")
