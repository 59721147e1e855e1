"""Writes the label maps of a DICOM series as a DICOM segmentation, with one segment per class. Needs highdicom.

A run writes one segmentation for each series that its images come from. The DICOM files are found by the images' names.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter import __version__
from segmeter.checks import expected, require_file, require_kind, require_path, shown, whole_number
from segmeter.classes import ClassSpec
from segmeter.data.dataset import Dataset
from segmeter.data.files.array import MAX_PIXELS
from segmeter.data.files.formats import is_junk, stem_of
from segmeter.data.files.geometry import SPACING_TOLERANCE
from segmeter.data.files.reader_process import need
from segmeter.data.files.refusals import file_error, show
from segmeter.data.masks.reading import read_map
from segmeter.data.pairing import missing_problem, twice_problems
from segmeter.data.sample import Reading
from segmeter.errors import ConfigError, DataError, InputError
from segmeter.export.config import ExportConfig
from segmeter.files import atomic_write, make_folder, safe_id

_WHERE, _WHAT = "write_segmentation", "DICOM segmentations"
_REQUIRED = ("SOPClassUID", "SOPInstanceUID", "StudyInstanceUID", "SeriesInstanceUID", "Modality", "Rows", "Columns")
_POSITION = ("FrameOfReferenceUID", "ImagePositionPatient", "ImageOrientationPatient", "PixelSpacing", "SliceThickness")
_MAY_BE_EMPTY = (  # DICOM's type 2, which anonymisers often remove
    *("PatientID", "PatientName", "PatientBirthDate", "PatientSex"),
    *("StudyID", "StudyDate", "StudyTime", "AccessionNumber"),
)
# All slices of a series have the same texts and numbers of these names.
_TEXTS = ("StudyInstanceUID", "SeriesInstanceUID", "FrameOfReferenceUID")
_NUMBERS = ("Rows", "Columns", "ImageOrientationPatient", "PixelSpacing", "SliceThickness")
_BY_LEARNING = ("123110", "DCM", "Artificial Intelligence")
_TISSUE = ("85756007", "SCT", "Tissue")
_LARGEST_NUMBER = 2**31 - 1  # largest integer that DICOM writes as text
# The longest scheme and meaning, in characters: DICOM's SH and LO. A longer value becomes a "long code value".
_MAX_SCHEME, _MAX_MEANING = 16, 64
_SUFFIXES = {"auto": ".png", "png": ".png", "tiff": ".tif"}  # large label maps are always TIFF
_BY_NAME = "Images and their DICOM files go together by name, as slice07.png and slice07.dcm."
_REMEDY = "A segmentation is made of the slices of one series, each once."

Code = tuple[str, str, str]  # value, scheme and meaning, such as ("10200004", "SCT", "Liver")
Meanings = Mapping[str, tuple[Code, Code]]  # category and type of each class's segment


def write_segmentation(
    path: str | Path,
    labels: NDArray[Any],
    spec: ClassSpec,
    *,
    source: Sequence[str | Path],
    series_number: int = 1000,
    codes: Meanings | None = None,
) -> None:
    """Write labels as a binary DICOM segmentation of the images that they were made from.

    Patient, study and geometry are copied from the images. A segment has the number of its label and the name of its
    class; label 0 has no segment. DICOM describes each segment by codes: without `codes`, its category and type are
    SNOMED CT's "Tissue".

    Parameters
    ----------
    path
        The file.
    labels : (D, H, W), or (H, W) for one image, integer
        0 to K - 1, with one slice per image.
    spec
        The classes, the first one being background; not multilabel.
    source
        The DICOM images of the slices, in the order of the slices. They belong to one series, and have the same size,
        spacing and orientation.
    series_number
        The number of the new series, at least 1.
    codes
        Name of a class to the category and the type of its segment, each as (value, scheme, meaning):
        ``{"liver": (("123037004", "SCT", "Anatomical Structure"), ("10200004", "SCT", "Liver"))}``.
        A scheme has at most 16 characters, a meaning 64.

    Raises
    ------
    InputError
        An argument is of another kind, the labels do not fit the images, a value is not a class, or codes are for
        something that is not a class.
    DataError
        highdicom is not installed. Or an image can't be read, lacks its position, has several frames, or belongs to
        another series or grid than the first one.
    """
    target = require_file(_WHERE, "path", path)
    paths = _check_arguments(labels, spec, source)
    number = whole_number(_WHERE, "series_number", series_number)
    if not 1 <= number <= _LARGEST_NUMBER:
        raise InputError(expected(_WHERE, "series_number", f"between 1 and {_LARGEST_NUMBER}", number))
    meanings = _find_meanings(codes, spec)
    volume = labels[None] if labels.ndim == 2 else labels
    highdicom = need("highdicom", "dicom", _WHAT)
    images = _read_series(paths)
    sizes = {(image.Rows, image.Columns) for image in images}
    if sizes != {volume.shape[1:]}:
        rule = f"to have the size of the images, {sorted(sizes)}"
        raise InputError(expected(_WHERE, "labels", rule, volume.shape[1:]))
    try:
        segmentation = _build_segmentation(highdicom, volume, meanings, images, number)
    except (AttributeError, LookupError, TypeError, ValueError) as error:  # highdicom's, about attributes of the images
        reason = f"{type(error).__name__}: {error}"
        rule = "to be images that highdicom can make a segmentation of"
        raise file_error(paths[0], "source", rule, reason[:300], _REMEDY) from error
    segmentation.SpecificCharacterSet = "ISO_IR 192"  # UTF-8, for the names of classes and meanings
    with atomic_write(target) as file:
        segmentation.save_as(file)


def _build_segmentation(
    highdicom: Any, volume: NDArray[Any], meanings: Meanings, images: list[Any], series_number: int
) -> Any:
    """Build the data set of the segmentation; `meanings` are by class, background included."""
    code = need("pydicom", "dicom", _WHAT).sr.coding.Code
    seg = highdicom.seg
    made_by = highdicom.AlgorithmIdentificationSequence("segmeter", code(*_BY_LEARNING), __version__)
    automatic = seg.SegmentAlgorithmTypeValues.AUTOMATIC
    segments = [
        seg.SegmentDescription(label, name, code(*category), code(*kind), automatic, made_by)
        for label, (name, (category, kind)) in enumerate(meanings.items())
        if label
    ]
    return seg.Segmentation(
        source_images=images,
        pixel_array=volume.astype(np.uint8 if len(meanings) <= 256 else np.uint16),
        segmentation_type=seg.SegmentationTypeValues.BINARY,
        segment_descriptions=segments,
        series_instance_uid=highdicom.UID(),
        series_number=series_number,
        sop_instance_uid=highdicom.UID(),
        instance_number=1,
        manufacturer="segmeter",
        manufacturer_model_name="segmeter",
        software_versions=__version__,
        device_serial_number="none",
        omit_empty_frames=False,
    )


def _check_arguments(labels: Any, spec: Any, source: Any) -> list[Path]:
    """Check the arguments, and return the images' paths."""
    if isinstance(source, str | Path | bytes) or not isinstance(source, Sequence) or not source:
        rule, remedy = "to be a list of the images' paths", "Of one image give [path]."
        raise InputError(expected(_WHERE, "source", rule, shown(source), remedy))
    paths = [require_path(_WHERE, "source", path) for path in source]
    require_kind(_WHERE, "spec", spec, ClassSpec)
    require_kind(_WHERE, "labels", labels, np.ndarray)
    if spec.is_multilabel:
        raise InputError(expected(_WHERE, "spec", "to have one class per pixel", spec.task))
    planes = 1 if labels.ndim == 2 else len(labels)
    if labels.dtype.kind not in "iu" or labels.ndim not in (2, 3) or planes != len(paths) or not labels.size:
        rule = f"to be integers, (D, H, W) of a slice for each of the {len(paths)} images"
        raise InputError(expected(_WHERE, "labels", rule, f"{labels.dtype} {labels.shape}"))
    strange = np.unique(labels[(labels < 0) | (labels >= spec.num_classes)])
    if strange.size:
        remedy = "A segmentation has no ignored pixels." if spec.is_ignored(strange).any() else ""
        raise InputError(expected(_WHERE, "labels", f"to be 0 to {spec.num_classes - 1}", strange[:5].tolist(), remedy))
    return paths


