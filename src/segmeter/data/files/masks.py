"""A file or Zarr folder of any tool -> label map of two or three axes, with its spacing and the hash of its bytes."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Literal

import numpy as np

from segmeter.checks import expected, some
from segmeter.classes import ClassSpec
from segmeter.data.config import Instances
from segmeter.data.files.formats.coco import coco_of, hash_coco, read_coco
from segmeter.data.files.formats.dicom import decode_dicom
from segmeter.data.files.formats.drawn import Overlap
from segmeter.data.files.formats.geojson import decode_geojson
from segmeter.data.files.formats.itk import decode_itk
from segmeter.data.files.geometry import Geometry
from segmeter.data.files.header import check_file_size
from segmeter.data.files.images import decode_mask, read_file
from segmeter.data.files.label_mapping import check_nodata, to_labels
from segmeter.data.files.nifti import decode_nifti
from segmeter.data.files.npy import decode_npy, decode_npz
from segmeter.data.files.sniff import (
    SUFFIXES,
    VOLUME_SUFFIXES,
    check_format,
    open_regular,
    show,
    unchanged,
    volume_format,
)
from segmeter.data.files.tiff import decode_tiff_map
from segmeter.data.files.zarr import hash_folder, label_names, read_zarr
from segmeter.errors import DataError

NOWHERE = Geometry()
_ARRAYS = ("npy", "npz", "nifti", "zarr")  # formats whose third axis is never colour
_BYTES_PER_PIXEL = 16  # that a file may take for each of data.max_pixels: 8 of the widest dtype, and as many beside it


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
        Hash of the file's bytes, or of all files of a Zarr folder.
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
    divisor
        Where they are class * divisor + number, as Cityscapes has them; None for numbers alone.
    keeps_invalid
        Whether values that are no label are kept, to be counted.
    flat
        Whether a volume of depth 1 is read as an image.
    overlap
        What pixels are that two drawn objects (COCO, GeoJSON) cover.
    resample
        Whether a prediction on another grid than its reference's is brought onto it, by "nearest" neighbour.
    timeout_s
        The most seconds that whoever measures cases waits for the files of one; None for any.
    """

    spec: ClassSpec
    label_map: Mapping[str, int]
    max_pixels: int
    key: str | None = None
    instances: Instances = False
    divisor: int | None = None
    keeps_invalid: bool = False
    flat: bool = False
    overlap: Overlap = "error"
    resample: Literal["refuse", "nearest"] = "refuse"
    timeout_s: float | None = None

    @property
    def has_colours(self) -> bool:
        """Whether the label map names colours."""
        return not self.instances and any("," in name for name in self.label_map)


def read_map(path: Path, reading: Reading, *, shape: tuple[int, ...] | None = None) -> StoredMap:
    """Read a label map; `shape` is that of drawn objects whose file does not say it.

    Three axes are (depth, height, width), and with ``reading.flat`` a volume of depth 1 is (height, width); colours are
    read from pictures only, where the label map names them. Floats are taken where every one is a whole number. Without
    a label map, uint8 and uint16 are returned as they are stored, to be counted first and checked by `check_labels`
    only where the counts are not those of classes. Numbers of
    objects are returned as they are stored, but floats as int64.

    Returns
    -------
    StoredMap
        Labels of `spec.label_dtype`, or stored uint8 or uint16.

    Raises
    ------
    DataError
        The file is damaged, lossy, too large, of fractions, or has a value that is no label.
    """
    if coco_of(path):
        return _read_coco(path, reading)
    form = volume_format(path) or SUFFIXES.get(path.suffix.lower())
    if form == "geojson":
        return _read_geojson(path, reading, shape)
    if form in VOLUME_SUFFIXES.values():
        stored = read_values(path, max_pixels=reading.max_pixels, key=_key(path, form, reading))
    else:
        stored = _read_picture(path, form, reading)
    codes = stored.values
    if reading.instances or reading.keeps_invalid:
        codes = whole_numbers(path, codes) if codes.dtype.kind == "f" else codes
    elif codes.ndim == 3 and reading.has_colours and form not in _ARRAYS:
        codes = to_labels(path, codes, spec=reading.spec, label_map=reading.label_map)
    elif reading.label_map or codes.dtype not in (np.uint8, np.uint16):
        codes = check_labels(path, codes, reading)
    known = None if reading.instances else reading.label_map
    check_nodata(path, stored.geometry.nodata, codes, spec=reading.spec, label_map=known)
    found = StoredMap(values=codes, geometry=stored.geometry, sha256=stored.sha256)
    return _flattened(found) if reading.flat else found


def _flattened(stored: StoredMap) -> StoredMap:
    """A volume of depth 1 as an image; anything else as it is."""
    if stored.values.ndim != 3 or len(stored.values) != 1:
        return stored
    spacing = stored.geometry.spacing
    geometry = replace(stored.geometry, spacing=spacing and spacing[1:])
    return replace(stored, values=stored.values[0], geometry=geometry)


