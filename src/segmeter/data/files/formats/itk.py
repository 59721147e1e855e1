"""MHA and NRRD files -> array in (depth, height, width) order with its spacing and place; needs SimpleITK."""

import math
import os
import re
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import imagecodecs
import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected
from segmeter.data.files.formats.library import need
from segmeter.data.files.formats.reader_process import read_apart
from segmeter.data.files.geometry import Geometry, stated_geometry
from segmeter.data.files.npy import check_pixels
from segmeter.data.files.sniff import damaged, show
from segmeter.data.units import MILLIMETRES
from segmeter.errors import DataError

SOURCE = "ITK header"
FLIPS = np.diag([-1.0, -1.0, 1.0, 1.0])  # from ITK's and DICOM's left, posterior, superior to NIfTI's right, anterior

_READERS = {"mha": "MetaImageIO", "nrrd": "NrrdImageIO"}
_MOST_HEADER = 1 << 16  # bytes
_MOST_AXES = 8  # more than any that is read
_DIGITS = 19  # of a number that int64 does not hold
_SKIPS = ("HeaderSize", "lineskip", "byteskip")  # fields for what lies between header and pixels
_SPACINGS = ("ElementSpacing", "ElementSize", "spacings", "spacedirections")


def decode_itk(path: Path, file: IO[bytes], *, max_pixels: int) -> tuple[NDArray[Any], Geometry]:
    """Decode an open .mha or .nrrd file, its size checked by the header before a pixel is read.

    Returns
    -------
    (H, W) or (D, H, W), as SimpleITK gives it; and the place: spacing in mm where the file names no other unit, and the
    affine to right, anterior, superior, as that of NIfTI.

    Raises
    ------
    DataError
        The file is damaged, too large, has several values per pixel, or keeps its pixels in another file.
    """
    head = file.read(_MOST_HEADER)
    form = "nrrd" if head.startswith(b"NRRD") else "mha"
    fields = _nrrd_fields(path, head) if form == "nrrd" else _mha_fields(path, head)
    pixels, size = _stated_pixels(path, fields), os.fstat(file.fileno()).st_size
    end = re.search(rb"\n\r?\n" if form == "nrrd" else rb"^[ \t]*ElementDataFile[^\n]*\n", head, re.MULTILINE)
    arguments = (path, _READERS[form], fields, end.end() if end else 0, max_pixels)
    return read_apart(path, _read, *arguments, size=size, pixels=min(pixels, max_pixels), max_pixels=max_pixels)


def _read(
    path: Path, reader_name: str, fields: Mapping[str, str], start: int, max_pixels: int
) -> tuple[NDArray[Any], Geometry]:
    """Decode the file, in the reader process."""
    sitk = need("SimpleITK", "itk", "MHA and NRRD files")
    try:
        return _decode(sitk, path, reader_name, fields, start, max_pixels)
    except DataError:
        raise
    except Exception as error:  # ITK raises RuntimeError on whatever it can't read
        raise _spacing_fault(path, fields) or damaged(path, error) from error


def _decode(
    sitk: Any, path: Path, reader_name: str, fields: Mapping[str, str], start: int, max_pixels: int
) -> tuple[NDArray[Any], Geometry]:
    stated_units = _stated_units(path, fields)
    reader = sitk.ImageFileReader()
    reader.SetImageIO(reader_name)
    reader.SetFileName(str(path))
    reader.ReadImageInformation()
    shape = tuple(reversed(reader.GetSize()))
    if reader.GetNumberOfComponents() != 1:
        found, remedy = f"{reader.GetNumberOfComponents()} values per pixel", "Save one map per file."
        raise DataError(expected(show(path), "mask", "to have one channel", found, remedy))
    while len(shape) > 3 and shape[0] == 1:
        shape = shape[1:]
    check_pixels(path, shape, np.dtype(np.float64), max_pixels)
    image = reader.Execute()
    pixels: NDArray[Any] = sitk.GetArrayFromImage(image).reshape(shape)
    check_pixels(path, shape, pixels.dtype, max_pixels)
    _check_bytes(path, fields, start, pixels)
    axes = len(shape)
    units = (stated_units if len(stated_units) > 1 else stated_units * axes)[:axes]
    header = stated_edges(fields)[:axes]
    if not header:
        return pixels, Geometry()  # ITK then says 1 mm
    if len(header) < axes or not all(math.isfinite(edge) and edge > 0 for edge in header):  # ITK would mend them
        wrong: list[float | None] = [None] * (axes - len(header)) + header[::-1]
        return pixels, stated_geometry(path, wrong, units[::-1], source=SOURCE)
    edges = image.GetSpacing()[:axes]
    geometry = stated_geometry(path, edges[::-1], units[::-1], source=SOURCE)
    if len(set(units)) > 1:  # of axes that lie in no common space
        return pixels, geometry
    affine = FLIPS @ place(np.array(image.GetDirection()), edges, image.GetOrigin()[:axes])
    affine[:3] *= MILLIMETRES[geometry.unit] if geometry.unit else 1.0
    return pixels, geometry.having(affine=affine)


