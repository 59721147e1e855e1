"""Writes one array to one file (or Zarr folder), which appears under its name complete or not at all.

TIFF files and Zarr arrays store the geometry of their pixels. Label maps hold their label values, and a palette holds
the colours.
"""

import io
import zlib
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import numpy as np
import tifffile
from numpy.typing import NDArray
from PIL import Image

from segmeter.checks import expected
from segmeter.classes import ClassSpec, Colour
from segmeter.data.files.array import LazyArray
from segmeter.data.files.geometry import MILLIMETRES, NOWHERE, OME_SYMBOLS, Geometry
from segmeter.data.files.reader_process import need
from segmeter.errors import InputError
from segmeter.files import atomic_write, fresh_folder, is_refused, make_folder, remove, safe_id, sync
from segmeter.threads import count_cores

Locate = Callable[[], Geometry]

TILE = 256  # edge of TIFF tiles and Zarr chunks, pixels
_BUFFER = 1 << 22  # bytes of tiles that are compressed at a time
COMPRESSIONS = {"deflate": "zlib", "zstd": "zstd"}  # our names to tifffile's
IGNORE_COLOUR: Colour = (224, 224, 224)
UNUSED_COLOUR: Colour = (255, 0, 255)  # magenta: a value without a class should be noticed
_ASCII, _SHORT, _DOUBLE = 2, 3, 12  # numbers of types in TIFF
_GEO_KEYS = 34735  # GeoTIFF's directory of keys, which holds its only whole numbers
_LARGEST_TERM = 2**32 - 1  # largest numerator or denominator in TIFF
_OME = "http://www.openmicroscopy.org/Schemas/OME/2016-06"
_OME_TYPES = {"float32": "float"}  # OME's names of dtypes that differ from NumPy's
_UNITS = {name: symbol for symbol, name in OME_SYMBOLS.items()} | {"um": "\u00b5m"}


def write_npy(path: Path, array: NDArray[Any]) -> None:
    """Write an NPY file without pickle."""
    with atomic_write(path) as file:
        np.save(file, array, allow_pickle=False)


def write_npz(path: Path, array: NDArray[Any]) -> None:
    """Write a compressed NPZ file with the array under "probs"."""
    with atomic_write(path) as file:
        np.savez_compressed(file, allow_pickle=False, probs=array)


def write_tiff(
    path: Path,
    array: NDArray[Any] | LazyArray,
    *,
    compression: str = "deflate",
    palette: NDArray[np.uint16] | None = None,
    locate: Locate = lambda: NOWHERE,
) -> None:
    """Write (H, W) as one page, or (C, H, W) as one page per plane, tiled and compressed without loss.

    A lazy array is read in bands, and becomes a BigTIFF.

    Parameters
    ----------
    palette
        Colours of the values of a uint8 map, (3, 256), from 0 to 65535.
    locate
        Returns the geometry of the pixels, which each page then stores.
    """
    geometry = locate()
    tags = []
    for tag, value in geometry.geotiff:
        stored: Any = f"{value}\0".encode("ascii", "replace") if isinstance(value, str) else value
        tiff_type = _ASCII if isinstance(value, str) else _SHORT if tag == _GEO_KEYS else _DOUBLE
        tags.append((tag, tiff_type, len(stored), stored, False))
    layout: dict[str, Any] = {
        "tile": (TILE, TILE),
        "photometric": "minisblack" if palette is None else "palette",
        "colormap": palette,
        "compression": COMPRESSIONS[compression],
        "predictor": palette is None,  # palettes allow none
        "metadata": None,
        "description": _ome_xml(geometry, array.shape, array.dtype),
        "extratags": tags,
        **_resolution(geometry),
    }
    make_folder(path.parent)
    if isinstance(array, LazyArray):
        layout |= {"shape": array.shape, "dtype": array.dtype, "maxworkers": count_cores(), "buffersize": _BUFFER}
        width = array.shape[1]
        padded = (np.pad(band, ((0, TILE - len(band)), (0, -width % TILE))) for band in _bands(array))
        tiles = (band[:, left : left + TILE] for band in padded for left in range(0, width, TILE))
        with atomic_write(path) as file, tifffile.FileHandle(file, name=path.name, offset=0, size=0) as handle:
            with tifffile.TiffWriter(handle, bigtiff=True) as writer:
                writer.write(tiles, **layout)
        return
    content = io.BytesIO()  # tifffile seeks back and forth, which is cheaper in memory
    tifffile.imwrite(content, array, **layout)
    with atomic_write(path) as file:
        file.write(content.getbuffer())


