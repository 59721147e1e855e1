"""Reads label maps of any format, whole or line by line, with their geometry and the hash of their bytes."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.data.files.array import ArrayRows, FileArray, Header, LazyArray
from segmeter.data.files.formats import volume_format
from segmeter.data.files.geometry import NOWHERE, Geometry
from segmeter.data.files.opened import hash_path, open_array
from segmeter.data.files.pictures import PictureArray
from segmeter.data.files.refusals import file_error
from segmeter.data.images import kind_of
from segmeter.data.masks.annotations import annotations_of, hash_annotated, read_annotated
from segmeter.data.masks.drawn import OUTLINES, read_outlines
from segmeter.data.masks.label_mapping import check_nodata, split_codes, split_objects, to_labels
from segmeter.data.sample import Reading


@dataclass(frozen=True, kw_only=True, eq=False)
class StoredMap:
    """The content of a file.

    Parameters
    ----------
    values : (H, W) or (D, H, W)
        Labels, object numbers or stored values, see `read_map` and `read_values`.
    geometry
        Where the pixels lie.
    sha256
        Hash of the file's bytes, or of all files of a Zarr folder.
    is_palette
        Whether the values are indices of a palette.
    """

    values: np.ndarray
    geometry: Geometry
    sha256: str
    is_palette: bool = False


def read_map(path: Path, reading: Reading, *, shape: tuple[int, ...] | None = None) -> StoredMap:
    """Read a label map.

    Three axes are (depth, height, width); with ``reading.flat`` a volume of depth 1 is (height, width). Colours are
    read from images if the label map names colours. Floats are accepted if all of them are whole numbers.

    Without a label map, uint8 and uint16 are returned as stored and not checked, because counting them shows whether
    there is a value outside the classes. Only then does a caller need `labels_of`, which names the value. Object
    numbers, and values that are kept although they are not labels, are returned as stored, but floats as int64.

    Parameters
    ----------
    path
        A file, a Zarr folder, or a path into an annotation file.
    reading
        How the file is read.
    shape
        The size of the map, for drawn objects whose file does not state it.

    Returns
    -------
    StoredMap
        Labels of `spec.label_dtype`, or stored values of an integer dtype, as said above.

    Raises
    ------
    DataError
        The file is damaged, lossy or too large, or a value is a fraction or not a label.
    """
    if annotations_of(path):
        return StoredMap(values=read_annotated(path, reading), geometry=NOWHERE, sha256=hash_annotated(path))
    form = volume_format(path)
    if form in OUTLINES:
        drawn = read_outlines(path, form, reading, shape=shape)
        return StoredMap(values=drawn, geometry=NOWHERE, sha256=hash_path(path))
    with open_array(path, refuse_changes=True, **reading.options(path, is_folder=form == "zarr")) as array:
        values = array.samples_if_fast() if isinstance(array, PictureArray) else None
        if values is None:  # not a plain PNG of one channel, whose header needs no check
            check_mask_header(path, array.header, label_map=reading.label_map)
            values = array.read_colours(3) if array.header.kind == "rgba" else array.read()
        values = values.astype(np.uint8) if values.dtype == np.bool_ else values
        geometry = array.geometry if reading.located else Geometry(nodata=array.nodata)
        has_colours = values.ndim == 3 and array.header.channels > 1
        sha256 = array.sha256
        is_palette = array.is_palette
    if reading.instances or reading.keeps_invalid:
        values = whole_numbers(path, values)
    elif has_colours:
        values = to_labels(path, values, spec=reading.spec, label_map=reading.label_map)
    elif reading.label_map or values.dtype not in (np.uint8, np.uint16):
        values = labels_of(path, values, reading)
    label_map = None if reading.instances else reading.label_map
    check_nodata(path, geometry.nodata, values, spec=reading.spec, label_map=label_map)
    if reading.flat and values.ndim == 3 and len(values) == 1:  # a volume of depth 1 as an image
        values, geometry = values[0], geometry.having(spacing=geometry.spacing and geometry.spacing[1:])
    return StoredMap(values=values, geometry=geometry, sha256=sha256, is_palette=is_palette)


def has_pixels(path: Path) -> bool:
    """Tell whether a mask stores pixels. Otherwise it stores objects to draw, and its size comes from the image."""
    return annotations_of(path) is None and volume_format(path) not in OUTLINES


@dataclass(frozen=True, kw_only=True, eq=False)
class Target:
    """A mask of one plane, as training and evaluation use it.

    `labels` is (H, W) of the spec's dtype. `instances` is (H, W), the object number of each pixel with 0 for no object;
    None if the file holds labels.
    """

    labels: NDArray[Any]
    instances: NDArray[Any] | None
    stored: StoredMap


def read_target(path: Path, reading: Reading, *, shape: tuple[int, ...] | None = None) -> Target:
    """Read a mask of one plane and check every value. Raises as `read_map` does, and refuses volumes."""
    stored = read_map(path, reading, shape=shape)
    check_one_plane(path, stored.values.shape)
    if not reading.instances:
        labels = labels_of(path, stored.values, replace(reading, label_map={}))  # `read_map` has applied it
        return Target(labels=labels, instances=None, stored=stored)
    if reading.divisor is None:
        labels, instances = split_objects(path, stored.values, reading.spec)
    else:
        labels, instances = split_codes(
            path, stored.values, divisor=reading.divisor, spec=reading.spec, label_map=reading.label_map
        )
    return Target(labels=labels, instances=instances, stored=stored)


def check_one_plane(path: Path, shape: tuple[int, ...]) -> None:
    """Refuse a volume of more than one plane where a mask of one plane is needed."""
    if len(shape) > 2 and shape[0] > 1:
        remedy = "For volumes, set data.planes=auto."
        raise file_error(path, "mask", "to hold one plane", " x ".join(map(str, shape)), remedy)


@contextmanager
def open_map(path: Path, reading: Reading, *, shape: tuple[int, ...] | None = None) -> Iterator[LazyArray]:
    """Open a mask of one plane as lines of labels; formats that can't be read line by line are decoded at once.

    `shape` is the size of the map if the file holds objects to draw, as for `read_map`.

    Raises
    ------
    DataError
        The file is damaged or not a mask. Reading a line also raises it for a value that is not a label.
    """
    if not has_pixels(path):
        yield ArrayRows(read_target(path, reading, shape=shape).labels)
        return
    with open_array(path, **reading.options(path), streams=True) as array:
        header = array.header
        lines = label_lines(array, reading)
        if not header.streamed or header.channels > 1 or header.lead:
            lines = ArrayRows(read_target(path, replace(reading, flat=True)).labels)
        yield lines


def label_lines(array: FileArray, reading: Reading) -> LazyArray:
    """Check the header of a mask of one plane, and read its lines as labels. Raises as `open_map`."""
    path, header, nodata = array.path, array.header, array.nodata
    check_mask_header(path, header, label_map=reading.label_map)

    def read(start: int, stop: int) -> NDArray[Any]:
        values = whole_numbers(path, array.read(start, stop))
        return to_labels(path, values, spec=reading.spec, label_map=reading.label_map, nodata=nodata)

    return LazyArray((header.height, header.width), reading.spec.label_dtype, read)


def read_values(path: Path, *, max_pixels: int, key: str | None = None) -> StoredMap:
    """Read the stored values of a volume or image, such as probabilities.

    Returns
    -------
    StoredMap
        (H, W) or (D, H, W).

    Raises
    ------
    DataError
        The file is damaged or too large, or is not such an array.
    """
    with open_array(path, refuse_changes=True, key=key, max_pixels=max_pixels, axes="map") as array:
        return StoredMap(values=array.read(), geometry=array.geometry, sha256=array.sha256)


def hash_map(path: Path) -> str:
    """Return the sha256 as in `StoredMap`: of a file, a Zarr folder, or an image's part of an annotation file."""
    return hash_annotated(path) if annotations_of(path) else hash_path(path)