def _stated_pixels(path: Path, fields: Mapping[str, str]) -> int:
    """The number of pixels that a header states.

    Raises
    ------
    DataError
        It has another number of sizes than of axes, or states that something lies before the pixels.
    """
    axes, sizes = (
        next((fields[name] for name in names if name in fields), "")
        for names in (("NDims", "dimension"), ("DimSize", "sizes"))
    )
    numbers = sizes.split()
    plain = all(each.isascii() and each.isdigit() and len(each) < _DIGITS for each in (axes, *numbers))
    if not plain or not 0 < int(axes) == len(numbers) <= _MOST_AXES:
        raise damaged(path, ValueError(f"{axes or 'no number of'} axes of sizes {sizes[:60] or 'none'}"))
    for name in _SKIPS:
        if fields.get(name, "0") not in ("0", "-1"):
            found = f"{name} {fields[name][:60]}"
            remedy = "Save it again without."
            raise DataError(expected(show(path), "header", "to be followed by the pixels", found, remedy))
    return math.prod(map(int, numbers))


def _check_bytes(path: Path, fields: Mapping[str, str], start: int, pixels: NDArray[Any]) -> None:
    """Compare what stands behind the header with the pixels that ITK gave.

    ITK takes a damaged zlib stream without a word, and what it could not unpack is then whatever lay in memory. It cuts
    numbers in a text to the range of the dtype, and leaves bytes that are too many.

    Raises
    ------
    ValueError
        The bytes are others, more or fewer, or their checksum is wrong.
    """
    with path.open("rb") as file:
        file.seek(start)
        body = file.read()
    coded = fields.get("encoding", "").lower()
    is_text = coded in ("text", "txt", "ascii") or fields.get("BinaryData", "T")[:1] not in "Tt1"
    if is_text:
        numbers, given = np.array(body.split(), np.float64), pixels.ravel().astype(np.float64)
        good = len(numbers) == len(given) and np.allclose(numbers, given, rtol=1e-6, atol=0)  # float32 is less exact
    elif coded == "hex":
        good = len(bytes.fromhex(body.decode("ascii"))) == pixels.nbytes
    elif coded in ("gz", "gzip") or fields.get("CompressedData", "F")[:1] in "Tt1":
        size = fields.get("CompressedDataSize", str(len(body)) if coded else "none")
        good = size == str(len(body)) and _unpacks_to(body, pixels.nbytes, is_gzip=bool(coded))
    else:
        good = len(body) == pixels.nbytes
    if not good:
        raise ValueError(f"other bytes behind the header than those of {pixels.size} pixels")


def _unpacks_to(body: bytes, size: int, *, is_gzip: bool) -> bool:
    """Whether a zlib or gzip stream, with nothing behind it, holds so many bytes, its checksum being right."""
    content = np.empty(size, np.uint8)
    try:
        found = len((imagecodecs.gzip_decode if is_gzip else imagecodecs.deflate_decode)(body, out=content.data))
    except (RuntimeError, ValueError):  # imagecodecs.DeflateError is a RuntimeError
        return False
    end = (
        struct.pack("<II", zlib.crc32(content.data), size % 2**32)
        if is_gzip
        else struct.pack(">I", zlib.adler32(content.data))
    )
    return found == size and body.endswith(end)


def stated_edges(fields: Mapping[str, str]) -> list[float]:
    """The edges that a header states, first axis first, whatever they are; none where it states none.

    Examples
    --------
    >>> stated_edges({"ElementSpacing": "0.5 -1"}), stated_edges({"spacedirections": "none (3,4,0) (0,0,nan)"})
    ([0.5, -1.0], [5.0, nan])
    """
    text = _stated_spacing(fields)
    vectors = re.findall(r"\(([^)]*)\)", text)
    return [math.hypot(*map(_number, each.split(","))) for each in vectors] or [*map(_number, text.split())]


