"""NIfTI file -> array in (depth, height, width) order with its spacing and place; needs nibabel."""

import gzip
import io
import logging
import math
import os
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Literal, cast

import imagecodecs
import numpy as np

from segmeter.checks import expected
from segmeter.data.files.geometry import SET_SPACING, Geometry, agree, differing_place, stated_geometry, write_spacing
from segmeter.data.files.sniff import damaged, show
from segmeter.data.units import MILLIMETRES
from segmeter.errors import DataError

_HEADS = {348: "Nifti1Image", 540: "Nifti2Image"}  # size of the header, which is also its first number
_ORDERS: tuple[Literal["little", "big"], ...] = ("little", "big")
_MOST_EXTENSIONS = 1 << 24  # bytes between header and pixels: notes of other tools
_UNITS = {0: "mm", 1: "m", 2: "mm", 3: "um"}  # codes of xyzt_units; mm is the rule of every reader where none is named
_SPACES = {1: "scanner", 2: "aligned", 3: "Talairach", 4: "MNI 152", 5: "template"}
_crc32: Callable[..., int] = imagecodecs.deflate_crc32  # it takes any buffer, which its type does not say
_PACKING = 1 << 16  # bytes that gzip may add to what it can't pack
_QUIET = logging.Logger("quiet nibabel")  # what nibabel mends and prints is refused here, or harmless
_QUIET.addHandler(logging.NullHandler())


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


def decode_nifti(path: Path, stored: IO[bytes], *, max_pixels: int) -> tuple[np.ndarray, Geometry]:
    """Decode an open .nii or .nii.gz, after checking its size by the header and, of .gz, every checksum.

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
        return _decode(path, stored, max_pixels)
    except DataError:
        raise
    except Exception as error:  # third-party parsers raise many types on hostile bytes
        raise damaged(path, error) from error


def _decode(path: Path, stored: IO[bytes], max_pixels: int) -> tuple[np.ndarray, Geometry]:
    file = _unpacked(stored)
    header, pixdim, read = _header(path, file)
    size = _checked_size(path, header, max_pixels)
    if os.fstat(stored.fileno()).st_size > size + size // 100 + _PACKING:
        raise ValueError(f"more bytes than the {size} that the header asks for")
    body = None if file is stored else _unpack_whole(stored, size)
    if body is None:
        body = np.frombuffer(read + file.read(max(0, size - len(read))), np.uint8)
        if len(body) != size or file.read(1):  # the one byte more makes gzip check its sums
            found = "fewer" if len(body) < size else "more"
            raise ValueError(f"{found} bytes than the {size} that the header asks for")
    shape = _spatial(path, header.get_data_shape())
    pixels = np.frombuffer(body, header.get_data_dtype(), offset=int(header["vox_offset"]))
    slope, intercept = header.get_slope_inter()
    if (slope or 1.0, intercept or 0.0) != (1.0, 0.0):
        pixels = pixels * np.float64(slope or 1.0) + np.float64(intercept or 0.0)
    pixels = pixels.reshape(shape, order="F").T
    return pixels.astype(pixels.dtype.newbyteorder("="), copy=False), _geometry(path, header, pixdim, shape)


def _header(path: Path, file: IO[bytes]) -> tuple[Any, np.ndarray, bytes]:
    """The header as nibabel mends it, the edges as they are stored, and the bytes that were read of it."""
    import nibabel

    read = file.read(min(_HEADS))  # no byte more: at the end of a packed file gzip looks for another one, through zeros
    size = next((s for s in _HEADS for order in _ORDERS if s == int.from_bytes(read[:4], order)), 0)
    read += file.read(max(0, size - len(read)))
    if not size or len(read) < size:
        raise DataError(expected(show(path), "content", "to be NIfTI in one file", "another header"))
    header_class = getattr(nibabel, _HEADS[size]).header_class
    header = header_class.from_fileobj(io.BytesIO(read[:size]), check=False)
    pixdim = np.array(header["pixdim"][1:4], np.float64)
    header.check_fix(logger=_QUIET)
    return header, pixdim, read


def _unpacked(stored: IO[bytes]) -> IO[bytes]:
    packed = stored.read(2) == b"\x1f\x8b"
    stored.seek(0)
    return cast(IO[bytes], gzip.GzipFile(fileobj=stored)) if packed else stored


def _unpack_whole(stored: IO[bytes], size: int) -> np.ndarray | None:
    """Unpack a file of one gzip member by libdeflate, in half of zlib's time; None leaves any other to zlib.

    libdeflate checks the member's sum and length, with which it ends, but not what follows it. So they must stand at
    the end of the file, and nowhere before.
    """
    at = stored.tell()
    stored.seek(0)
    packed = stored.read()
    stored.seek(at)
    body = np.empty(size, np.uint8)
    try:
        if len(imagecodecs.gzip_decode(packed, out=body.data)) != size:
            return None
    except (RuntimeError, ValueError):  # imagecodecs.DeflateError is a RuntimeError
        return None
    end = struct.pack("<II", _crc32(body), size % 2**32)
    return body if packed.find(end) == len(packed) - len(end) else None


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


def _geometry(path: Path, header: Any, pixdim: np.ndarray, shape: tuple[int, ...]) -> Geometry:
    """Geometry from a header that nibabel has mended, and `pixdim` from before: it turns 0 into 1, -0.5 into 0.5."""
    axes, code = len(shape), int(header["xyzt_units"]) & 7
    unit = _UNITS.get(code, f"code {code}")
    affine = np.asarray(header.get_best_affine(), np.float64)
    edges = np.linalg.norm(affine[:3, :axes], axis=0).tolist()
    spacing = [float(edge) for edge in pixdim[:axes]]
    found = stated_geometry(path, spacing[::-1], [unit] * axes, source="NIfTI header", affine=affine)
    if found.spacing_problem:
        return found
    scale = MILLIMETRES[unit]
    found = replace(found, affine=affine * np.array([scale, scale, scale, 1.0])[:, None])
    if not agree(spacing, edges):
        both = f"pixdim {write_spacing(spacing, None)} and an affine of {write_spacing(edges, None)} (file order)"
        problem = expected(show(path), "NIfTI header", "to say one spacing", both, SET_SPACING)
        found = replace(found, spacing=None, spacing_problem=problem)
    return _both_forms(path, header, found, shape[::-1])


def _both_forms(path: Path, header: Any, found: Geometry, shape: tuple[int, ...]) -> Geometry:
    """Check the sform, which is the one taken, against the qform, where the header has both.

    Two forms of one space must agree. Of two spaces, such as the scanner's and an atlas', each has its own place.
    """
    sform, qform = int(header["sform_code"]), int(header["qform_code"])
    if sform <= 0 or qform <= 0:
        return found
    other = differing_place(header.get_qform(), header.get_sform(), shape)
    if other is None:
        return found
    name, wanted, given = other
    if sform == qform:
        rule = f"of qform and sform to agree, as both are of the space with code {sform}"
        remedy = "Set the code of the wrong one to 0."
        problem = expected(show(path), name, rule, f"sform {wanted}, qform {given}", remedy)
        return replace(found, place_problem=problem)
    spaces = [f"{code} ({_SPACES.get(code, 'unknown')})" for code in (sform, qform)]
    return replace(found, note=f"the NIfTI sform, space {spaces[0]}, is taken; the qform, space {spaces[1]}, differs")