def _find_meanings(codes: Any, spec: ClassSpec) -> Meanings:
    """Check the codes, and return category and type of each class, in the order of the classes."""
    codes = {} if codes is None else codes
    require_kind(_WHERE, "codes", codes, Mapping)
    strange = [name for name in codes if name not in spec.names[1:]]
    if strange:
        rule = f"to be of classes that are segments, {', '.join(spec.names[1:])}"
        raise InputError(expected(_WHERE, "codes", rule, shown(strange[0])))
    for name, pair in codes.items():
        if not (isinstance(pair, tuple | list) and len(pair) == 2 and all(map(_is_code, pair))):
            rule = f"to be two codes for {name}, each (value, scheme, meaning)"
            remedy = f"A scheme has at most {_MAX_SCHEME} characters, a meaning {_MAX_MEANING}, without backslashes."
            raise InputError(expected(_WHERE, "codes", rule, shown(pair), remedy))
    return {name: tuple(codes.get(name, (_TISSUE, _TISSUE))) for name in spec.names}


def _is_code(code: Any) -> bool:
    is_triple = isinstance(code, tuple | list) and len(code) == 3 and all(isinstance(text, str) for text in code)
    fits = is_triple and len(code[1]) <= _MAX_SCHEME and len(code[2]) <= _MAX_MEANING
    # DICOM separates values by a backslash
    return fits and all(text.strip() and text.isprintable() and "\\" not in text for text in code)


