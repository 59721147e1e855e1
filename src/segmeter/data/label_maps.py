"""A file or Zarr folder of any tool -> label map of two or three axes, with its spacing and the hash of its bytes."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from segmeter.checks import expected
from segmeter.data.arrays import decode_npy, decode_npz
from segmeter.data.config import Instances
from segmeter.data.formats import file_format, read_head, show, volume_format
from segmeter.data.geometry import Geometry
from segmeter.data.labels import label_dtype, to_labels
from segmeter.data.nifti import decode_nifti
from segmeter.data.read import decode_codes
from segmeter.data.stacks import decode_tiff_map
from segmeter.data.zarrs import hash_folder, read_zarr
from segmeter.errors import DataError
from segmeter.files import sha256_file
from segmeter.vocabulary import ClassSpec

NOWHERE = Geometry()
_ARRAYS = ("npy", "npz", "nifti", "zarr")  # formats whose third axis is never colour


@dataclass(frozen=True, kw_only=True, eq=False)
class StoredMap:
    """What a file holds.

    Parameters
    ----------
    values : (H, W) or (D, H, W)
        As `read_values` and `read_map` say.
    geometry
        Where its pixels lie.
    sha256
        Of the file's bytes, or of all files of a Zarr folder.
    """

    values: np.ndarray
    geometry: Geometry
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How label maps are read.

    Parameters
    ----------
    spec
        What the labels mean.
    label_map
        From a stored value or colour to a label; empty takes stored values as labels.
    max_pixels
        The most pixels or voxels of a file, checked before it is decoded.
    key
        Which array of an NPZ archive or Zarr group; None takes the only one.
    instances
        Whether the stored values are numbers of objects, 0 being none, and not labels: "references" and "predictions"
        say so of one side of a pair.
    """

    spec: ClassSpec
    label_map: Mapping[str, int]
    max_pixels: int
    key: str | None = None
    instances: Instances = False

    @property
    def has_colours(self) -> bool:
        """Whether the label map names colours."""
        return not self.instances and any("," in name for name in self.label_map)


def read_map(path: Path, reading: Reading) -> StoredMap:
    """Read a label map.

    Three axes are (depth, height, width); colours are read from pictures only, where the label map names them. Floats
    are taken where every one is a whole number. Without a label map, uint8 and uint16 are returned as they are
    stored, to be counted first and checked by `check_labels` only where the counts are not those of classes. Numbers of
    objects are returned as they are stored, but floats as int64.

    Returns
    -------
    StoredMap
        Labels of `label_dtype(spec)`, or stored uint8 or uint16.

    Raises
    ------
    DataError
        The file is damaged, lossy, too large, of fractions, or has a value that is no label.
    """
    form = volume_format(path) or file_format(path)
    if form in ("npz", "nifti", "zarr"):
        stored = read_values(path, max_pixels=reading.max_pixels, key=reading.key)
    else:
        stored = _read_picture(path, form, reading)
    codes = stored.values
    if reading.instances:
        codes = whole_numbers(path, codes) if codes.dtype.kind == "f" else codes
    elif codes.ndim == 3 and reading.has_colours and form not in _ARRAYS:
        codes = to_labels(path, codes, spec=reading.spec, label_map=reading.label_map)
    elif reading.label_map or codes.dtype not in (np.uint8, np.uint16):
        codes = check_labels(path, codes, reading)
    return StoredMap(values=codes, geometry=stored.geometry, sha256=stored.sha256)


def read_values(path: Path, *, max_pixels: int, key: str | None = None) -> StoredMap:
    """Read what a volume holds, numbers of any kind: an image for pictures, or probabilities.

    Returns
    -------
    StoredMap
        (H, W) or (D, H, W) as stored.

    Raises
    ------
    DataError
        The file is damaged, too large, or none of NPY, NPZ, TIFF, NIfTI and Zarr.
    """
    form = volume_format(path) or file_format(path)
    if form == "zarr":
        values, geometry = read_zarr(path, key=key, max_pixels=max_pixels)
        return StoredMap(values=values, geometry=geometry, sha256=hash_folder(path))
    read_head(path)
    content = path.read_bytes()
    values, geometry = _decode_array(path, content, form, key, max_pixels)
    return StoredMap(values=values, geometry=geometry, sha256=hashlib.sha256(content).hexdigest())


def hash_map(path: Path) -> str:
    """Sha256 of a file's bytes, or of a Zarr folder's files, as `StoredMap` has it."""
    if path.is_dir():
        return hash_folder(path)
    read_head(path)
    return sha256_file(path)


def check_labels(path: Path, values: np.ndarray, reading: Reading) -> np.ndarray:
    """Turn stored values into labels of `label_dtype(spec)`; DataError names every value that is none."""
    if values.dtype.kind == "f":
        values = whole_numbers(path, values)
    plane = values.reshape(-1, values.shape[-1])
    labels = to_labels(path, plane, spec=reading.spec, label_map=reading.label_map).reshape(values.shape)
    return labels.astype(label_dtype(reading.spec), copy=False)


def whole_numbers(path: Path, values: np.ndarray) -> np.ndarray:
    """Floats as int64, where every one is a whole number that int64 and the float's own precision hold exactly.

    Raises
    ------
    DataError
        With how many are not, and one of them.
    """
    exact = 2 ** (np.finfo(values.dtype).nmant + 1)  # beyond it a float stands for several whole numbers
    with np.errstate(invalid="ignore"):
        good = (values == np.rint(values)) & (np.abs(values) <= exact)
    if not good.all():
        wrong = values[~good]
        found = f"{wrong.size} that are none, such as {wrong[0]!s}"
        remedy = "Decide on labels first: save them as integers."
        raise DataError(expected(show(path), "mask", "to hold whole numbers", found, remedy))
    return values.astype(np.int64)


def _read_picture(path: Path, form: str, reading: Reading) -> StoredMap:
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    if form == "npy" or (form == "tiff" and not reading.has_colours):
        values, geometry = _decode_array(path, content, form, None, reading.max_pixels)
        if form == "npy" and values.ndim == 3 and values.shape[2] == 1:
            values = values[:, :, 0]
        return StoredMap(values=values, geometry=geometry, sha256=digest)
    codes = decode_codes(path, content, form=form, label_map=reading.label_map, max_pixels=reading.max_pixels)
    return StoredMap(values=codes, geometry=NOWHERE, sha256=digest)


def _decode_array(
    path: Path, content: bytes, form: str, key: str | None, max_pixels: int
) -> tuple[np.ndarray, Geometry]:
    if form == "nifti":
        return decode_nifti(path, content, max_pixels=max_pixels)
    if form == "npz":
        return decode_npz(path, content, key=key, max_pixels=max_pixels), NOWHERE
    if form == "npy":
        return decode_npy(path, content, max_pixels=max_pixels), NOWHERE
    if form == "tiff":
        return decode_tiff_map(path, content, max_pixels=max_pixels)
    rule = "to be NPY, NPZ, TIFF, NIfTI or Zarr"
    raise DataError(expected(show(path), "content", rule, form.upper()))
