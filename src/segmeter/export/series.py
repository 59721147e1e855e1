"""Writes a DICOM segmentation for each series whose images were predicted, from the label maps of a run."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from segmeter.checks import expected
from segmeter.classes import ClassSpec
from segmeter.data.dataset import Dataset
from segmeter.data.files.array import MAX_PIXELS
from segmeter.data.files.sniff import is_junk, show, stem_of
from segmeter.data.folders.pairing import missing_problem, twice_problems
from segmeter.data.masks.options import Reading
from segmeter.data.masks.reading import read_map
from segmeter.errors import ConfigError, DataError
from segmeter.export.config import ExportConfig
from segmeter.export.dicom import read_series, series_of, write_segmentation
from segmeter.files import make_folder, safe_id

_SUFFIXES = {"png": ".png", "tiff": ".tif"}  # large label maps are TIFF either way
_BY_NAME = "Images and their DICOM files go together by name, as slice07.png and slice07.dcm."


@dataclass(frozen=True, kw_only=True)
class Series:
    """The images of one DICOM series, and their cases.

    Parameters
    ----------
    uid
        Its SeriesInstanceUID.
    case_ids, paths
        The cases and their DICOM files, in one order.
    """

    uid: str
    case_ids: tuple[str, ...]
    paths: tuple[Path, ...]


def find_series(folder: Path, dataset: Dataset, export: ExportConfig) -> tuple[Series, ...]:
    """Find the DICOM image of each case by its name, before any work.

    Raises
    ------
    ConfigError
        No label maps are written from which segmentations can be made.
    DataError
        A case has no DICOM image or one of another size, or the images are not slices of series.
    """
    _check_export(export, dataset.spec)
    paths = _find_images(folder, dataset.case_ids)
    grouped: defaultdict[str, list[str]] = defaultdict(list)
    for case_id, path in paths.items():
        grouped[series_of(path)].append(case_id)
    found = tuple(
        Series(uid=uid, case_ids=tuple(case_ids), paths=tuple(paths[case_id] for case_id in case_ids))
        for uid, case_ids in sorted(grouped.items())
    )
    problems, kinds = list[str](), dict(zip(dataset.case_ids, dataset.kinds(), strict=True))
    for series in found:
        for case_id, path, image in zip(series.case_ids, series.paths, read_series(series.paths), strict=True):
            size = kinds[case_id][:2]
            if size != (image.Rows, image.Columns):
                rule = f"to have the size of the image {case_id}, {size[0]} x {size[1]}"
                problems.append(expected(show(path), "DICOM image", rule, f"{image.Rows} x {image.Columns}"))
    if problems:
        raise DataError(problems)
    return found


def write_series(folder: Path, found: Sequence[Series], spec: ClassSpec) -> None:
    """Write dicom/<series>.dcm into the predictions folder, from the label maps there; existing files stay.

    Raises
    ------
    DataError
        A label map is missing or damaged.
    InputError
        A label map holds the ignored value, which a segmentation can't.
    """
    for series in found:
        target = folder / "dicom" / f"{safe_id(series.uid)}.dcm"
        if target.exists():
            continue
        files = [_label_map(folder / "labels", case_id) for case_id in series.case_ids]
        maps = [read_map(path, Reading(spec=spec, label_map={}, max_pixels=MAX_PIXELS)).values for path in files]
        make_folder(target.parent)
        write_segmentation(target, np.stack(maps), spec, source=series.paths)


def _check_export(export: ExportConfig, spec: ClassSpec) -> None:
    if spec.is_multilabel:
        rule = "to be null for multilabel, as segments of one file share no pixel here"
        raise ConfigError(expected("export", "dicom_series", rule, repr(str(export.dicom_series))))
    if not export.labels or export.picture_format not in _SUFFIXES:
        rule = "to be png or tiff where dicom_series is given, with labels=true"
        given = f"{export.labels_format}, labels={str(export.labels).lower()}"
        raise ConfigError(expected("export", "labels_format", rule, given))


def _label_map(folder: Path, case_id: str) -> Path:
    """The label map of a case, in either format."""
    paths = [folder / f"{safe_id(case_id)}{suffix}" for suffix in _SUFFIXES.values()]
    return next((path for path in paths if path.exists()), paths[0])


def _find_images(folder: Path, case_ids: Sequence[str]) -> dict[str, Path]:
    """Find the DICOM file of each case; other files, such as slices that are not predicted, are skipped."""
    if not folder.is_dir():
        raise DataError(expected("export", "dicom_series", "to be a folder", show(folder.absolute())))
    named: defaultdict[str, list[Path]] = defaultdict(list)
    for path in sorted(folder.iterdir()):
        if path.is_file() and not is_junk(path):
            named[safe_id(stem_of(path))].append(path)
    wanted = {case_id: named[case_id] for case_id in case_ids if case_id in named}
    problems = missing_problem(case_ids, named, what="a DICOM image", remedy=_BY_NAME)
    problems += twice_problems(wanted, "DICOM images")
    if problems:
        raise DataError(problems)
    return {case_id: paths[0] for case_id, paths in wanted.items()}
