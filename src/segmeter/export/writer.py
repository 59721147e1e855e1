"""Writes the files of one case under predictions/ that the `export` group asks for.

Label volumes have the geometry of their images. MHA and NRRD files are encoded here, without ITK.
"""

import gzip
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected
from segmeter.classes import ClassSpec
from segmeter.data.files.array import LazyArray
from segmeter.data.files.formats import volume_format
from segmeter.data.files.geometry import MILLIMETRES, NOWHERE, Geometry
from segmeter.data.files.medical import FLIPS
from segmeter.data.files.reader_process import need
from segmeter.errors import ConfigError, RunError, SegmeterError
from segmeter.export.config import ExportConfig, LabelsFormat
from segmeter.export.formats import (
    ARRAY_FILES,
    class_folder,
    encode_labels_png,
    palette_of,
    write_tiff,
    write_zarr,
)
from segmeter.export.objects import OBJECT_FILES
from segmeter.files import atomic_write, describe_file, make_folder, safe_id, write_bytes

LocateCase = Callable[[str], Geometry]
Labels = NDArray[Any] | LazyArray
Array = NDArray[Any] | None
# The format of a label volume by the suffix of its image. Volumes of other images become TIFF.
_FORMATS: dict[str, LabelsFormat] = {".mha": "mha", ".nrrd": "nrrd", ".nii": "nifti", ".gz": "nifti", ".zarr": "zarr"}
_LEVEL = 1  # zlib's level; higher ones pack the long runs of label maps no better
_MET_TYPES = {"uint8": "MET_UCHAR", "uint16": "MET_USHORT"}


class Writer:
    """Writes label maps, probabilities and instances; threads may write different cases at the same time.

    Parameters
    ----------
    folder
        The predictions folder; labels/, probs/ and so on are made in it when they are needed.
    config
        Which files are written, and their formats.
    spec
        The classes, which give label maps their range and colours.
    locate
        Returns the geometry of a case's pixels from its id. TIFF, Zarr, MHA, NRRD and NIfTI files store it.

    Raises
    ------
    ConfigError
        ``export.dtype`` can't hold every class and the ignored value.
    """

    def __init__(
        self, folder: Path, config: ExportConfig, spec: ClassSpec, *, locate: LocateCase = lambda case_id: NOWHERE
    ) -> None:
        dtype = spec.label_dtype if config.dtype == "auto" else np.dtype(config.dtype)
        if dtype.itemsize < spec.label_dtype.itemsize:
            given = f"{config.dtype!r} for labels up to {max(spec.values)}"
            remedy = "Set export.dtype=uint16, which holds up to 65535."
            raise ConfigError(expected("export", "dtype", "to hold every label", given, remedy))
        self.folder = folder
        self.config = config
        self.spec = spec
        self.dtype = dtype
        self._locate = locate

    def write(
        self, case_id: str, labels: Labels, *, instances: Array = None, probs: Array = None, predicted: Array = None
    ) -> dict[str, dict[str, Any]]:
        """Write the files of a case.

        Parameters
        ----------
        labels : (H, W), or multilabel (K, H, W); for a volume (D, H, W) or (K, D, H, W)
            The labels after post-processing. A lazy array is written in bands, as BigTIFF unless label maps are Zarr.
        instances
            Object numbers in the shape of `labels`; 0 is background.
        probs : (C, H, W)
            float32 in [0, 1], or already in ``export.probs_dtype``.
        predicted
            Labels before post-processing, whose probabilities ``export.confidence`` writes.

        Returns
        -------
        dict
            Size and hash of each file, by its name relative to the folder; see `segmeter.files.describe_file`.

        Raises
        ------
        RunError
            A file can't be written; the case is named.
        """
        written: dict[str, dict[str, Any]] = {}
        for name, write in self._files(case_id, labels, instances, probs, predicted):
            path = self.folder / name
            try:
                make_folder(path.parent)
                write(path)
                written[name] = describe_file(path)
            except SegmeterError:  # its message is complete, for example if a link is in place of a folder
                raise
            except Exception as fault:
                reason = (isinstance(fault, OSError) and fault.strerror) or f"{type(fault).__name__}: {fault}"
                raise RunError(
                    f"export: case {case_id!r} could not be written to {str(path)!r} ({reason}). The cases before it "
                    "are complete, and no half-written file is left. Remove the cause and resume the run."
                ) from fault
        return written

    def _files(
        self, case_id: str, labels: Any, instances: Array, probs: Array, predicted: Array
    ) -> Iterator[tuple[str, Callable[[Path], object]]]:
        """Yield the name of each file and the function that writes it. An array is converted when its turn comes."""
        config, spec, dtype = self.config, self.spec, self.dtype
        name = safe_id(case_id)
        locate = partial(self._locate, case_id)
        tiff = partial(write_tiff, compression=config.compression, locate=locate)
        planes: list[tuple[str, Any, ClassSpec]] = [("labels", ..., spec)]
        if spec.is_multilabel:  # masks are read from one folder per class too
            folders = [f"labels/{class_folder(class_name)}" for class_name in spec.names]
            planes = [(folder, k, spec.of_plane(k)) for k, folder in enumerate(folders)]
        for folder, k, plane_spec in planes if config.labels else ():
            if isinstance(labels, np.ndarray):
                plane: Labels = labels[k].astype(dtype, order="C", copy=False)
            else:
                read = lambda start, stop, k=k: labels.read(start, stop)[k].astype(dtype, copy=False)  # noqa: E731
                plane = LazyArray(labels.shape[-2:], dtype, read)
            suffix, write = label_file(config, plane, plane_spec, locate)
            yield f"{folder}/{name}{suffix}", write
        if config.probs and probs is not None:
            suffix = ".tif" if config.probs_format == "tiff" else f".{config.probs_format}"
            suffix = suffix if config.probs_dtype == "float32" else f".{config.probs_dtype}{suffix}"
            scaled = np.rint(probs * 255) if config.probs_dtype == "uint8" and probs.dtype.kind == "f" else probs
            stored = np.ascontiguousarray(scaled, config.probs_dtype)
            yield f"probs/{name}{suffix}", partial(ARRAY_FILES.get(config.probs_format, tiff), array=stored)
        if config.confidence and probs is not None and predicted is not None:
            yield f"confidence/{name}.tif", partial(tiff, array=_confidence(probs, predicted, spec))
        if config.instances and instances is not None:
            fits_png = instances.ndim == 2 and instances.max(initial=0) <= np.iinfo(np.uint16).max
            numbers = instances.astype(np.uint16 if fits_png else np.int32, order="C")
            if fits_png and config.labels_format in ("auto", "png"):
                yield f"instances/{name}.png", lambda path: write_bytes(path, encode_labels_png(numbers, ()))
            else:
                yield f"instances/{name}.tif", partial(tiff, array=numbers)
        for objects_format in config.objects:
            suffix, encode = OBJECT_FILES[objects_format]
            make_content = partial(encode, case_id, labels, instances, spec)
            save = lambda path, make_content=make_content: write_bytes(path, make_content())  # noqa: E731
            yield f"objects/{name}{suffix}", save


