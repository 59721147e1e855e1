"""Reads NPY, NPZ and NIfTI files, whose headers give the size before any value is read."""

import gzip
import io
import logging
import math
import os
import struct
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Literal

import imagecodecs
import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from segmeter.checks import expected
from segmeter.data.files.array import FileArray, Opening, array_header, pick_array
from segmeter.data.files.geometry import (
    MILLIMETRES,
    Geometry,
    agree,
    differing_place,
    stated_geometry,
    unusable_spacing,
    write_spacing,
)
from segmeter.data.files.reader_process import need
from segmeter.data.files.refusals import file_error, show

_LONGEST_HEAD = 10_100  # in bytes: NumPy accepts 10,000 after the first few
# CPython counts the depth of a literal that it parses per interpreter, not per thread, so two threads may not parse.
_PARSING = threading.Lock()
_HEADS = {348: "Nifti1Image", 540: "Nifti2Image"}  # by the size of the header, which is also its first number
_MOST_EXTENSIONS = 1 << 24  # At most this many bytes lie between header and pixels, for notes of other tools.
_UNITS = {0: "mm", 1: "m", 2: "mm", 3: "um"}  # codes of xyzt_units; every reader takes mm if none is named
_SPACES = {1: "scanner", 2: "aligned", 3: "Talairach", 4: "MNI 152", 5: "template"}
_PACKING = 1 << 16  # Gzip may add this many bytes to incompressible content.
_QUIET = logging.Logger("quiet nibabel")  # whatever nibabel repairs and logs is refused here, or harmless
_QUIET.addHandler(logging.NullHandler())


class NpyArray(FileArray):
    """An NPY file. Parts of it are mapped into memory; the whole of it is read."""

    def __init__(self, path: Path, file: IO[bytes], opening: Opening) -> None:
        super().__init__(path, file)
        self._shape, self._order, self._dtype, self._start = _read_head(file)
        self.header = array_header(path, "npy", self._shape, self._dtype, opening)
        stored = file.seek(0, io.SEEK_END) - self._start
        size = math.prod(self._shape) * self._dtype.itemsize
        if stored != size:
            raise ValueError(f"{stored} bytes of pixels, where the header asks for {size}")

    def _decode(self) -> NDArray[Any]:
        assert self._file is not None
        self._file.seek(self._start)
        return np.frombuffer(self._file.read(), self._dtype).reshape(self._shape, order=self._order)

    def _lines(self, start: int, stop: int, columns: slice) -> NDArray[Any]:
        if (start, stop, columns) == (0, self.header.height, slice(None)):
            return self._whole
        return np.array(self._mapped()[(*[slice(None)] * len(self.header.lead), slice(start, stop), columns)])

    def _blocks(self) -> Iterator[NDArray[Any]]:
        mapped = self._mapped()
        return (np.array(mapped[number : number + 1]) for number in range(len(mapped)))

    def _mapped(self) -> NDArray[Any]:
        return np.memmap(self.path, self._dtype, "r", self._start, self._shape, self._order).reshape(self.header.shape)


def open_npz(path: Path, file: IO[bytes], opening: Opening) -> FileArray:
    """Open the array called `key` of an NPZ archive, or its only one."""
    archive = zipfile.ZipFile(file)
    names = [name.removesuffix(".npy") for name in archive.namelist()]
    name = f"{pick_array(path, names, opening.key)}.npy"
    with archive.open(name) as member:
        shape, order, dtype, start = _read_head(member)

    def decode() -> NDArray[Any]:
        with archive.open(name) as member:
            member.read(start)
            content = member.read(math.prod(shape) * dtype.itemsize + 1)  # 1 more: the checksum is verified at the end
        return np.frombuffer(content, dtype).reshape(shape, order=order)

    return FileArray(path, file, array_header(path, "npz", shape, dtype, opening), pixels=decode)


def _read_head(file: IO[bytes]) -> tuple[tuple[int, ...], Literal["C", "F"], np.dtype[Any], int]:
    """Read the head of an NPY file: shape, order and dtype of the values, and the byte at which they begin.

    Raises
    ------
    ValueError
        The head is damaged, or longer than NumPy accepts.
    """
    head = io.BytesIO(file.read(_LONGEST_HEAD))  # NumPy has a limit too, but applies it after reading
    version = npy_format.read_magic(head)
    read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
    with _PARSING:
        shape, by_column, dtype = read(head)
    return shape, "F" if by_column else "C", dtype, head.tell()


