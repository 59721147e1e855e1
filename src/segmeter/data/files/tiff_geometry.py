"""Reads where the pixels of a TIFF file lie, from GeoTIFF tags or from OME or ImageJ metadata."""

import math
from itertools import cycle
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from segmeter.data.files.geometry import MILLIMETRES, Geometry, find_unit, stated_geometry, unusable_spacing
from segmeter.data.files.refusals import show

SOURCE = "GeoTIFF tags"
DEPTH_AXES = "ZQI"  # tifffile's letters for planes along z, and for pages without a meaning
_RESOLUTION_UNITS = {2: "inch", 3: "cm"}  # values of the tag ResolutionUnit; 1 is none
_PRINTING = "none (resolution tags are for printing)"
_NODATA = 42113  # GDAL's tag

_SCALE, _TIEPOINT, _MATRIX, _KEYS, _DOUBLES = 33550, 33922, 34264, 34735, 34736  # GeoTIFF 1.1, section 7.1
_TAGS = (_SCALE, _TIEPOINT, _MATRIX, _KEYS, _DOUBLES, 34737)  # the last one holds texts that the keys refer to
_MODEL, _RASTER, _GEODETIC, _PROJECTED, _LINEAR, _LINEAR_SIZE = 1024, 1025, 2048, 3072, 3076, 3077  # its keys
_GEOGRAPHIC, _POINT = 2, 2  # values of _MODEL and _RASTER
_USER_DEFINED = 32767  # instead of a code: other tags describe the system
# By codes of _LINEAR; a US survey foot is given in metres
_UNITS = {9001: ("m", 1.0), 9002: ("foot", 1.0), 9003: ("m", 1200 / 3937)}
_DEGREES = "the GeoTIFF's coordinates are degrees, so distances are counted in pixels"
_NAMELESS = "the GeoTIFF names no unit of length, so distances are in the unit of its coordinates, whatever that is"


def tiff_geometry(path: Path, tiff: Any, axes: str) -> Geometry:
    """Return the geometry of an opened file with these axes; tags of GeoTIFF 1.1 take precedence over other metadata.

    Raises
    ------
    ValueError
        A tag holds something that the standard does not allow.
    """
    tags = tiff.pages.first.tags
    nodata, matrix = (read_nodata(tiff.pages.first), _matrix(tags)) if len(axes) == 2 else (None, None)
    if matrix is None:
        return metadata_geometry(path, tiff, axes) if nodata is None else Geometry(source=SOURCE, nodata=nodata)
    keys = _read_keys(tags.valueof(_KEYS, ()), tags.valueof(_DOUBLES, ()))
    if keys.get(_RASTER) != _POINT:  # coordinates are of a pixel's corner, affines of its centre
        matrix[:, 3] += (matrix[:, 0] + matrix[:, 1]) / 2
    codes = (keys.get(name) for name in (_PROJECTED, _GEODETIC))
    code = next((each for each in codes if each not in (None, 0, _USER_DEFINED)), None)
    more: dict[str, Any] = {"nodata": nodata, "crs": f"EPSG:{code}" if code else ""}
    if keys.get(_MODEL) == _GEOGRAPHIC:
        return Geometry(source=SOURCE, affine=matrix, note=_DEGREES, **more)
    linear, size = keys.get(_LINEAR), keys.get(_LINEAR_SIZE, 0.0)
    unit: str | None = "m"
    if linear is None:
        unit, size = None, 1.0
    elif linear != _USER_DEFINED or not 0 < size < math.inf:  # an unknown unit is named by its code, and refused
        unit, size = _UNITS.get(int(linear), (f"EPSG:{linear}", 1.0))
    edges = [size * math.hypot(*matrix[:2, 1]), size * math.hypot(*matrix[:2, 0])]
    found = stated_geometry(path, edges, [unit] * 2, source=SOURCE)
    if unit in MILLIMETRES:
        matrix = np.diag([size * MILLIMETRES[unit]] * 3 + [1.0]) @ matrix
    return found.having(affine=matrix, note="" if unit else _NAMELESS, **more)


def _matrix(tags: Any) -> NDArray[np.float64] | None:
    """Return the transformation from (column, row, 0, 1) to coordinates of pixel corners, or of centres for points.

    Raises
    ------
    ValueError
        It has no inverse.
    """
    given, scale, tie = (tags.valueof(tag) for tag in (_MATRIX, _SCALE, _TIEPOINT))
    if given is not None:
        matrix = np.array(given, np.float64).reshape(4, 4)
    elif scale is None or tie is None:
        return None
    elif len(tie) != 6:
        raise ValueError(f"{len(tie) // 6} tie points, where one is read")
    else:
        matrix = np.diag([scale[0], -scale[1], scale[2] or 1.0, 1.0])
        matrix[:3, 3] = np.array(tie[3:6]) - matrix[:3, :3] @ np.array(tie[:3])
    if not matrix[:3, 2].any():  # that of a plane
        matrix[2, 2] = 1.0
    if not np.isfinite(matrix).all() or not np.linalg.det(matrix[:3, :3]):
        raise ValueError("a transformation that lays several pixels on one place")
    return matrix