def _bands(array: LazyArray) -> Iterator[NDArray[Any]]:
    """Read the lines of one row of tiles at a time."""
    return (array.read(top, min(top + TILE, array.shape[0])) for top in range(0, array.shape[0], TILE))


def write_zarr(path: Path, array: NDArray[Any] | LazyArray, *, locate: Locate = lambda: NOWHERE) -> None:
    """Write a Zarr 3 folder with one chunk per plane and tile, and the spacing of the pixels as attributes."""
    zarr: Any = need("zarr", "zarr", "Zarr folders")
    geometry = locate()
    attributes = dict[str, Any]()
    if geometry.spacing is not None:
        attributes = {"spacing": list(geometry.spacing), **({"unit": geometry.unit} if geometry.unit else {})}
    chunks = (1,) * (len(array.shape) - 2) + tuple(min(TILE, side) for side in array.shape[-2:])
    with fresh_folder(path) as folder:
        stored: Any = zarr.create_array(
            str(folder), shape=array.shape, dtype=array.dtype, chunks=chunks, attributes=attributes
        )
        if isinstance(array, LazyArray):
            for number, band in enumerate(_bands(array)):
                stored[number * TILE : number * TILE + len(band)] = band
        else:
            stored[...] = array
        for file in sorted(file for file in folder.rglob("*") if file.is_file()):
            with file.open("r+b") as opened:
                sync(opened.fileno(), path)
        remove(path)  # a rename can't replace an older folder


ARRAY_FILES: dict[str, Callable[..., None]] = {"npy": write_npy, "npz": write_npz, "zarr": write_zarr}


def _ome_xml(geometry: Geometry, shape: tuple[int, ...], dtype: np.dtype[Any]) -> str | None:
    """Write OME metadata of a picture (height, width), or of a page per channel, in ASCII; None without a spacing.

    If the spacing has three values, the pages are the planes of a volume.

    References
    ----------
    OME-XML 2016-06: Pixels with PhysicalSizeX and Y and their units, which are "pixel" if the spacing has no unit.
    """
    if geometry.spacing is None:
        return None
    unit = _UNITS.get(geometry.unit or "pixel", geometry.unit or "pixel")
    pages = shape[0] if len(shape) == 3 else 1
    channels, depth = (1, pages) if len(geometry.spacing) == 3 else (pages, 1)
    size = {"SizeX": shape[-1], "SizeY": shape[-2], "SizeC": channels, "SizeZ": depth, "SizeT": 1}
    pixels = {"ID": "Pixels:0", "DimensionOrder": "XYCZT", "Type": _OME_TYPES.get(dtype.name, dtype.name), **size}
    text = "".join(f" {key}={quoteattr(str(value))}" for key, value in pixels.items())
    for axis, edge in zip("XYZ", reversed(geometry.spacing), strict=False):
        text += f' PhysicalSize{axis}="{edge!r}" PhysicalSize{axis}Unit="{unit}"'
    channel_tags = "".join(f'<Channel ID="Channel:0:{number}" SamplesPerPixel="1"/>' for number in range(channels))
    xml = (
        f'<?xml version="1.0" encoding="UTF-8"?><OME xmlns="{_OME}"><Image ID="Image:0"><Pixels{text}>'
        f'{channel_tags}<TiffData IFD="0" PlaneCount="{pages}"/></Pixels></Image></OME>'
    )
    return xml.encode("ascii", "xmlcharrefreplace").decode()  # TIFF's texts are ASCII


