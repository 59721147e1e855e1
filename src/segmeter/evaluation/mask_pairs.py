"""Pairs the masks of two folders: finds the files of each case, and every name that has no partner."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected, some
from segmeter.classes import ClassSpec
from segmeter.data.files.formats import volume_format
from segmeter.data.files.opened import TimeLimit, open_array
from segmeter.data.files.reader_process import need
from segmeter.data.files.refusals import show, stored_size
from segmeter.data.images import IMAGE_DTYPES, image_of
from segmeter.data.masks.annotations import ANNOTATION_SUFFIXES, annotated_images, annotations_of
from segmeter.data.masks.reading import hash_map, read_values
from segmeter.data.pairing import (
    Files,
    class_folders,
    find_beside,
    list_files,
    missing_problem,
    only_alike,
    twice_problems,
)
from segmeter.errors import DataError
from segmeter.evaluation.spacings import write_shape
from segmeter.files import safe_id
from segmeter.remote import fetch

Missing = Literal["error", "as_background"]

_NO_CASE = "Every reference needs a prediction of the same name; missing=as_background scores it as class 0 everywhere."

_PROBS = "Probabilities are NPY or NPZ files of float32, (C, H, W) or (C, D, H, W), as export.probs writes them."


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskPair:
    """The files of one case: one of each for binary and multiclass, one per class for multilabel.

    `predictions` is empty if the case has no prediction. `case_id` is safe as a file name; `stem` is the stem of the
    files themselves. `image` is set if a measure needs it.
    """

    case_id: str
    stem: str
    references: tuple[Path, ...]
    predictions: tuple[Path, ...]
    image: Path | None = None

    @property
    def files(self) -> tuple[Path, ...]:
        """All files that the case's row depends on."""
        return (*self.references, *self.predictions, *([self.image] if self.image else []))


@dataclass(frozen=True, kw_only=True)
class Pairing:
    """The content of two folders: `pairs` in the order of their ids, and predictions (`extra`) without a reference.

    `problems` name the files that can't be paired; `pairs` are the others.
    """

    pairs: Sequence[MaskPair]
    extra: tuple[str, ...]
    problems: tuple[str, ...] = ()

    @property
    def missing(self) -> tuple[str, ...]:
        """Ids of the cases without a prediction."""
        return tuple(pair.case_id for pair in self.pairs if not pair.predictions)

    def fingerprint(self) -> str:
        """Hash case ids, file names and file sizes.

        Raises
        ------
        DataError
            Files can't be reached, such as links that lead nowhere.
        """
        digest = hashlib.sha256()
        problems = list[str]()
        for pair in self.pairs:
            sizes = list[tuple[str, int]]()
            for path in (*pair.references, *pair.predictions):
                try:
                    sizes.append((path.name, stored_size(annotations_of(path) or path)))
                except OSError as error:
                    problems.append(expected(show(path), "file", "to be readable", error.strerror or error))
            digest.update(repr((pair.case_id, sizes)).encode("utf-8", "surrogateescape"))
        if problems:
            raise DataError(problems)
        return digest.hexdigest()


def find_pairs(
    predictions: Path,
    references: Path,
    *,
    spec: ClassSpec,
    missing: Missing = "error",
    endings: tuple[str, str] = ("", ""),
    suffix: str = "",
) -> Pairing:
    """Pair the masks of two folders by file name without suffix; for multilabel, of one folder per class in each.

    Parameters
    ----------
    predictions, references
        Two folders, or COCO files, whose images are the cases.
    endings
        The text between the case's name and the suffix in the file names of each side; other files are skipped.
    suffix
        The suffix of all files, such as ".nii.gz"; others are skipped.
    spec
        The classes.
    missing
        A reference without a prediction is an "error", or a case that is scored "as_background".

    Raises
    ------
    DataError
        A folder is missing, empty, or holds files of an unknown format.
    """
    both_exist = references.exists() and predictions.exists()
    if references.samefile(predictions) if both_exist else references == predictions:
        raise DataError(expected("score", "predictions", "to be another folder than references", show(predictions)))
    reference_files = mask_files("score", references, "references", spec, endings[1], suffix)
    prediction_files = mask_files("score", predictions, "predictions", spec, endings[0], suffix)
    problems = [line for files in reference_files for line in twice_problems(files, "references")]
    problems += [line for files in prediction_files for line in twice_problems(files, "predictions")]
    stems = dict.fromkeys(sorted(stem for files in reference_files for stem in files))
    for files in reference_files:
        problems += missing_problem(stems, files, what="a reference", remedy="Every class needs a mask of each case.")
    absent = {stem for stem in stems if not any(stem in files for files in prediction_files)}
    needs_all = missing == "error" or len(absent) == len(stems)
    for files in prediction_files:
        misspelt = only_alike(stems, files.keys() - stems.keys())  # their predictions are there, under another name
        needed = stems if needs_all else [stem for stem in stems if stem not in absent or stem in misspelt]
        problems += missing_problem(needed, files, what="a prediction", remedy=_NO_CASE)
    all_files = [*reference_files, *prediction_files]
    if any(volume_format(path) == "nifti" for files in all_files for paths in files.values() for path in paths):
        need("nibabel", "nifti", "NIfTI files")
    count = len(reference_files)
    pairs = list[MaskPair]()
    for stem in sorted(stems, key=safe_id):
        candidates = [files.get(stem, []) for files in all_files]
        if stem in absent and not needs_all:
            candidates = candidates[:count]
        if all(len(paths) == 1 for paths in candidates):
            paths = tuple(path for (path,) in candidates)
            pair = MaskPair(case_id=safe_id(stem), stem=stem, references=paths[:count], predictions=paths[count:])
            pairs.append(pair)
    extra = {stem for files in prediction_files for stem in files if stem not in stems}
    return Pairing(pairs=pairs, extra=tuple(sorted(extra)), problems=tuple(dict.fromkeys(problems)))