def _read_series(paths: Sequence[Path]) -> list[Any]:
    """Read the slices of one series, and check that they have everything that a segmentation copies.

    Raises
    ------
    DataError
        An image can't be read, lacks something, belongs to another series or grid than the first one, or has the
        position of an earlier one.
    """
    images = [_read(path) for path in paths]
    has_position = any(name in images[0] for name in ("ImagePositionPatient", "ImageOrientationPatient"))
    for path, image in zip(paths, images, strict=True):
        # a single radiograph has no position
        needed = (*_REQUIRED, *_POSITION) if len(images) > 1 or has_position else _REQUIRED
        lacking = [name for name in needed if image.get(name) in (None, "")]
        if lacking:
            remedy = "Give the images as the scanner or archive wrote them."
            raise file_error(path, ", ".join(lacking), "to be given", "nothing", remedy)
        for name in _MAY_BE_EMPTY:
            if name not in image:
                setattr(image, name, "")
    earlier: dict[str, Path] = {}  # the image with each id or position
    for path, image in zip(paths, images, strict=True):
        for name in (*_TEXTS, *_NUMBERS) if earlier else ():
            value, first = image.get(name), images[0].get(name)
            same = value == first
            if name in _NUMBERS and np.shape(value) == np.shape(first):
                same = np.allclose(value, first, rtol=SPACING_TOLERANCE, atol=1e-4)
            if not same:
                raise file_error(path, name, f"to be that of {paths[0].name}, {first}", value, _REMEDY)
        for name in ("SOPInstanceUID", "ImagePositionPatient"):
            value = image.get(name)
            key = f"{name} {value}"
            if key in earlier:
                raise file_error(path, name, f"to differ from {earlier[key].name}", value, _REMEDY)
            earlier[key] = path
    return images


def _read(path: Path) -> Any:
    """Read an image without its pixels; DataError if the file is no image, or has several frames."""
    pydicom = need("pydicom", "dicom", _WHAT)
    try:
        image = pydicom.dcmread(path, stop_before_pixels=True)
        frames = int(image.get("NumberOfFrames") or 1)
    except OSError as error:
        raise file_error(path, "file", "to be readable", error.strerror or error) from error
    except Exception as error:  # pydicom raises many types on hostile bytes
        raise file_error(path, "file", "to be a DICOM image", f"{type(error).__name__}: {error}"[:120]) from error
    if frames != 1:
        remedy = "Give one file per slice: of several frames it is not known which one was segmented."
        raise file_error(path, "NumberOfFrames", "to be 1", frames, remedy)
    return image