def _read_keys(directory: tuple[int, ...], doubles: Any) -> dict[int, float]:
    """Return keys whose value is a short, stored in the directory itself, or a double, stored in a tag of its own."""
    entries = np.array(directory[4:], np.int64).reshape(-1, 4).tolist()
    numbers = np.atleast_1d(np.array(doubles, np.float64)).tolist()
    shorts = {key: value for key, place, _, value in entries if place == 0}
    return shorts | {key: numbers[at] for key, place, _, at in entries if place == _DOUBLES and at < len(numbers)}


def metadata_geometry(path: Path, tiff: Any, axes: str) -> Geometry:
    """Return the geometry by OME or ImageJ metadata, regardless of other tags."""
    if tiff.is_ome:
        return _ome(path, tiff.ome_metadata, axes)
    if tiff.is_imagej:
        return _imagej(path, tiff, axes)
    return Geometry(source=_PRINTING if int(tiff.pages.first.tags.valueof(296, 1)) in _RESOLUTION_UNITS else "")


def _ome(path: Path, xml: str, axes: str) -> Geometry:
    """Read the physical sizes of the only image; OME-XML means micrometres if it names no unit."""
    source = "OME metadata"
    pictures = [node for node in ElementTree.fromstring(xml).iter() if node.tag.rpartition("}")[2] == "Pixels"]
    if len(pictures) != 1:
        return unusable_spacing(path, source, "", "to describe one picture", f"{len(pictures)} pictures")
    names = ["Z" if axis in DEPTH_AXES else axis for axis in axes]
    edges = [_number(pictures[0].get(f"PhysicalSize{name}")) for name in names]
    units = [pictures[0].get(f"PhysicalSize{name}Unit", "um") for name in names]
    return stated_geometry(path, edges, units, source=source)


def _imagej(path: Path, tiff: Any, axes: str) -> Geometry:
    """Read the spacing by ImageJ's rules: an edge is 1 unless stated otherwise, and all axes have the same unit."""
    metadata, tags, source = tiff.imagej_metadata or {}, tiff.pages.first.tags, "ImageJ metadata"
    resolutions = [tags.valueof(tag, (1, 1)) for tag in (283, 282)]  # y, x: pixels per unit
    plane = [units / pixels if pixels else math.inf for pixels, units in resolutions]
    named = str(metadata.get("unit") or "").replace("\\u00B5", "u").strip()
    unit, per = named if find_unit(named) != "" else None, _RESOLUTION_UNITS.get(int(tags.valueof(296, 1)))
    if unit is None and per == "inch" and plane[1] == 1 / 72:  # how ImageJ marks an image without a scale
        plane, per = [1.0, 1.0], None
    if unit and per and find_unit(unit) != per:
        found = f"{unit!r} in the description and {per} in the resolution tags"
        return unusable_spacing(path, source, "unit", "of the spacing to be one", found)
    edges = [_number(metadata.get("spacing", 1.0)), *plane] if len(axes) == 3 else plane
    if not (unit or per) and edges == [1.0] * len(edges):
        return Geometry()
    return stated_geometry(path, edges, [unit or per] * len(edges), source=source)


def _number(text: Any) -> Any:
    """Return the number that a text is, or the text itself."""
    try:
        return text if text is None else float(text)
    except (TypeError, ValueError):
        return text


def read_nodata(page: Any) -> float | str | None:
    """Return the nodata value of a TIFF page, or its text if that is not a number; None without one.

    Images ignore it. `check_nodata` refuses such a text if it decides which pixels are counted.
    """
    text = page.tags.valueof(_NODATA)
    if text is None:
        return None
    try:
        value = float(str(text).strip("\0 "))
    except ValueError:
        return str(text).strip("\0 ")
    return None if math.isnan(value) else value


def repeatable_geometry(path: Path, tiff: Any, page: Any) -> Geometry:
    """Return the geometry of a page that files made from it can repeat: its spacing, and copies of its GeoTIFF tags.

    Metadata and tags describe the first level of a pyramid; pixels of other levels are larger.
    """
    first = tiff.pages.first
    down, across = first.imagelength / page.imagelength, first.imagewidth / page.imagewidth
    enlarged, problem = (down, across) != (1, 1), ""
    if int(first.tags.valueof(274, 1)) != 1:
        problem = "the picture is turned as its orientation says, which moves its pixels"
    elif enlarged and _read_keys(first.tags.valueof(_KEYS, ()), ()).get(_RASTER) == _POINT:
        problem = "its coordinates are of pixels' centres, which are others on other levels of a pyramid"
    if problem:
        return Geometry(spacing_problem=f"{show(path)}: {problem}")
    stored = {tag: first.tags[tag].value for tag in _TAGS if tag in first.tags}
    tags = {tag: value if isinstance(value, str | tuple) else (value,) for tag, value in stored.items()}
    factors = {_SCALE: (across, down, 1.0), _MATRIX: (across, down, 1.0, 1.0)}
    factors |= {_TIEPOINT: (1 / across, 1 / down, 1.0, 1.0, 1.0, 1.0)}
    for tag, steps in factors.items() if enlarged else ():
        if isinstance(tags.get(tag), tuple):
            tags[tag] = tuple(number * step for number, step in zip(tags[tag], cycle(steps), strict=False))
    found = metadata_geometry(path, tiff, "YX")
    spacing = None if found.spacing is None else (found.spacing[0] * down, found.spacing[1] * across)
    problem, geotiff = found.spacing_problem, tuple(tags.items())
    return Geometry(spacing=spacing, unit=found.unit, geotiff=geotiff, spacing_problem=problem)
