"""Tags of a GeoTIFF or COG -> where its pixels lie on the earth, and which value marks those without data."""

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.data.files.geometry import Geometry, stated_geometry
from segmeter.data.files.header import read_nodata
from segmeter.data.units import MILLIMETRES

SOURCE = "GeoTIFF tags"

_SCALE, _TIEPOINT, _MATRIX, _KEYS, _DOUBLES = 33550, 33922, 34264, 34735, 34736
_MODEL, _RASTER, _GEODETIC, _PROJECTED, _LINEAR, _LINEAR_SIZE = 1024, 1025, 2048, 3072, 3076, 3077  # its keys
_GEOGRAPHIC, _POINT = 2, 2  # values of _MODEL and _RASTER
_USER_DEFINED = 32767  # in place of a code: the system is described elsewhere in the tags
_UNITS = {9001: ("m", 1.0), 9002: ("foot", 1.0), 9003: ("m", 1200 / 3937)}  # codes of _LINEAR; a US survey foot in m
_DEGREES = "the GeoTIFF's coordinates are degrees, so distances are counted in pixels"
_NAMELESS = "the GeoTIFF names no unit of length, so distances are in the unit of its coordinates, whichever that is"


def read_geotiff(path: Path, page: Any) -> Geometry | None:
    """The place of a page by GeoTIFF 1.1; None where it has no such tags.

    Raises
    ------
    ValueError
        A tag holds what the standard does not allow.
    """
    tags = page.tags
    nodata = read_nodata(page)
    matrix = _matrix(tags)
    if matrix is None:
        return None if nodata is None else Geometry(source=SOURCE, nodata=nodata)
    keys = _read_keys(tags.valueof(_KEYS, ()), tags.valueof(_DOUBLES, ()))
    if keys.get(_RASTER) != _POINT:  # coordinates are those of the pixel's corner, and affines go by centres
        matrix[:, 3] += (matrix[:, 0] + matrix[:, 1]) / 2
    codes = (keys.get(name) for name in (_PROJECTED, _GEODETIC))
    code = next((each for each in codes if each not in (None, 0, _USER_DEFINED)), None)
    more: dict[str, Any] = {"nodata": nodata, "crs": f"EPSG:{code}" if code else ""}
    if keys.get(_MODEL) == _GEOGRAPHIC:
        return Geometry(source=SOURCE, affine=matrix, note=_DEGREES, **more)
    unit, size = _unit(keys)
    edges = [size * math.hypot(*matrix[:2, 1]), size * math.hypot(*matrix[:2, 0])]
    found = stated_geometry(path, edges, [unit] * 2, source=SOURCE)
    if unit in MILLIMETRES:
        matrix = np.diag([size * MILLIMETRES[unit]] * 3 + [1.0]) @ matrix
    return found.having(affine=matrix, note="" if unit else _NAMELESS, **more)


def _unit(keys: dict[int, float]) -> tuple[str | None, float]:
    """The name of a unit of length, None where the file has none, and how many of it the unit of the coordinates is.

    A unit that is not known here is named by its code, which is refused as no length.
    """
    code = keys.get(_LINEAR)
    if code is None:
        return None, 1.0
    size = keys.get(_LINEAR_SIZE, 0.0)
    if code == _USER_DEFINED and 0 < size < math.inf:
        return "m", size
    return _UNITS.get(int(code), (f"EPSG:{code}", 1.0))


def _matrix(tags: Any) -> NDArray[np.float64] | None:
    """From (column, row, 0, 1) to coordinates: of pixels' corners, or of their centres where pixels are points."""
    given = tags.valueof(_MATRIX)
    if given is not None:
        return _whole(np.array(given, np.float64).reshape(4, 4))
    scale, tie = tags.valueof(_SCALE), tags.valueof(_TIEPOINT)
    if scale is None or tie is None:
        return None
    if len(tie) != 6:
        raise ValueError(f"{len(tie) // 6} tie points, where one is read")
    affine = np.diag([scale[0], -scale[1], scale[2] or 1.0, 1.0])
    affine[:3, 3] = np.array(tie[3:6]) - affine[:3, :3] @ np.array(tie[:3])
    return _whole(affine)


def _whole(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """The matrix with a third direction, which that of a plane leaves out.

    Raises
    ------
    ValueError
        It has no inverse.
    """
    if not matrix[:3, 2].any():
        matrix[2, 2] = 1.0
    if not np.isfinite(matrix).all() or not np.linalg.det(matrix[:3, :3]):
        raise ValueError("a transformation that lays several pixels on one place")
    return matrix


def _read_keys(directory: tuple[int, ...], doubles: Any) -> dict[int, float]:
    """Keys whose value is a short, which stands in the directory itself, or a double, which has a tag of its own."""
    entries = np.array(directory[4:], np.int64).reshape(-1, 4).tolist()
    numbers = np.atleast_1d(np.array(doubles, np.float64)).tolist()
    shorts = {key: value for key, place, _, value in entries if place == 0}
    return shorts | {key: numbers[at] for key, place, _, at in entries if place == _DOUBLES and at < len(numbers)}