def mask_files(where: str, folder: Path, role: str, spec: ClassSpec, ending: str = "", suffix: str = "") -> list[Files]:
    """Find the masks of a folder or annotation file by stem, or of each class's folder for multilabel.

    Parameters
    ----------
    where, role
        The command and the folder's role, for messages.
    ending, suffix
        As for `find_pairs`.
    """
    file = fetch(folder) if folder.suffix.lower() in ANNOTATION_SUFFIXES else None
    if file and file.is_file():
        planes = [annotated_images(file, plane) for plane in (spec.names if spec.is_multilabel else ("",))]
    else:
        folders = class_folders(where, folder, role, spec.names if spec.is_multilabel else ())
        planes = [list_files(place, role=name, ending=suffix) for place, name in folders]
    if not ending:
        return planes
    matching = [
        {stem.removesuffix(ending): paths for stem, paths in files.items() if stem.endswith(ending)} for files in planes
    ]
    if not all(matching):
        raise DataError(expected(show(folder), role, f"to have names that end in {ending!r}", some(planes[0])))
    return matching


def hash_pair(pair: MaskPair) -> str:
    """Hash the hashes of all files of a pair; "" if a file is gone."""
    try:
        return hash_together([hash_map(path) for path in pair.files])
    except (OSError, DataError):
        return ""


def hash_together(digests: Sequence[str]) -> str:
    """Hash the hashes of the files of a case."""
    return hashlib.sha256(" ".join(digests).encode()).hexdigest()


def limit_of(pair: MaskPair, seconds: float | None) -> TimeLimit:
    """Return the time limit for reading the files of a pair."""
    return TimeLimit(seconds=seconds, case_id=pair.case_id, files=pair.files)


def check_unchanged(pair: MaskPair, measured: Mapping[str, str]) -> None:
    """Refuse a case whose files changed since they were measured. `measured` has the hashes by `hash_pair`."""
    if hash_pair(pair) != measured[pair.case_id]:
        raise DataError(f"{pair.case_id}: its files changed while they were scored. Score them again.")


def find_probs(folder: Path, pairs: Sequence[MaskPair]) -> dict[str, Path]:
    """Find the probabilities of every pair by its stem.

    Raises
    ------
    DataError
        The folder is missing, or a case has no file or two.
    """
    stems = (pair.stem for pair in pairs)
    remedy = "Leave probs= out to measure none."
    files = find_beside(folder, stems, role="probs", what="probabilities", remedy=remedy)
    wrong = [path for path in files.values() if path.suffix.lower() not in (".npy", ".npz")]
    if wrong:
        rule = "to be an NPY or NPZ file"
        raise DataError([expected(show(path), "probs", rule, path.suffix, _PROBS) for path in wrong])
    return files


def read_case_image(path: Path, shape: tuple[int, ...], *, max_pixels: int) -> tuple[NDArray[np.generic], str]:
    """Read the image of a case, (H, W, C), or for a volume (D, H, W, 1), and the sha256 of its file.

    `shape` is the shape of its reference.

    Raises
    ------
    DataError
        It can't be read, or has another size.
    """
    if len(shape) == 2 and volume_format(path) is None:
        with open_array(path, refuse_changes=True, max_pixels=max_pixels) as stored:
            image = image_of(stored, channels=None, orientation="refuse")
            digest = stored.sha256
        size = image.shape[:2]
    else:
        volume = read_values(path, max_pixels=max_pixels)
        values, digest = volume.values, volume.sha256
        image = values if values.dtype.name in IMAGE_DTYPES else values.astype(np.float32)
        image = image[..., None]
        size = values.shape
    if size != shape:
        axes = "(height x width)" if len(size) == 2 else "(depth x height x width)"
        rule = f"to have the size of its reference, {write_shape(shape)}"
        raise DataError(expected(show(path), "image", rule, f"{write_shape(size)} {axes}"))
    return image, digest
