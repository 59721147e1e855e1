"""MHA and NRRD files -> array in (depth, height, width) order with its spacing and place; needs SimpleITK."""

import re
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected
from segmeter.data.files.formats.library import need
from segmeter.data.files.geometry import Geometry, stated_geometry
from segmeter.data.files.header import damaged
from segmeter.data.files.npy import check_pixels
from segmeter.data.files.sniff import show
from segmeter.errors import DataError

SOURCE = "ITK header"
FLIPS = np.diag([-1.0, -1.0, 1.0, 1.0])  # from ITK's and DICOM's left, posterior, superior to NIfTI's right, anterior

_READERS = {"mha": "MetaImageIO", "nrrd": "NrrdImageIO"}
_MOST_HEADER = 1 << 16  # bytes
_ELSEWHERE = {
    "mha": re.compile(rb"^ElementDataFile[ \t]*=[ \t]*(?!LOCAL\b)(\S.*)$", re.MULTILINE),
    "nrrd": re.compile(rb"^data ?file:(.*)$", re.MULTILINE),
}
_UNITS = re.compile(rb"^space units:(.*)$", re.MULTILINE)


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
    sitk = need("SimpleITK", "itk", "MHA and NRRD files")
    head = file.read(_MOST_HEADER)
    form = "nrrd" if head.startswith(b"NRRD") else "mha"
    head = head.partition(b"\n\n")[0] if form == "nrrd" else head
    other = _ELSEWHERE[form].search(head)
    if other:
        found = f"one that names {other[1].decode(errors='replace').strip()[:60]!r}"
        raise DataError(expected(show(path), "file", "to hold its pixels itself", found, "Save it as one file."))
    try:
        return _read(sitk, path, _READERS[form], _UNITS.search(head) if form == "nrrd" else None, max_pixels)
    except DataError:
        raise
    except Exception as error:  # ITK raises RuntimeError on whatever it can't read
        raise damaged(path, error) from error


def _read(
    sitk: Any, path: Path, reader_name: str, units: "re.Match[bytes] | None", max_pixels: int
) -> tuple[NDArray[Any], Geometry]:
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
    names = re.findall(r'"([^"]*)"', units[1].decode(errors="replace")) if units else []
    axes = len(shape)
    edges = image.GetSpacing()[:axes]
    affine = FLIPS @ place(np.array(image.GetDirection()), edges, image.GetOrigin()[:axes])
    stated = (names or ["mm"] * axes)[:axes]
    return pixels, stated_geometry(path, list(reversed(edges)), list(reversed(stated)), source=SOURCE, affine=affine)


def place(direction: NDArray[np.float64], edges: tuple[float, ...], origin: tuple[float, ...]) -> NDArray[np.float64]:
    """The (4, 4) affine of a direction matrix, flat and of any number of axes, spacing and origin, in index order."""
    size, axes = int(np.sqrt(direction.size)), len(edges)
    affine = np.eye(4)
    affine[:axes, :axes] = direction.reshape(size, size)[:axes, :axes] * np.array(edges)
    affine[:axes, 3] = origin
    return affine
