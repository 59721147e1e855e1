"""Opens images and masks of every format in one way: the size is checked before a pixel is decoded.

It also limits the time for reading a case, because a file server may never answer.
"""

import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache, partial
from io import BufferedReader
from multiprocessing import parent_process
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, TypeVar, cast

from segmeter.checks import shorten
from segmeter.data.files.array import FileArray, Header, LazyArray, Opening
from segmeter.data.files.formats import name_format, volume_format
from segmeter.data.files.geometry import NOWHERE, Geometry
from segmeter.data.files.medical import open_dicom, open_itk
from segmeter.data.files.pictures import PictureArray
from segmeter.data.files.refusals import check_size, damage_named, file_error, open_regular, show, unchanged
from segmeter.data.files.tiff import open_tiff_array
from segmeter.data.files.volumes import NpyArray, open_nifti, open_npz
from segmeter.data.files.zarr import ZarrArray, hash_folder, is_zarr
from segmeter.errors import LateError
from segmeter.remote import fetched

# A file may have this many bytes for each of data.max_pixels: the widest dtype needs 8, and 8 are to spare.
_BYTES_PER_PIXEL = 16
_LOCATED = (".tif", ".tiff", ".zarr")  # suffixes of pictures that may state where their pixels lie
_READ_ONCE = ("png", "jpeg", "bmp")  # formats whose hash and pixels come from the same bytes in memory
_WAITS = 10  # Wait in ten steps, so that a suspended process loses at most a tenth of its time.
OPENERS: dict[str, Callable[[Path, BufferedReader, Opening], FileArray]] = {
    **{form: partial(PictureArray, form=form) for form in _READ_ONCE},
    "tiff": open_tiff_array,
    "npy": NpyArray,
    "npz": open_npz,
    "nifti": open_nifti,
    "itk": open_itk,
    "dicom": open_dicom,
}
Result = TypeVar("Result")


@contextmanager
def open_array(path: Path, *, refuse_changes: bool = False, **options: Any) -> Iterator[FileArray]:
    """Open an image or mask without reading its pixels; whatever is read inside the block is checked.

    Parameters
    ----------
    path
        A file of any format in `OPENERS`, or a Zarr folder.
    refuse_changes
        Whether to refuse a file that changes inside the block.
    options
        The fields of `Opening`.

    Raises
    ------
    DataError
        The file is missing, damaged, larger than allowed, or of an unknown format.
    """
    opening = Opening(**options)
    form = volume_format(path)
    if form == "zarr":
        with unchanged([path]) if refuse_changes else nullcontext():
            with damage_named(path):
                array: FileArray = ZarrArray(path, opening)
            yield array
        return
    with open_regular(path) as file:
        form = form or name_format(path, file.peek()[:64])
        if form not in OPENERS:
            rule = "to hold pixels: PNG, JPEG, BMP, TIFF, NPY, NPZ, NIfTI, MHA, NRRD, DICOM or Zarr"
            raise file_error(path, "content", rule, form.upper())
        if form not in (*_READ_ONCE, "tiff") or opening.axes != "image":
            remedy = f"That is {_BYTES_PER_PIXEL} per pixel of data.max_pixels: raise it if the file is genuine."
            check_size(path, os.fstat(file.fileno()).st_size, _BYTES_PER_PIXEL * opening.max_pixels, remedy)
        with unchanged([path]) if refuse_changes and form not in _READ_ONCE else nullcontext():
            with damage_named(path):
                array = OPENERS[form](path, file, opening=opening)  # type: ignore[call-arg]
            yield array


def read_header(path: Path, **options: Any) -> Header:
    """Read the size and type of a file's pixels; raises as `open_array` does."""
    with open_array(path, **options) as array:
        return array.header


def read_geometry(path: Path, *, level: int = 0) -> Geometry:
    """Read where the pixels of an image lie, so that files made from it can repeat it; no pixel is decoded.

    Parameters
    ----------
    path
        A file or Zarr folder. TIFF has OME or ImageJ metadata and GeoTIFF tags; Zarr has attributes or OME multiscales.
        PNG, JPEG and BMP have only a resolution for printing, which is not read.
    level
        The level of a pyramid. The metadata describe the first level, and the pixels of the others are larger.

    Raises
    ------
    DataError
        The file is damaged.
    """
    if path.suffix.lower() not in _LOCATED or (path.is_dir() and not is_zarr(path)):
        return NOWHERE
    with damage_named(path), open_array(path, level=level, streams=True) as array:
        return array.repeatable


def hash_path(path: Path) -> str:
    """Return the sha256 of a file's bytes, or of the files of a Zarr folder."""
    if path.is_dir():
        return hash_folder(path)
    with open_regular(path, may_be_empty=True) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True, kw_only=True)
class TimeLimit:
    """Calls functions that read the files of a case, and limits the time of each call.

    Parameters
    ----------
    seconds
        The most seconds of a call, > 0; None for no limit.
    case_id, index
        The case, and its number from 0 if known.
    files
        The case's files. Those behind URLs are fetched before a call and kept until it ends. Errors name them.
    """

    seconds: float | None
    case_id: str
    files: Iterable[Path] = field(repr=False)
    index: int | None = None

    def __call__(self, read: Callable[[], Result]) -> Result:
        """Return what `read` returns, or raise what it raises.

        Raises
        ------
        LateError
            `read` took longer. It goes on in a daemon thread, because nothing can stop it, but the process can end.
        """
        with fetched(self.files):
            if self.seconds is None:
                return read()
            outcome: list[tuple[Result | None, BaseException | None]] = []
            reader = threading.Thread(target=_read_into, args=(outcome, read), name="read", daemon=True)
            reader.start()
            for _ in range(_WAITS):
                reader.join(self.seconds / _WAITS)
            if not outcome:
                _leave_readers()
                names = shorten([show(path) for path in self.files])
                raise LateError(names, seconds=self.seconds, case_id=self.case_id, index=self.index)
            value, error = outcome.pop()
            try:
                if error is not None:
                    raise error
                return cast(Result, value)
            finally:
                del error  # breaks a cycle of the error, its traceback and this frame

    def lines(self, array: LazyArray) -> LazyArray:
        """Return the same lines with a time limit for each read."""
        if self.seconds is None:
            return array
        return LazyArray(array.shape, array.dtype, lambda start, stop: self(partial(array.read, start, stop)))


def _read_into(outcome: list[tuple[Result | None, BaseException | None]], read: Callable[[], Result]) -> None:
    try:
        outcome.append((read(), None))
    except BaseException as error:
        outcome.append((None, error))


@cache
def _leave_readers() -> None:
    """Let a worker process end although a library, such as zarr, reads in a thread that Python would wait for."""
    if parent_process() is not None:
        Finalize(None, os._exit, args=(0,), exitpriority=-1)