def labels_of(path: Path, values: np.ndarray, reading: Reading) -> np.ndarray:
    """Turn stored values into labels of `spec.label_dtype`; DataError names every value that is not a label."""
    values = whole_numbers(path, values)
    plane = values.reshape(-1, values.shape[-1])
    return to_labels(path, plane, spec=reading.spec, label_map=reading.label_map).reshape(values.shape)


def whole_numbers(path: Path, values: np.ndarray) -> np.ndarray:
    """Convert floats to int64 if all are whole numbers that both types hold exactly; integers stay as they are.

    Raises
    ------
    DataError
        Other values occur. The message has their number and an example.
    """
    if values.dtype.kind != "f":
        return values
    most = 2 ** (np.finfo(values.dtype).nmant + 1)  # beyond it, a float stands for several whole numbers
    with np.errstate(invalid="ignore"):
        is_exact = (values == np.rint(values)) & (np.abs(values) <= most)
    if not is_exact.all():
        inexact = values[~is_exact]
        examples = f"{inexact.size} that are not, such as {inexact[0]!s}"
        remedy = "Decide on labels first: save them as integers."
        raise file_error(path, "mask", "to hold whole numbers", examples, remedy)
    return values.astype(np.int64)


def check_mask_header(path: Path, header: Header, *, label_map: Mapping[str, int]) -> None:
    """Refuse a file whose header shows that it can't be a mask."""
    if header.lossy:
        remedy = "Its values are blurred. Save it as 8 or 16-bit PNG, TIFF or NPY."
        raise file_error(path, "mask", "to be stored exactly", f"a lossy {header.format.upper()} file", remedy)
    if header.orientation != 1:
        remedy = "Turn the pixels themselves and clear the tag."
        raise file_error(path, "EXIF orientation", "to be 1 (upright)", header.orientation, remedy)
    has_colours = any("," in key for key in label_map)
    if header.channels == 1 or (header.kind in ("rgb", "rgba") and header.bits == 8 and has_colours):
        return
    remedy = "Save the labels as one channel."
    if header.kind in ("rgb", "rgba"):
        remedy = """Name the colours: 'data.label_map={"0,0,0": 0, "255,0,0": 1}', or save the labels as one channel."""
    raise file_error(path, "mask", "to have one channel", kind_of(header), remedy)