def _stated_spacing(fields: Mapping[str, str]) -> str:
    return next((fields[name] for name in _SPACINGS if name in fields), "")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _spacing_fault(path: Path, fields: Mapping[str, str]) -> DataError | None:
    """The refusal of a spacing for which ITK reads no pixel; None where that is not the fault."""
    edges = stated_edges(fields)
    if not any(name in fields for name in _SPACINGS) or (edges and all(math.isfinite(edge) and edge for edge in edges)):
        return None
    rule, found = "to be a finite number > 0 along every axis", repr(_stated_spacing(fields)[:60])
    return DataError(expected(f"{show(path)}: {SOURCE}", "spacing", rule, found, "Correct the file."))


def _stated_units(path: Path, fields: Mapping[str, str]) -> list[str]:
    """The unit of each axis, first axis first, or of all: mm, as ITK takes it, where the header names none.

    NRRD names them for its axes, or for those of the space around it, which its axes may cross: these must be one.
    """
    if fields.get("DistanceUnits", "?") != "?":
        return [fields["DistanceUnits"]]
    by_axis, of_space = (re.findall(r'"([^"]*)"', fields.get(name, "")) for name in ("units", "spaceunits"))
    if (by_axis and of_space) or len(set(of_space)) > 1:
        found = "units and space units" if by_axis else ", ".join(of_space)
        rule, remedy = "of the spacing to be one", "Correct the file."
        raise DataError(expected(f"{show(path)}: {SOURCE}", "unit", rule, found, remedy))
    return by_axis or of_space or ["mm"]


def _mha_fields(path: Path, head: bytes) -> dict[str, str]:
    """The fields of a header by their names, up to the one that says where the pixels are: behind it."""
    fields: dict[str, str] = {}
    for line in head.split(b"\n")[:-1]:
        if not line.strip():
            continue
        key, value = _split_line(path, line, re.compile(r"[=:]"))
        _add_field(path, fields, key, value)
        if key.lower() == "elementdatafile":
            if key != "ElementDataFile" or value != "LOCAL":
                raise _elsewhere(path, f"{key} = {value}")
            return fields
    raise _endless(path)


def _nrrd_fields(path: Path, head: bytes) -> dict[str, str]:
    """The fields of a header by their names in small letters and without blanks."""
    fields: dict[str, str] = {}
    for line in head.split(b"\n")[1:-1]:
        if line in (b"", b"\r"):
            return fields
        if line.startswith(b"#"):
            continue
        key, value = _split_line(path, line, re.compile(r":"))
        key = "".join(key.lower().split())
        if key == "datafile":
            raise _elsewhere(path, value)
        if not value.startswith("="):  # := is a remark of the writer's own
            _add_field(path, fields, key, value)
    raise _endless(path)


def _split_line(path: Path, line: bytes, separator: re.Pattern[str]) -> tuple[str, str]:
    text = line.strip().decode(errors="replace")
    key, *value = separator.split(text, maxsplit=1)
    if not value or "\r" in text:
        raise DataError(expected(show(path), "header", "to have a name and a value per line", repr(text[:60])))
    return key.strip(), value[0].strip()


def _add_field(path: Path, fields: dict[str, str], key: str, value: str) -> None:
    if key in fields:
        raise DataError(expected(show(path), "header", "to name a field once", f"{key[:60]!r} twice"))
    fields[key] = value


def _elsewhere(path: Path, found: str) -> DataError:
    what = f"one that names {found[:60]!r}"
    return DataError(expected(show(path), "file", "to hold its pixels itself", what, "Save it as one file."))


def _endless(path: Path) -> DataError:
    return DataError(expected(show(path), "header", f"to end within {_MOST_HEADER} bytes", "none that does"))


def place(direction: NDArray[np.float64], edges: tuple[float, ...], origin: tuple[float, ...]) -> NDArray[np.float64]:
    """The (4, 4) affine of a direction matrix, flat and of any number of axes, spacing and origin, in index order."""
    size, axes = int(np.sqrt(direction.size)), len(edges)
    affine = np.eye(4)
    affine[:axes, :axes] = direction.reshape(size, size)[:axes, :axes] * np.array(edges)
    affine[:axes, 3] = origin
    return affine
