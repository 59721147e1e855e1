"""Open TIFF file -> one plane or a stack of planes, with the spacing where the file names a unit for it."""

import math
from pathlib import Path
from typing import IO, Any
from xml.etree import ElementTree

import numpy as np

from segmeter.checks import expected
from segmeter.data.files.formats.geotiff import read_geotiff
from segmeter.data.files.geometry import SET_SPACING, Geometry, stated_geometry
from segmeter.data.files.header import LOSSY_TIFF, check_strips, open_tiff
from segmeter.data.files.npy import check_pixels
from segmeter.data.files.sniff import damaged, show
from segmeter.data.units import PIXEL_NAMES, find_unit
from segmeter.errors import DataError

_DEPTH = "ZQI"  # tifffile's letters for planes along z, and for pages that nothing is said about
_RESOLUTION_UNITS = {2: "inch", 3: "cm"}  # values of the tag ResolutionUnit; 1 is none
_PRINTING = "none (resolution tags are for printing)"


def decode_tiff_map(path: Path, file: IO[bytes], *, max_pixels: int) -> tuple[np.ndarray, Geometry]:
    """Decode a single-channel TIFF of one page, a stack of pages, an ImageJ or an OME stack.

    Returns
    -------
    (H, W), or (D, H, W) for more than one page, as stored; and the spacing, where OME or ImageJ metadata name it with
    its unit. Resolution tags alone are for printing and are not used.

    Raises
    ------
    DataError
        The file is damaged, lossy, too large, or has channels or time beside the planes.
    """
    try:
        with open_tiff(file) as tiff:
            series = _only_series(path, tiff)
            axes, shape = _axes(path, series)
            check_pixels(path, shape, np.dtype(series.dtype), max_pixels)
            for page in series.pages:
                _check_page(path, page, file)
            pixels = np.asarray(series.asarray()).reshape(shape)
            return pixels.astype(pixels.dtype.newbyteorder("="), copy=False), tiff_geometry(path, tiff, axes)
    except DataError:
        raise
    except Exception as error:  # third-party parsers raise many types on hostile bytes
        raise damaged(path, error) from error


def read_tiff_geometry(path: Path, file: IO[bytes]) -> Geometry:
    """The spacing of a picture of one plane, as `decode_tiff_map` gives it, without decoding a pixel."""
    try:
        with open_tiff(file) as tiff:
            return tiff_geometry(path, tiff, "YX")
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


def _check_page(path: Path, page: Any, file: IO[bytes]) -> None:
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


def tiff_geometry(path: Path, tiff: Any, axes: str) -> Geometry:
    """The spacing of an opened file with these axes; GeoTIFF's tags come before other metadata."""
    on_earth = read_geotiff(path, tiff.pages.first) if len(axes) == 2 else None
    return metadata_geometry(path, tiff, axes) if on_earth is None else on_earth


def metadata_geometry(path: Path, tiff: Any, axes: str) -> Geometry:
    """The spacing that the OME or ImageJ metadata of an opened file give, whatever other tags say."""
    if tiff.is_ome:
        return _ome(path, tiff.ome_metadata, axes)
    if tiff.is_imagej:
        return _imagej(path, tiff, axes)
    per = _RESOLUTION_UNITS.get(int(tiff.pages.first.tags.valueof(296, 1)))
    return Geometry(source=_PRINTING if per else "")


def _ome(path: Path, xml: str, axes: str) -> Geometry:
    """Physical sizes of the only picture; micrometres where it names no unit, as OME-XML has it."""
    source = "OME metadata"
    pictures = [node for node in ElementTree.fromstring(xml).iter() if node.tag.rpartition("}")[2] == "Pixels"]
    if len(pictures) != 1:
        found = f"{len(pictures)} pictures"
        problem = expected(show(path), source, "to describe one picture", found, SET_SPACING)
        return Geometry(source=source, spacing_problem=problem)
    names = ["Z" if axis in _DEPTH else axis for axis in axes]
    edges = [_number(pictures[0].get(f"PhysicalSize{name}")) for name in names]
    units = [pictures[0].get(f"PhysicalSize{name}Unit", "um") for name in names]
    return stated_geometry(path, edges, units, source=source)


def _imagej(path: Path, tiff: Any, axes: str) -> Geometry:
    """By ImageJ's own rules: an edge is 1 where nothing says otherwise, and one unit is that of all axes."""
    metadata, tags, source = tiff.imagej_metadata or {}, tiff.pages.first.tags, "ImageJ metadata"
    plane = [_edge(tags.valueof(tag, (1, 1))) for tag in (283, 282)]  # y, x: pixels per unit
    unit, per = _imagej_unit(metadata), _RESOLUTION_UNITS.get(int(tags.valueof(296, 1)))
    if unit is None and per == "inch" and plane[1] == 1 / 72:  # ImageJ's sign of a picture without a scale
        plane, per = [1.0, 1.0], None
    if unit and per and find_unit(unit) != per:
        found = f"{unit!r} in the description and {per} in the resolution tags"
        problem = expected(f"{show(path)}: {source}", "unit", "of the spacing to be one", found, SET_SPACING)
        return Geometry(source=source, spacing_problem=problem)
    edges = [_number(metadata.get("spacing", 1.0)), *plane] if len(axes) == 3 else plane
    if not (unit or per) and edges == [1.0] * len(edges):
        return Geometry()
    return stated_geometry(path, edges, [unit or per] * len(edges), source=source)


def _imagej_unit(metadata: dict[str, Any]) -> str | None:
    unit = str(metadata.get("unit") or "").replace("\\u00B5", "u").strip()
    return None if unit.lower() in PIXEL_NAMES else unit


def _edge(resolution: tuple[int, int]) -> float:
    pixels, units = resolution
    return units / pixels if pixels else math.inf


def _number(text: Any) -> Any:
    """The number that a text is, or the text itself."""
    try:
        return text if text is None else float(text)
    except (TypeError, ValueError):
        return text
