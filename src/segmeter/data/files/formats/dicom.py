"""DICOM segmentation -> map of segment numbers in (depth, height, width) order with its place; needs highdicom."""

import os
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected
from segmeter.data.files.formats.itk import FLIPS
from segmeter.data.files.formats.library import need
from segmeter.data.files.formats.reader_process import read_apart
from segmeter.data.files.geometry import Geometry, stated_geometry
from segmeter.data.files.npy import check_pixels
from segmeter.data.files.sniff import damaged, show
from segmeter.errors import DataError

SOURCE = "DICOM"
SOP_CLASSES = ("1.2.840.10008.5.1.4.1.1.66.4", "1.2.840.10008.5.1.4.1.1.66.7")  # segmentation, label map segmentation


def decode_dicom(path: Path, file: IO[bytes], *, max_pixels: int) -> tuple[NDArray[Any], Geometry]:
    """Decode an open DICOM segmentation.

    Frames without an object are often left out of such a file: the volume reaches from the first slice that is there to
    the last one.

    Returns
    -------
    (D, H, W): the number of the segment that covers each voxel, 0 being none. And the place: spacing in mm, and the
    affine to right, anterior, superior, as that of NIfTI.

    Raises
    ------
    DataError
        The file is damaged, too large, another kind of DICOM, holds fractions, is no regular volume, or two segments
        cover one voxel.
    """
    size = os.fstat(file.fileno()).st_size
    return read_apart(path, _read, path, max_pixels, size=size, max_pixels=max_pixels)


def _read(path: Path, max_pixels: int) -> tuple[NDArray[Any], Geometry]:
    """Decode the file, in the reader process."""
    highdicom = need("highdicom", "dicom", "DICOM segmentations")
    try:
        dataset = need("pydicom", "dicom", "DICOM segmentations").dcmread(path)
        _check_kind(path, dataset)
        found = highdicom.seg.Segmentation.from_dataset(dataset, copy=False)
        grid = found.get_volume_geometry(allow_missing_positions=True)
        if grid is None:
            rule, remedy = "to be slices of one volume", "Convert it to one with a regular spacing."
            raise DataError(expected(show(path), "segmentation", rule, "frames at irregular places", remedy))
        check_pixels(path, grid.spatial_shape, np.dtype(np.uint16), max_pixels)
        volume = found.get_volume(combine_segments=True, allow_missing_positions=True, dtype=np.uint16)
    except DataError:
        raise
    except Exception as error:  # pydicom and highdicom raise many types on hostile bytes
        if "overlap" in str(error).lower():
            rule, remedy = "to have one segment per voxel", "Score its segments one by one, each as its own file."
            raise DataError(expected(show(path), "segments", rule, "segments that overlap", remedy)) from error
        raise damaged(path, error) from error
    pixels, affine = volume.array, volume.affine[:, [2, 1, 0, 3]]  # columns of the affine: column, row, slice
    if np.linalg.det(affine[:3, :3]) < 0:  # slices against the normal of their plane, which other readers follow
        affine[:3, 3] += affine[:3, 2] * (len(pixels) - 1)
        affine[:3, 2] *= -1
        pixels = pixels[::-1]
    geometry = stated_geometry(path, list(volume.spacing), ["mm"] * 3, source=SOURCE, affine=FLIPS @ affine)
    return np.ascontiguousarray(pixels), geometry


def _check_kind(path: Path, dataset: Any) -> None:
    if str(dataset.SOPClassUID) not in SOP_CLASSES:
        found = str(getattr(dataset.SOPClassUID, "name", dataset.SOPClassUID))[:60]
        raise DataError(expected(show(path), "DICOM file", "to be a segmentation", found))
    if str(dataset.SegmentationType) == "FRACTIONAL":
        rule, remedy = "to hold segments and not fractions", "Decide on labels first: save it as BINARY."
        raise DataError(expected(show(path), "SegmentationType", rule, "FRACTIONAL", remedy))