def _resolution(geometry: Geometry) -> dict[str, Any]:
    """Return the pixels per centimetre of width and height as fractions, for readers that know no OME metadata."""
    if geometry.spacing is None or geometry.unit is None:
        return {}
    densities = [10 / (edge * MILLIMETRES[geometry.unit]) for edge in geometry.spacing[:-3:-1]]
    if not all(1 / _LARGEST_TERM < density < _LARGEST_TERM for density in densities):
        return {}
    fractions = [Fraction(x).limit_denominator(max(1, min(10**6, int(_LARGEST_TERM / x)))) for x in densities]
    resolution = tuple((fraction.numerator, fraction.denominator) for fraction in fractions)
    return {"resolution": resolution, "resolutionunit": "centimeter"} if all(fractions) else {}


def encode_labels_png(labels: NDArray[Any], colours: Sequence[Colour], *, ignore_index: int | None = None) -> bytes:
    """Encode a label map as PNG; every pixel of the file holds its label value.

    Label maps are long runs of one value. zlib's run-length strategy packs them faster and smaller than its search for
    matches (`benchmarks/export.py`).

    Parameters
    ----------
    labels
        (H, W) uint8 or uint16. uint8 gives a palette PNG with 4 bits per pixel if all values are below 16, and 8
        otherwise. uint16 gives a 16-bit greyscale PNG, because palettes end at 256 entries.
    colours
        One (red, green, blue) per class, 0 to 255. Entries without a class are magenta. Not used for uint16.
    ignore_index
        The ignored value, which is not a class. It is light grey.

    Returns
    -------
    The file's bytes. Pillow opens them in mode "P" or "I;16", with the same values.

    Raises
    ------
    InputError
        The dtype or the dimensions are wrong, the map is empty, or a uint8 map has more than 256 colours.

    Examples
    --------
    >>> encode_labels_png(np.zeros((2, 3), np.uint8), [(0, 0, 0)])[1:4]
    b'PNG'
    """
    where = "encode_labels_png"
    if labels.dtype.kind != "u" or labels.dtype.itemsize > 2 or labels.ndim != 2:
        rule, given = "(H, W) uint8 or uint16", f"{labels.dtype} {labels.shape}"
        raise InputError(expected(where, "labels", rule, given, "Check the range, then cast it yourself."))
    if not labels.size:
        raise InputError(expected(where, "labels", "to have at least one pixel", labels.shape))
    palette_options: dict[str, int] = {}
    if labels.dtype.itemsize == 2:
        image = Image.fromarray(labels.astype(np.uint16, order="C"))
    else:
        if len(colours) > 256:
            raise InputError(expected(where, "colours", "to be at most 256 for uint8 labels", len(colours)))
        bits = 4 if labels.max() < 16 and len(colours) <= 16 else 8
        palette_options = {"bits": bits}
        image = Image.fromarray(np.ascontiguousarray(labels))
        image.putpalette(_palette(colours, ignore_index, size=2**bits))
    file = io.BytesIO()
    image.save(file, "PNG", compress_type=zlib.Z_RLE, compress_level=1, **palette_options)
    return file.getvalue()


def palette_of(spec: ClassSpec) -> NDArray[np.uint16]:
    """Return the TIFF palette of a uint8 label map, (3, 256), 0 to 65535, with the colours of `encode_labels_png`."""
    entries = np.frombuffer(_palette(spec.colours, spec.ignore_index, size=256), np.uint8).reshape(256, 3)
    return np.ascontiguousarray(entries.T.astype(np.uint16) * 257)


def _palette(colours: Sequence[Colour], ignore_index: int | None, *, size: int) -> bytes:
    entries = [*colours, *[UNUSED_COLOUR] * (size - len(colours))]
    if ignore_index is not None and ignore_index < size:
        entries[ignore_index] = IGNORE_COLOUR
    return bytes(channel for colour in entries for channel in colour)


def class_folder(name: str) -> str:
    """Return the folder of a class: its name, or a safe form of it if it can't be a folder's name."""
    is_safe = Path(name).name == name and not name.startswith(".") and name.isprintable() and not is_refused(name)
    return name if is_safe else safe_id(name)
