"""Writes label volumes with the geometry of the files that they were predicted from."""

import gzip
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from segmeter.checks import expected
from segmeter.classes import ClassSpec
from segmeter.data.files.geometry import MILLIMETRES, Geometry
from segmeter.data.files.reader_process import need
from segmeter.data.files.sniff import volume_format
from segmeter.data.location import Location
from segmeter.data.planes import VolumeLocation
from segmeter.export.config import ExportConfig
from segmeter.export.formats import write_tiff, write_zarr
from segmeter.export.itk import ENCODERS
from segmeter.files import atomic_write, write_bytes

_SOURCES = {".mha": "mha", ".nrrd": "nrrd", ".nii": "nifti", ".gz": "nifti", ".zarr": "zarr"}  # others become TIFF
_LEVEL = 1  # of zlib; higher levels pack the long runs of label maps no better
_MILLIMETRES = 2  # the code of xyzt_units


def write_nifti(path: Path, labels: NDArray[Any], location: VolumeLocation) -> None:
    """Write (D, H, W) as .nii.gz, plane by plane, with the header of its image if that is NIfTI too.

    The header then repeats the image's sform and qform with their codes, its unit and its pixdim.
    """
    nibabel = need("nibabel", "nifti", "NIfTI files")
    if volume_format(location.source) == "nifti":
        header = nibabel.load(location.source).header.copy()
    else:
        header = nibabel.Nifti1Header()
        _state(header, location.geometry)
    header.set_data_shape(labels.shape[::-1])
    header.set_data_dtype(labels.dtype)
    header.set_slope_inter(1, 0)
    header["cal_min"] = header["cal_max"] = 0
    header["vox_offset"] = int(header["sizeof_hdr"]) + 4
    header["magic"] = b"n+1" if int(header["sizeof_hdr"]) == 348 else b"n+2\0\r\n\x1a\n"
    order = labels.dtype.newbyteorder(header.endianness)
    with atomic_write(path) as file, gzip.GzipFile("", "wb", _LEVEL, file, mtime=0) as packed:
        packed.write(header.binaryblock + bytes(4))  # no extensions: they describe the image
        for plane in labels:
            packed.write(plane.astype(order, copy=False).tobytes())


def _state(header: Any, geometry: Geometry) -> None:
    """Write a geometry into an empty NIfTI header, in mm; without an affine, the sform stays unset."""
    factor = MILLIMETRES[geometry.unit or "mm"]
    header["pixdim"][1:4] = [edge * factor for edge in (geometry.spacing or (1.0,) * 3)[::-1]]
    header["xyzt_units"] = _MILLIMETRES
    if geometry.affine is not None:
        header.set_sform(geometry.affine, code=1)


def volume_file(config: ExportConfig, labels: NDArray[Any], location: Location) -> tuple[str, Callable[[Path], None]]:
    """The suffix of a label volume, and the function that writes it, in the configured format or that of its image."""
    if not isinstance(location, VolumeLocation):
        raise TypeError("a volume needs a VolumeLocation")
    own = _SOURCES.get(location.source.suffix.lower(), "tiff")
    form = own if config.labels_format == "auto" else config.labels_format
    if form == "nifti":
        return ".nii.gz", partial(write_nifti, labels=labels, location=location)
    if form == "zarr":
        return ".zarr", partial(write_zarr, array=labels, locate=lambda: location)
    if form in ENCODERS:
        return f".{form}", lambda path: write_bytes(path, ENCODERS[form](labels, location))
    return ".tif", partial(write_tiff, array=labels, compression=config.compression, locate=lambda: location)


def check_volume_export(config: ExportConfig, spec: ClassSpec) -> list[str]:
    """Find the settings whose files hold no planes, one line each."""
    rules = {
        "labels_format=png": (config.labels and config.labels_format == "png", "Set export.labels_format=auto."),
        "probs_format=tiff": (config.probs and config.probs_format == "tiff", "Set export.probs_format=npy or zarr."),
        "confidence": (config.confidence and spec.is_multilabel, "Set export.probs=true instead."),
        "objects": (bool(config.objects), "Set export.objects=[]."),
        "dicom_series": (config.dicom_series is not None, "Leave it out: the label volumes are complete."),
    }
    rule, found = "to be left out for volumes", "a file without planes"
    return [expected("export", name, rule, found, remedy) for name, (wrong, remedy) in rules.items() if wrong]
