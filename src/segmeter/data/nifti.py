"""NIfTI file -> array in (depth, height, width) order with its spacing and place; needs nibabel."""

import gzip
import io
import math
from pathlib import Path
from typing import IO, Any, Literal, cast

import numpy as np

from segmeter.checks import expected
from segmeter.data.formats import show
from segmeter.data.geometry import Geometry, agree, write_spacing
from segmeter.data.header import damaged
from segmeter.errors import DataError

_HEADS = {348: "Nifti1Image", 540: "Nifti2Image"}  # size of the header, which is also its first number
_ORDERS: tuple[Literal["little", "big"], ...] = ("little", "big")
_MOST_EXTENSIONS = 1 << 24  # bytes between header and pixels: notes of other tools
_UNITS = {"mm": "mm", "micron": "um", "meter": "m", "unknown": None}


def need_nibabel() -> None:
    """Refuse NIfTI files where nibabel is not installed.

    Raises
    ------
    DataError
        With the command that installs it.
    """
    try:
        import nibabel  # noqa: F401
    except ImportError as error:
        remedy = "Run: pip install 'segmeter[nifti]'"
        raise DataError(expected("score", "nibabel", "to be installed for NIfTI files", "none", remedy)) from error


def decode_nifti(path: Path, content: bytes, *, max_pixels: int) -> tuple[np.ndarray, Geometry]:
    """Decode a whole .nii or .nii.gz, after checking its size by the header and, of .gz, every checksum.

    Returns
    -------
    The array, its axes in C order: (depth, height, width) = the file's (k, j, i), as ITK gives it; scaled only where
    the header asks for it. And its geometry: the spacing in the same order, the affine in the file's (i, j, k).

    Raises
    ------
    DataError
        The file is damaged, too large, not of numbers, or has more than three axes.
    """
    need_nibabel()
    try:
        return _decode(path, content, max_pixels)
    except DataError:
        raise
    except Exception as error:  # third-party parsers raise many types on hostile bytes
        raise damaged(path, error) from error


def _decode(path: Path, content: bytes, max_pixels: int) -> tuple[np.ndarray, Geometry]:
    with _opened(content) as file:
        header, read = _header(path, file)
        size = _checked_size(path, header, max_pixels)
        body = read + file.read(max(0, size - len(read)))
        if len(body) != size or file.read(1):  # the one byte more makes gzip check its sums
            found = "fewer" if len(body) < size else "more"
            raise ValueError(f"{found} bytes than the {size} that the header asks for")
    shape = _spatial(path, header.get_data_shape())
    pixels = np.frombuffer(body, header.get_data_dtype(), offset=int(header["vox_offset"]))
    slope, intercept = header.get_slope_inter()
    if (slope or 1.0, intercept or 0.0) != (1.0, 0.0):
        pixels = pixels * np.float64(slope or 1.0) + np.float64(intercept or 0.0)
    pixels = pixels.reshape(shape, order="F").T
    return pixels.astype(pixels.dtype.newbyteorder("="), copy=False), _geometry(header, len(shape))


def _header(path: Path, file: IO[bytes]) -> tuple[Any, bytes]:
    """The header, and the bytes that were read of it."""
    import nibabel

    read = file.read(max(_HEADS))
    size = next((s for s in _HEADS for order in _ORDERS if s == int.from_bytes(read[:4], order)), 0)
    if not size or len(read) < size:
        raise DataError(expected(show(path), "content", "to be NIfTI in one file", "another header"))
    header_class = getattr(nibabel, _HEADS[size]).header_class
    return header_class.from_fileobj(io.BytesIO(read[:size])), read


def _opened(content: bytes) -> IO[bytes]:
    raw = io.BytesIO(content)
    return cast(IO[bytes], gzip.GzipFile(fileobj=raw)) if content.startswith(b"\x1f\x8b") else raw


def _checked_size(path: Path, header: Any, max_pixels: int) -> int:
    """Bytes of the whole file, by its header."""
    if bytes(header["magic"])[:3] not in (b"n+1", b"n+2"):
        raise DataError(expected(show(path), "NIfTI", "to hold header and pixels in one file", "a pair of files"))
    shape, dtype = tuple(map(int, header.get_data_shape())), np.dtype(header.get_data_dtype())
    if dtype.kind not in "uif":
        raise DataError(expected(show(path), "dtype", "to be numbers", dtype, "Save labels as integers."))
    pixels, offset = math.prod(shape), int(header["vox_offset"])
    size = " x ".join(map(str, shape))
    if min(shape, default=0) < 1:
        raise DataError(expected(show(path), "size", "to be at least 1 along every axis", size, "Write it again."))
    if pixels > max_pixels:
        remedy = f"If it is genuine, set data.max_pixels={pixels}."
        raise DataError(expected(show(path), "size", f"at most {max_pixels} voxels", size, remedy))
    if not int(header["sizeof_hdr"]) <= offset <= _MOST_EXTENSIONS:
        raise ValueError(f"pixels start at byte {offset}")
    total: int = offset + pixels * dtype.itemsize
    return total


def _spatial(path: Path, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The first three axes; further ones must have one element."""
    if len(shape) < 2 or math.prod(shape[3:]) != 1:
        rule, remedy = "to have 2 or 3 axes", "Save one file per time or channel."
        raise DataError(expected(show(path), "shape", rule, shape, remedy))
    return shape[:3]


def _geometry(header: Any, axes: int) -> Geometry:
    affine = np.asarray(header.get_best_affine(), np.float64)
    spacing = tuple(float(edge) for edge in header.get_zooms()[:axes])
    edges = np.linalg.norm(affine[:3, :axes], axis=0).tolist()
    conflict = ""
    if not agree(spacing, edges):
        conflict = f"pixdim {write_spacing(spacing, None)} and an affine of {write_spacing(edges, None)} (file order)"
    unit = _UNITS.get(header.get_xyzt_units()[0])
    return Geometry(
        spacing=spacing[::-1],
        unit=unit or "mm",  # the rule of every reader where the header names none
        source="NIfTI header",
        affine=_in_millimetres(affine, unit),
        conflict=conflict,
    )


def _in_millimetres(affine: np.ndarray, unit: str | None) -> np.ndarray:
    scale = {"um": 1e-3, "m": 1e3}.get(unit or "mm", 1.0)
    return np.asarray(affine * np.array([scale, scale, scale, 1.0])[:, None])
