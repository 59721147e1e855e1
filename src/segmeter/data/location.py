"""Reads where the pixels of an image lie, so that files made from it can repeat it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from segmeter.data.files.geometry import Geometry
from segmeter.data.files.opened import open_array
from segmeter.data.files.sniff import damage_named, show
from segmeter.data.files.tiff import TiffArray
from segmeter.data.files.tiff_place import metadata_geometry
from segmeter.data.files.zarr import is_zarr

_SUFFIXES = (
    ".tif",
    ".tiff",
    ".zarr",
)  # of files with a position; PNG, JPEG and BMP have a resolution for printing only
_SCALE, _TIEPOINTS, _TRANSFORMATION, _KEYS = 33550, 33922, 34264, 34735  # GeoTIFF 1.1, section 7.1
_GEOTIFF = (_SCALE, _TIEPOINTS, _TRANSFORMATION, _KEYS, 34736, 34737)  # the last two hold values that the keys refer to
_RASTER_TYPE, _POINT = 1025, 2  # the key for whether coordinates are of corners or centres

GeoTag = tuple[int, tuple[float, ...] | tuple[int, ...] | str]


@dataclass(frozen=True, kw_only=True)
class Location:
    """Where the pixels of an image lie.

    Parameters
    ----------
    spacing
        Height and width of a pixel, > 0, after the depth of a voxel; None if the file has none.
    unit
        A key of `segmeter.data.files.geometry.MILLIMETRES`; None for a spacing without a unit.
    geotiff
        Numbers and values of the GeoTIFF tags, for pixels of the level that is read.
    problem
        Why something in the file can't be repeated, in one line, or "".
    """

    spacing: tuple[float, ...] | None = None
    unit: str | None = None
    geotiff: tuple[GeoTag, ...] = ()
    problem: str = ""

    @property
    def known(self) -> bool:
        """Whether there is anything to repeat."""
        return self.spacing is not None or bool(self.geotiff)


UNKNOWN = Location()


def read_location(path: Path, *, level: int = 0) -> Location:
    """Read where the pixels of an image lie, without decoding any.

    Parameters
    ----------
    path
        A file or Zarr folder. TIFF has OME or ImageJ metadata and GeoTIFF tags; Zarr has attributes or OME multiscales.
    level
        The level of a pyramid; its pixels are larger than those of the first level, which the metadata describe.

    Raises
    ------
    DataError
        The file is damaged.
    """
    if path.suffix.lower() not in _SUFFIXES or (path.is_dir() and not is_zarr(path)):
        return UNKNOWN
    with damage_named(path), open_array(path, level=level, streams=True) as array:
        return _of_tiff(path, array.tiff, array.page) if isinstance(array, TiffArray) else _of_geometry(array.geometry)


def _of_geometry(geometry: Geometry) -> Location:
    spacing = geometry.spacing
    height_and_width = None if spacing is None else (spacing[-2], spacing[-1])
    return Location(spacing=height_and_width, unit=geometry.unit, problem=geometry.spacing_problem)


def _of_tiff(path: Path, tiff: Any, page: Any) -> Location:
    first = tiff.pages.first
    tags = {tag: first.tags[tag].value for tag in _GEOTIFF if tag in first.tags}
    found = _of_geometry(metadata_geometry(path, tiff, "YX"))  # GeoTIFF tags are copied
    down, across = first.imagelength / page.imagelength, first.imagewidth / page.imagewidth
    spacing = None if found.spacing is None else (found.spacing[0] * down, found.spacing[1] * across)
    lost = _unrepeatable(first, tags, enlarged=(down, across) != (1, 1))
    if lost:
        return Location(problem=f"{show(path)}: {lost}")
    geotiff = tuple((tag, _stretched(tag, value, down, across)) for tag, value in tags.items())
    return Location(spacing=spacing, unit=found.unit, geotiff=geotiff, problem=found.problem)


def _unrepeatable(page: Any, tags: dict[int, Any], *, enlarged: bool) -> str:
    """Return why the stored position does not hold for the pixels as read, or ""."""
    if int(page.tags.valueof(274, 1)) != 1:
        return "the picture is turned as its orientation says, which moves its pixels"
    keys = tags.get(_KEYS, ())
    entries = [tuple(keys[start : start + 4]) for start in range(4, len(keys), 4)]
    if enlarged and any(key == _RASTER_TYPE and value == _POINT for key, _, _, value in entries):
        return "its coordinates are of pixels' centres, which are others on other levels of a pyramid"
    return ""


def _stretched(tag: int, value: Any, down: float, across: float) -> tuple[float, ...] | tuple[int, ...] | str:
    """Return the value of a GeoTIFF tag for pixels `down` times as high and `across` times as wide."""
    if isinstance(value, str):
        return value
    numbers: Sequence[Any] = value if isinstance(value, tuple) else (value,)
    factors: dict[int, Sequence[float]] = {
        _SCALE: (across, down, 1.0),
        _TIEPOINTS: (1 / across, 1 / down, 1.0, 1.0, 1.0, 1.0),
        _TRANSFORMATION: (across, down, 1.0, 1.0),
    }
    if tag not in factors or (down, across) == (1, 1):
        return tuple(numbers)
    steps = factors[tag]
    return tuple(number * steps[index % len(steps)] for index, number in enumerate(numbers))
