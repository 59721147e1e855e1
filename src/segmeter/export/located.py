"""Builds the metadata by which TIFF files and Zarr arrays state the spacing and location of their pixels."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any
from xml.sax.saxutils import quoteattr

import numpy as np

from segmeter.data.files.geometry import MILLIMETRES
from segmeter.data.location import Location

CENTIMETRE = 3  # TIFF's unit of resolutions
ASCII, SHORT, LONG, RATIONAL, DOUBLE, LONG8 = 2, 3, 4, 5, 12, 16  # TIFF's numbers of types
_KEYS = 34735  # GeoTIFF's directory of keys, its only whole numbers
_MOST = 2**32 - 1  # of numerators and denominators in TIFF
_OME = "http://www.openmicroscopy.org/Schemas/OME/2016-06"
_TYPES = {"float32": "float"}  # OME's names of dtypes that differ from NumPy's
_UNITS = {  # OME-XML's names of lengths that differ from ours
    "um": "&#181;m",  # ASCII, as TIFF's texts are
    "angstrom": "&#197;",
    "inch": "in",
    "foot": "ft",
    "yard": "yd",
    "mile": "mi",
    "line": "li",
    "point": "pt",
    "astronomical unit": "ua",
    "light year": "ly",
    "parsec": "pc",
}

Field = tuple[int, int, int, Sequence[Any]]  # of a TIFF directory: number, type, count, and numbers or bytes


def ome_xml(location: Location, shape: tuple[int, ...], dtype: np.dtype[Any]) -> str | None:
    """OME metadata of a picture (height, width), or of a page for each channel, in ASCII; None without a spacing.

    With a spacing of three values the pages are the planes of a volume.

    References
    ----------
    OME-XML 2016-06: Pixels with PhysicalSizeX and Y and their units; "pixel" if the spacing has no unit.
    """
    if location.spacing is None:
        return None
    unit = _UNITS.get(location.unit or "pixel", location.unit or "pixel")
    pages, volume = shape[0] if len(shape) == 3 else 1, len(location.spacing) == 3
    channels, depth = (1, pages) if volume else (pages, 1)
    size = {"SizeX": shape[-1], "SizeY": shape[-2], "SizeC": channels, "SizeZ": depth, "SizeT": 1}
    edges = dict(zip("XYZ", reversed(location.spacing), strict=False))
    pixels = {"ID": "Pixels:0", "DimensionOrder": "XYCZT", "Type": _TYPES.get(dtype.name, dtype.name), **size}
    text = "".join(f" {key}={quoteattr(str(value))}" for key, value in pixels.items())
    text += "".join(f' PhysicalSize{axis}="{edge!r}" PhysicalSize{axis}Unit="{unit}"' for axis, edge in edges.items())
    named = "".join(f'<Channel ID="Channel:0:{number}" SamplesPerPixel="1"/>' for number in range(channels))
    return (
        f'<?xml version="1.0" encoding="UTF-8"?><OME xmlns="{_OME}"><Image ID="Image:0"><Pixels{text}>'
        f'{named}<TiffData IFD="0" PlaneCount="{pages}"/></Pixels></Image></OME>'
    )


def resolution(location: Location) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Pixels per centimetre as fractions, of width and height, for readers that know no OME metadata."""
    if location.spacing is None or location.unit is None:
        return None
    per = [10 / (edge * MILLIMETRES[location.unit]) for edge in location.spacing[:-3:-1]]
    if not all(1 / _MOST < each < _MOST for each in per):
        return None
    across, down = (Fraction(each).limit_denominator(max(1, min(10**6, int(_MOST / each)))) for each in per)
    if not (across and down):
        return None
    return (across.numerator, across.denominator), (down.numerator, down.denominator)


def geotiff_tags(location: Location) -> list[Field]:
    """The GeoTIFF fields of a location."""
    found: list[Field] = []
    for tag, value in location.geotiff:
        if isinstance(value, str):
            text = f"{value}\0".encode("ascii", "replace")
            found.append((tag, ASCII, len(text), text))
        else:
            found.append((tag, SHORT if tag == _KEYS else DOUBLE, len(value), value))
    return found


def zarr_attributes(location: Location) -> dict[str, Any]:
    """The attributes of a Zarr array (height, width) or (depth, height, width)."""
    if location.spacing is None:
        return {}
    return {"spacing": list(location.spacing), **({"unit": location.unit} if location.unit else {})}