def read_values(path: Path, *, max_pixels: int, key: str | None = None) -> StoredMap:
    """Read what a volume holds, numbers of any kind: an image for pictures, or probabilities.

    Returns
    -------
    StoredMap
        (H, W) or (D, H, W) as stored.

    Raises
    ------
    DataError
        The file is damaged, too large, or none of NPY, NPZ, TIFF, NIfTI, MHA, NRRD, DICOM segmentation and Zarr.
    """
    form = volume_format(path)
    if form == "zarr":
        with unchanged([path]):
            values, geometry = read_zarr(path, key=key, max_pixels=max_pixels)
            return StoredMap(values=values, geometry=geometry, sha256=hash_folder(path))
    with unchanged([path]), open_regular(path) as file:
        form = form or check_format(path, file)
        remedy = f"That is {_BYTES_PER_PIXEL} per pixel of data.max_pixels: raise it if the file is genuine."
        check_file_size(path, file, _BYTES_PER_PIXEL * max_pixels, remedy)
        values, geometry = _decode_array(path, file, form, key, max_pixels)
        return StoredMap(values=values, geometry=geometry, sha256=_hash(file))


def hash_map(path: Path) -> str:
    """Sha256 as `StoredMap` has it: of a file's bytes, a Zarr folder's files, or an image's part of a COCO file."""
    if coco_of(path):
        return hash_coco(path)
    if path.is_dir():
        return hash_folder(path)
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_labels(path: Path, values: np.ndarray, reading: Reading) -> np.ndarray:
    """Turn stored values into labels of `spec.label_dtype`; DataError names every value that is none."""
    if values.dtype.kind == "f":
        values = whole_numbers(path, values)
    plane = values.reshape(-1, values.shape[-1])
    labels = to_labels(path, plane, spec=reading.spec, label_map=reading.label_map).reshape(values.shape)
    return labels.astype(reading.spec.label_dtype, copy=False)


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
        found = f"{wrong.size} that are not, such as {wrong[0]!s}"
        remedy = "Decide on labels first: save them as integers."
        raise DataError(expected(show(path), "mask", "to hold whole numbers", found, remedy))
    return values.astype(np.int64)


def _read_picture(path: Path, form: str | None, reading: Reading) -> StoredMap:
    """Read a picture, a TIFF of planes, or an NPY file, whose last axis may be a single channel."""
    if form == "npy" or (form == "tiff" and not reading.has_colours):
        stored = read_values(path, max_pixels=reading.max_pixels)
        if form == "npy" and stored.values.ndim == 3 and stored.values.shape[2] == 1:
            return replace(stored, values=stored.values[:, :, 0])
        return stored
    file = read_file(path, max_pixels=reading.max_pixels)
    return StoredMap(values=decode_mask(file, label_map=reading.label_map), geometry=NOWHERE, sha256=file.sha256)


def _read_coco(path: Path, reading: Reading) -> StoredMap:
    values = read_coco(
        path,
        spec=reading.spec,
        label_map=reading.label_map,
        numbered=bool(reading.instances),
        overlap=reading.overlap,
        max_pixels=reading.max_pixels,
    )
    return StoredMap(values=values, geometry=NOWHERE, sha256=hash_coco(path))


def _read_geojson(path: Path, reading: Reading, shape: tuple[int, ...] | None) -> StoredMap:
    if shape is None or len(shape) != 2 or reading.spec.is_multilabel:
        rule = "to be scored against a map (height, width) of classes, whose size it takes"
        found = "multilabel" if reading.spec.is_multilabel else "no such map" if shape is None else f"shape {shape}"
        raise DataError(expected(show(path), "GeoJSON", rule, found))
    with open_regular(path) as file:
        values = decode_geojson(
            path,
            file,
            shape=shape,
            spec=reading.spec,
            numbered=bool(reading.instances),
            overlap=reading.overlap,
        )
        return StoredMap(values=values, geometry=NOWHERE, sha256=_hash(file))


def _key(path: Path, form: str | None, reading: Reading) -> str | None:
    """The array to read; of an OME-Zarr picture with labels it has to be said which."""
    if form == "zarr" and reading.key is None:
        names = label_names(path)
        if names:
            rule, remedy = "to be a label map", f"Name one: data.key={names[0]}."
            raise DataError(expected(show(path), "OME-Zarr", rule, f"a picture with {some(names)}", remedy))
    return reading.key


def _hash(file: IO[bytes]) -> str:
    """Sha256 of the whole of an open file, without holding it in memory."""
    file.seek(0)
    return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


def _decode_array(
    path: Path, file: IO[bytes], form: str, key: str | None, max_pixels: int
) -> tuple[np.ndarray, Geometry]:
    if form == "nifti":
        return decode_nifti(path, file, max_pixels=max_pixels)
    if form == "npz":
        return decode_npz(path, file, key=key, max_pixels=max_pixels), NOWHERE
    if form == "itk":
        return decode_itk(path, file, max_pixels=max_pixels)
    if form == "dicom":
        return decode_dicom(path, file, max_pixels=max_pixels)
    if form == "npy":
        return decode_npy(path, file, max_pixels=max_pixels), NOWHERE
    if form == "tiff":
        return decode_tiff_map(path, file, max_pixels=max_pixels)
    rule = "to be NPY, NPZ, TIFF, NIfTI, MHA, NRRD, a DICOM segmentation or Zarr"
    raise DataError(expected(show(path), "content", rule, form.upper()))