def _confidence(probs: NDArray[np.float32], labels: NDArray[Any], spec: ClassSpec) -> NDArray[np.float32]:
    """Return the probability of each predicted label (H, W), or for multilabel (K, H, W) of each decision."""
    if spec.task == "multiclass":
        confidence = np.take_along_axis(probs, labels[None].astype(np.intp), axis=0)[0]
    else:
        present = probs if spec.is_multilabel else probs[0]
        confidence = np.where(labels == 1, present, 1 - present)
    return np.asarray(confidence, np.float32)


def encode_mha(labels: NDArray[Any], geometry: Geometry) -> bytes:
    """Encode a label map (H, W) or (D, H, W), uint8 or uint16, with its spacing in mm if its unit is known.

    A volume also has its directions and origin.

    References
    ----------
    MetaImage's tags, itk.org/Wiki/MetaIO/Documentation
    """
    packed = zlib.compress(_little_endian(labels), _LEVEL)
    edges, affine = _millimetres(geometry)
    axes = labels.ndim
    origin, steps = (np.zeros(axes), np.eye(axes)) if affine is None else (affine[:3, 3], affine[:3, :3])
    lines = [
        "ObjectType = Image",
        f"NDims = {axes}",
        "BinaryData = True",
        "BinaryDataByteOrderMSB = False",
        "CompressedData = True",
        f"CompressedDataSize = {len(packed)}",
        f"TransformMatrix = {_numbers((steps / np.linalg.norm(steps, axis=0)).T)}",
        f"Offset = {_numbers(origin)}",
        *([f"ElementSpacing = {edges}"] if edges else []),
        f"DimSize = {_numbers(np.array(labels.shape[::-1]))}",
        f"ElementType = {_MET_TYPES[labels.dtype.name]}",
        "ElementDataFile = LOCAL",
    ]
    return "".join(f"{line}\n" for line in lines).encode("ascii") + packed


def encode_nrrd(labels: NDArray[Any], geometry: Geometry) -> bytes:
    """Encode a label volume as NRRD.

    References
    ----------
    Definition of NRRD file format, teem.sourceforge.net/nrrd/format.html, sections 4 to 6
    """
    edges, affine = _millimetres(geometry)
    space = [f"spacings: {edges}", " ".join(["units:", *['"mm"'] * labels.ndim])] if edges else []
    if affine is not None:
        vectors = " ".join(f"({_numbers(step, ',')})" for step in affine[:3, :3].T)
        space = ["space: left-posterior-superior", f"space directions: {vectors}"]
        space += ['space units: "mm" "mm" "mm"', f"space origin: ({_numbers(affine[:3, 3], ',')})"]
    lines = [
        "NRRD0004",
        f"type: {labels.dtype.name}",
        f"dimension: {labels.ndim}",
        f"sizes: {_numbers(np.array(labels.shape[::-1]))}",
        *space,
        "encoding: gzip",
        "endian: little",
    ]
    packed = gzip.compress(_little_endian(labels), _LEVEL, mtime=0)
    return "".join(f"{line}\n" for line in lines).encode("ascii") + b"\n" + packed