@dataclass(frozen=True, kw_only=True)
class Series:
    """The images of one DICOM series: its SeriesInstanceUID, the cases, and their DICOM files in the same order."""

    uid: str
    case_ids: tuple[str, ...]
    paths: tuple[Path, ...]


def find_series(folder: Path, dataset: Dataset, export: ExportConfig) -> tuple[Series, ...]:
    """Find the DICOM image of each case by its name. Call this before the first case is predicted.

    Raises
    ------
    ConfigError
        The run writes no label maps, or none that segmentations can be made from.
    DataError
        A case has no DICOM image or one of another size, or images are not slices of a series.
    """
    if dataset.spec.is_multilabel:
        rule = "to be null for multilabel, as segments of one file share no pixel here"
        raise ConfigError(expected("export", "dicom_series", rule, repr(str(export.dicom_series))))
    if not export.labels or export.labels_format not in _SUFFIXES:
        rule = "to be png or tiff where dicom_series is given, with labels=true"
        given = f"{export.labels_format}, labels={str(export.labels).lower()}"
        raise ConfigError(expected("export", "labels_format", rule, given))
    if not folder.is_dir():
        raise DataError(expected("export", "dicom_series", "to be a folder", show(folder.absolute())))
    by_name = defaultdict[str, list[Path]](list)
    for path in sorted(folder.iterdir()):
        if path.is_file() and not is_junk(path):
            by_name[safe_id(stem_of(path))].append(path)
    # the folder may hold images that are not predicted
    paths = {case_id: by_name[case_id] for case_id in dataset.case_ids if case_id in by_name}
    problems = missing_problem(dataset.case_ids, by_name, what="a DICOM image", remedy=_BY_NAME)
    problems += twice_problems(paths, "DICOM images")
    if problems:
        raise DataError(problems)
    by_series = defaultdict[str, list[str]](list)
    for case_id, (path,) in paths.items():
        uid = _read(path).get("SeriesInstanceUID")
        if not uid:
            raise file_error(path, "SeriesInstanceUID", "to be given", "nothing")
        by_series[str(uid)].append(case_id)
    kinds = dict(zip(dataset.case_ids, dataset.kinds(), strict=True))
    problems, all_series = list[str](), list[Series]()
    for uid, case_ids in sorted(by_series.items()):
        series = Series(uid=uid, case_ids=tuple(case_ids), paths=tuple(paths[case_id][0] for case_id in case_ids))
        all_series.append(series)
        # read again, as the images of all series may not fit into memory
        for case_id, path, image in zip(case_ids, series.paths, _read_series(series.paths), strict=True):
            size = kinds[case_id][:2]
            if size != (image.Rows, image.Columns):
                rule = f"to have the size of the image {case_id}, {size[0]} x {size[1]}"
                problems.append(expected(show(path), "DICOM image", rule, f"{image.Rows} x {image.Columns}"))
    if problems:
        raise DataError(problems)
    return tuple(all_series)


def write_series(folder: Path, all_series: Sequence[Series], spec: ClassSpec) -> None:
    """Write dicom/<series>.dcm into the predictions folder, from the label maps there. Existing files stay.

    Raises
    ------
    DataError
        A label map is missing or damaged.
    InputError
        A label map holds the ignored value.
    """
    for series in all_series:
        target = folder / "dicom" / f"{safe_id(series.uid)}.dcm"
        if target.exists():
            continue
        stems = [folder / "labels" / safe_id(case_id) for case_id in series.case_ids]
        candidates = [[Path(f"{stem}{suffix}") for suffix in _SUFFIXES.values()] for stem in stems]
        files = [next((path for path in paths if path.exists()), paths[0]) for paths in candidates]
        maps = [read_map(path, Reading(spec=spec, label_map={}, max_pixels=MAX_PIXELS)).values for path in files]
        make_folder(target.parent)
        write_segmentation(target, np.stack(maps), spec, source=series.paths)