def open_nifti(path: Path, file: IO[bytes], opening: Opening) -> FileArray:
    """Open a .nii or .nii.gz file. Its axes (i, j, k) become (depth, height, width), which is (k, j, i), as in ITK.

    Values are scaled only if the header asks for it.
    """
    is_packed = file.read(2) == b"\x1f\x8b"

    def rewound() -> IO[bytes]:
        file.seek(0)
        return gzip.GzipFile(fileobj=file) if is_packed else file  # type: ignore[return-value]

    nifti_header, pixdim = _nifti_header(path, rewound())
    shape = tuple(map(int, nifti_header.get_data_shape()))
    dtype = np.dtype(nifti_header.get_data_dtype())
    if len(shape) < 2 or (min(shape) > 0 and math.prod(shape[3:]) != 1):
        raise file_error(path, "shape", "to have 2 or 3 axes", shape, "Save one file per time or channel.")
    offset = int(nifti_header["vox_offset"])
    if not int(nifti_header["sizeof_hdr"]) <= offset <= _MOST_EXTENSIONS:
        raise ValueError(f"pixels start at byte {offset}")
    shape = shape[:3]
    size = offset + math.prod(shape) * dtype.itemsize
    slope, intercept = nifti_header.get_slope_inter()
    slope, intercept = slope or 1.0, intercept or 0.0
    is_scaled = (slope, intercept) != (1.0, 0.0)
    header = array_header(path, "nifti", shape[::-1], np.dtype(np.float64) if is_scaled else dtype, opening)
    if os.fstat(file.fileno()).st_size > size + size // 100 + _PACKING:
        raise ValueError(f"more bytes than the {size} that the header asks for")

    def values(body: Any, start: int = 0) -> NDArray[Any]:
        pixels = np.frombuffer(body, dtype, offset=start)
        return pixels * np.float64(slope) + np.float64(intercept) if is_scaled else pixels

    def decode() -> NDArray[Any]:
        file.seek(0)
        body = _unpack_gzip(file.read(), size) if is_packed else None
        return np.concatenate([*planes()]) if body is None else values(body, offset)

    def planes() -> Iterator[NDArray[Any]]:
        stream = rewound()
        stream.seek(offset)
        length = math.prod(shape[:2]) * dtype.itemsize
        for _ in range(math.prod(shape[2:])):
            yield values(stream.read(length)).reshape(1, *shape[1::-1])
        if stream.read(1):  # reading to the end also makes gzip verify its checksum
            raise ValueError(f"more bytes than the {size} that the header asks for")

    return FileArray(path, file, header, _nifti_geometry(path, nifti_header, pixdim, shape), decode, planes)


def _unpack_gzip(packed: bytes, size: int) -> NDArray[np.uint8] | None:
    """Unpack a gzip file with libdeflate, which takes half of zlib's time; None if anything is wrong.

    libdeflate verifies the checksum at the end of a stream but ignores any bytes after it. So the checksum must be the
    last bytes, and must not occur before.
    """
    body = np.empty(size, np.uint8)
    try:
        unpacked = len(imagecodecs.gzip_decode(packed, out=body.data))
    except (RuntimeError, ValueError):  # imagecodecs.DeflateError is a RuntimeError
        return None
    crc32: Callable[..., int] = imagecodecs.deflate_crc32  # Its type hint is too narrow: it takes any buffer.
    end = struct.pack("<II", crc32(body), size % 2**32)
    return body if unpacked == size and packed.find(end) == len(packed) - len(end) else None


def _nifti_header(path: Path, file: IO[bytes]) -> tuple[Any, NDArray[np.float64]]:
    """Return the header as nibabel repairs it, and the pixel edges as stored."""
    nibabel = need("nibabel", "nifti", "NIfTI files")
    # no more bytes: beyond the end of a packed file, gzip reads through zeros in search of another one
    head = file.read(min(_HEADS))
    size = next((size for size in _HEADS if head[:4] in (size.to_bytes(4, "little"), size.to_bytes(4, "big"))), 0)
    head += file.read(max(0, size - len(head)))
    if not size or len(head) < size:
        raise file_error(path, "content", "to be NIfTI in one file", "another header")
    header = getattr(nibabel, _HEADS[size]).header_class.from_fileobj(io.BytesIO(head[:size]), check=False)
    pixdim = np.array(header["pixdim"][1:4], np.float64)
    header.check_fix(logger=_QUIET)
    if bytes(header["magic"])[:3] not in (b"n+1", b"n+2"):
        raise file_error(path, "NIfTI", "to hold header and pixels in one file", "a pair of files")
    return header, pixdim


def _nifti_geometry(path: Path, header: Any, pixdim: np.ndarray, shape: tuple[int, ...]) -> Geometry:
    """Build the geometry from the repaired header and the stored `pixdim`, in which nibabel turns 0 into 1.

    The sform is used. If the header has a qform of the same space, the two must agree. Forms of two spaces, such as
    those of a scanner and an atlas, may differ.
    """
    axes = len(shape)
    code = int(header["xyzt_units"]) & 7
    unit = _UNITS.get(code, f"code {code}")
    affine = np.asarray(header.get_best_affine(), np.float64)
    edges = np.linalg.norm(affine[:3, :axes], axis=0).tolist()
    spacing = [float(edge) for edge in pixdim[:axes]]
    geometry = stated_geometry(path, spacing[::-1], [unit] * axes, source="NIfTI header", affine=affine)
    if geometry.spacing_problem:
        return geometry
    scale = MILLIMETRES[unit]
    geometry = geometry.having(affine=affine * np.array([scale, scale, scale, 1.0])[:, None])
    if not agree(spacing, edges):
        both = f"pixdim {write_spacing(spacing, None)} and an affine of {write_spacing(edges, None)} (file order)"
        unusable = unusable_spacing(path, geometry.source, "", "to say one spacing", both)
        geometry = geometry.having(spacing=None, spacing_problem=unusable.spacing_problem)
    codes = sform, qform = int(header["sform_code"]), int(header["qform_code"])
    difference = differing_place(header.get_qform(), header.get_sform(), shape[::-1]) if min(codes) > 0 else None
    if difference is None:
        return geometry
    if sform == qform:
        what, sform_value, qform_value = difference
        rule = f"of qform and sform to agree, as both are of the space with code {sform}"
        remedy = "Set the code of the wrong one to 0."
        problem = expected(show(path), what, rule, f"sform {sform_value}, qform {qform_value}", remedy)
        return geometry.having(place_problem=problem)
    of_s, of_q = (f"{code} ({_SPACES.get(code, 'unknown')})" for code in codes)
    return geometry.having(note=f"the NIfTI sform, space {of_s}, is taken; the qform, space {of_q}, differs")