def _millimetres(geometry: Geometry) -> tuple[str, NDArray[np.float64] | None]:
    """Return width, height and depth of a pixel in mm as text, and the affine into ITK's world (left, posterior,
    superior). The text is empty if the spacing or its unit is unknown; the affine may be None.
    """
    affine = None if geometry.affine is None else FLIPS @ geometry.affine
    if geometry.spacing is None or geometry.unit is None:
        return "", affine
    return " ".join(repr(float(edge * MILLIMETRES[geometry.unit])) for edge in reversed(geometry.spacing)), affine


def _numbers(values: NDArray[np.float64], separator: str = " ") -> str:
    return separator.join(f"{value:.17g}" for value in values.ravel())


def _little_endian(labels: NDArray[Any]) -> bytes:
    return labels.astype(labels.dtype.newbyteorder("<"), copy=False).tobytes()


ENCODERS = {"mha": encode_mha, "nrrd": encode_nrrd}


def write_nifti(path: Path, labels: NDArray[Any], geometry: Geometry) -> None:
    """Write (D, H, W) as .nii.gz. If its image is NIfTI too, the header is copied from there.

    The copy keeps the image's sform and qform with their codes, its unit and its pixdim.
    """
    nibabel = need("nibabel", "nifti", "NIfTI files")
    if geometry.file and volume_format(geometry.file) == "nifti":
        source = nibabel.load(geometry.file)
        kind, header = type(source), source.header.copy()
        header.extensions.clear()  # extensions and display range describe the image
        header["cal_min"] = header["cal_max"] = 0
    else:
        kind, header = nibabel.Nifti1Image, nibabel.Nifti1Header()
        factor = MILLIMETRES[geometry.unit or "mm"]
        header["pixdim"][1:4] = [edge * factor for edge in (geometry.spacing or (1.0,) * 3)[::-1]]
        header["xyzt_units"] = 2  # millimetres
        if geometry.affine is not None:  # the affine is in mm
            header.set_sform(geometry.affine, code=1)
    header.set_data_dtype(labels.dtype)
    with atomic_write(path) as file, gzip.GzipFile("", "wb", _LEVEL, file, mtime=0) as packed:
        kind(labels.T, None, header).to_stream(packed)


def label_file(
    config: ExportConfig, labels: Labels, spec: ClassSpec, locate: Callable[[], Geometry]
) -> tuple[str, Callable[[Path], None]]:
    """Return the suffix of a label map's file and the function that writes it, in the configured format or its image's.

    Maps that are read in bands become TIFF or Zarr.
    """
    labels_format, axes = config.labels_format, len(labels.shape)
    if labels_format == "auto":
        labels_format = _FORMATS.get(Path(locate().file or "").suffix.lower(), "tiff") if axes == 3 else "png"
    if labels_format == "zarr":
        return ".zarr", partial(write_zarr, array=labels, locate=locate)
    if labels_format == "tiff" or isinstance(labels, LazyArray):
        palette = palette_of(spec) if axes == 2 and labels.dtype.itemsize == 1 else None
        return ".tif", partial(write_tiff, array=labels, compression=config.compression, palette=palette, locate=locate)
    if labels_format in ENCODERS:
        return f".{labels_format}", lambda path: write_bytes(path, ENCODERS[labels_format](labels, locate()))
    if axes == 3:
        return ".nii.gz", partial(write_nifti, labels=labels, geometry=locate())
    make_content = partial(encode_labels_png, labels, spec.colours, ignore_index=spec.ignore_index)
    return ".png", lambda path: write_bytes(path, make_content())


def check_volume_export(config: ExportConfig, spec: ClassSpec) -> list[str]:
    """List the settings that ask for files which can't hold the planes of a volume, one line each."""
    refusals = {
        "labels_format=png": (config.labels and config.labels_format == "png", "Set export.labels_format=auto."),
        "probs_format=tiff": (config.probs and config.probs_format == "tiff", "Set export.probs_format=npy or zarr."),
        "confidence": (config.confidence and spec.is_multilabel, "Set export.probs=true instead."),
        "objects": (bool(config.objects), "Set export.objects=[]."),
        "dicom_series": (config.dicom_series is not None, "Leave it out: the label volumes are complete."),
    }
    rule, given = "to be left out for volumes", "a file without planes"
    return [expected("export", name, rule, given, remedy) for name, (refused, remedy) in refusals.items() if refused]
