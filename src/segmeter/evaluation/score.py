"""Masks that any tool wrote, with their references -> rows of counts and their summary; no model, no torch."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from segmeter.checks import expected
from segmeter.data.dataset import in_threads
from segmeter.data.formats import show
from segmeter.data.labels import label_dtype
from segmeter.data.listing import some
from segmeter.data.pairing import Files, list_files, missing_problem, twice_problems
from segmeter.data.read import read_mask
from segmeter.errors import DataError, InputError
from segmeter.files import safe_id, write_json
from segmeter.metrics.config import MetricsConfig
from segmeter.metrics.counts import confusion_matrix, multilabel_counts
from segmeter.metrics.measures import CaseMaps, Measure, build_measures, measure_case
from segmeter.metrics.rows import CaseRow, write_cases
from segmeter.metrics.store import RowStore
from segmeter.metrics.summary import summarise
from segmeter.progress import track
from segmeter.vocabulary import ClassSpec

Missing = Literal["error", "as_background"]

_READ = "2-D label maps are read; convert volumes (NIfTI, Zarr, NPZ) to one PNG, TIFF or NPY file per slice."
_NO_CASE = "Every reference needs a prediction of the same name; missing=as_background scores it as class 0 everywhere."


@dataclass(frozen=True, kw_only=True)
class MaskPair:
    """The files of one case: one of each for binary and multiclass, one per class for multilabel.

    `predictions` is empty where the case has no prediction. `case_id` is safe as a file name, `stem` is the files' own.
    """

    case_id: str
    stem: str
    references: tuple[Path, ...]
    predictions: tuple[Path, ...]


@dataclass(frozen=True, kw_only=True)
class Pairing:
    """What two folders hold: `pairs` in the order of their ids, and predictions (`extra`) that have no reference."""

    pairs: tuple[MaskPair, ...]
    extra: tuple[str, ...]

    @property
    def missing(self) -> tuple[str, ...]:
        """Ids of the cases without a prediction."""
        return tuple(pair.case_id for pair in self.pairs if not pair.predictions)

    def fingerprint(self) -> str:
        """Sha256 over case ids, file names and file sizes."""
        digest = hashlib.sha256()
        for pair in self.pairs:
            files = [(path.name, path.stat().st_size) for path in (*pair.references, *pair.predictions)]
            digest.update(repr((pair.case_id, files)).encode("utf-8", "surrogateescape"))
        return digest.hexdigest()


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """What is scored, and where the figures go.

    Parameters
    ----------
    pairing
        The files, from `pair_masks`.
    spec
        What the labels mean.
    label_map
        From a stored value or colour to a label, for both folders; empty takes stored values as labels.
    max_pixels
        The largest height x width of a file, checked before it is decoded.
    metrics
        Its group of the configuration.
    folder
        The run's folder.
    """

    pairing: Pairing
    spec: ClassSpec
    label_map: Mapping[str, int]
    max_pixels: int
    metrics: MetricsConfig
    folder: Path


def pair_masks(predictions: Path, references: Path, *, spec: ClassSpec, missing: Missing = "error") -> Pairing:
    """Pair the masks of two folders by file name without suffix; for multilabel, of one folder per class in each.

    Parameters
    ----------
    predictions, references
        Two folders.
    spec
        The classes.
    missing
        What a reference without a prediction is: an "error", or a case that is scored "as_background".

    Raises
    ------
    DataError
        A folder is missing, empty, or holds what is not read; a prediction is missing; no name is in both folders.
    """
    if references.exists() and predictions.exists() and references.samefile(predictions):
        raise DataError(expected("score", "predictions", "to be another folder than references", show(predictions)))
    wanted, given = _mask_files(references, "references", spec), _mask_files(predictions, "predictions", spec)
    problems = [line for files in wanted for line in twice_problems(files, "references")]
    problems += [line for files in given for line in twice_problems(files, "predictions")]
    stems = dict.fromkeys(sorted(stem for files in wanted for stem in files))
    for files in wanted:
        problems += missing_problem(stems, files, what="a reference", remedy="Every class needs a mask of each case.")
    absent = [stem for stem in stems if not any(stem in files for files in given)]
    whole = missing == "error" or len(absent) == len(stems)
    for files in given:
        needed = stems if whole else [stem for stem in stems if stem not in absent]
        problems += missing_problem(needed, files, what="a prediction", remedy=_NO_CASE)
    if problems:
        raise DataError(list(dict.fromkeys(problems)))
    pairs = [_pair(stem, wanted, [] if stem in set(absent) else given) for stem in stems]
    extra = {stem for files in given for stem in files if stem not in stems}
    return Pairing(pairs=tuple(sorted(pairs, key=lambda pair: pair.case_id)), extra=tuple(sorted(extra)))


def score(job: Scoring) -> dict[str, Any]:
    """Read every pair once, in parallel, and measure it.

    Writes cases.parquet, cases.csv and metrics.json into the run's folder. Cases without a prediction are counted in
    the summary's ``missing_predictions``, and have 1 in the rows' ``extra_missing``.

    Returns
    -------
    dict
        The content of metrics.json.

    Raises
    ------
    DataError
        One line for every file that can't be scored; nothing is written then.
    """
    rows, problems = RowStore(), list[str]()
    for result in track(_results(job), "scoring", len(job.pairing.pairs)):
        if isinstance(result, CaseRow):
            rows.append(result)
        else:
            problems.extend(result)
    if problems:
        raise DataError(problems)
    write_cases(job.folder, rows, job.spec)
    missing = job.pairing.missing
    summary = summarise(rows, job.spec, job.metrics) | {
        "missing_predictions": {"n": len(missing), "cases": list(missing)},
        "extra_predictions": len(job.pairing.extra),
    }
    write_json(job.folder / "metrics.json", summary)
    return summary


def read_pair(job: Scoring, pair: MaskPair) -> tuple[np.ndarray, np.ndarray]:
    """Read target and labels of one case.

    Returns
    -------
    Two arrays (H, W), for multilabel (K, H, W), uint8 or uint16. Without a prediction the labels are 0.

    Raises
    ------
    DataError
        With every problem of its files; each line names one.
    """
    problems: list[str] = []
    target, labels = _read(job, pair.references, problems), _read(job, pair.predictions, problems)
    for found, paths in ((target, pair.references), (labels, pair.predictions)):
        for plane, path in zip(found, paths, strict=True):
            problems += _size_problem(path, plane, pair.references[0], target[0])
    if problems:
        raise DataError(list(dict.fromkeys(problems)))
    planes = [np.asarray(plane) for plane in target if plane is not None]
    predicted = [np.asarray(plane) for plane in labels if plane is not None] or [np.zeros_like(p) for p in planes]
    if job.spec.task != "multilabel":
        return planes[0], predicted[0]
    dtype = label_dtype(job.spec)
    return np.stack(planes).astype(dtype, copy=False), np.stack(predicted).astype(dtype, copy=False)


def _results(job: Scoring) -> Iterator[CaseRow | tuple[str, ...]]:
    """Rows in the order of the pairs; threads, as decoding and counting free the interpreter."""
    return in_threads(partial(_score_pair, job, build_measures(job.metrics, job.spec)), job.pairing.pairs)


def _score_pair(job: Scoring, measures: Sequence[Measure], pair: MaskPair) -> CaseRow | tuple[str, ...]:
    """A case's row, or what is wrong with its files."""
    spec = job.spec
    try:
        target, labels = read_pair(job, pair)
    except DataError as error:
        return error.problems
    try:
        if spec.task == "multilabel":
            counts = multilabel_counts(target, labels, ignore_index=spec.ignore_index)
        else:
            counts = confusion_matrix(target, labels, num_classes=spec.num_classes, ignore_index=spec.ignore_index)
    except InputError:
        return (_undecided(pair, target, labels, spec),)
    spacing = job.metrics.spacing or (1.0, 1.0)
    maps = CaseMaps(case_id=pair.case_id, target=target, labels=labels, spacing=spacing, spec=spec)
    try:
        extra = measure_case(maps, measures)
    except InputError as error:
        return error.problems
    if job.pairing.missing:
        extra["missing"] = float(not pair.predictions)
    height, width = target.shape[-2:]
    return CaseRow(
        case_id=pair.case_id, height=height, width=width, counts=counts, extra=extra, spacing=job.metrics.spacing
    )


def _read(job: Scoring, paths: tuple[Path, ...], problems: list[str]) -> list[np.ndarray | None]:
    """Every mask, None where it can't be read."""
    read = partial(read_mask, spec=job.spec, label_map=job.label_map, max_pixels=job.max_pixels)
    found: list[np.ndarray | None] = []
    for path in paths:
        try:
            found.append(read(path))
        except DataError as error:
            problems.extend(error.problems)
            found.append(None)
        except OSError as error:
            problems.append(expected(show(path), "file", "to be readable", error.strerror or error))
            found.append(None)
    return found


def _size_problem(path: Path, plane: np.ndarray | None, other: Path, reference: np.ndarray | None) -> list[str]:
    if plane is None or reference is None or plane.shape == reference.shape:
        return []
    (height, width), (wanted_height, wanted_width) = plane.shape, reference.shape
    rule = f"to have the size of its reference {show(other)}, {wanted_height} x {wanted_width}"
    remedy = "Nothing is resized."
    return [expected(show(path), "mask", rule, f"{height} x {width} (height x width)", remedy)]


def _undecided(pair: MaskPair, target: np.ndarray, labels: np.ndarray, spec: ClassSpec) -> str:
    """A reader lets only classes and the ignored value pass, so that value is what the prediction holds too much of."""
    pixels = int(((labels == spec.ignore_index) & (target != spec.ignore_index)).sum())
    rule = "to hold a class wherever its reference does"
    remedy = "A tool that leaves pixels undecided has to decide on them, or be scored on a class of its own."
    where = show(pair.predictions[0] if len(pair.predictions) == 1 else pair.predictions[0].parents[1] / pair.stem)
    return expected(where, "prediction", rule, f"{pixels} pixels of the ignored value {spec.ignore_index}", remedy)


def _pair(stem: str, wanted: list[Files], given: list[Files]) -> MaskPair:
    return MaskPair(
        case_id=safe_id(stem),
        stem=stem,
        references=tuple(files[stem][0] for files in wanted),
        predictions=tuple(files[stem][0] for files in given),
    )


def _mask_files(folder: Path, role: str, spec: ClassSpec) -> list[Files]:
    """The files of a folder, or of each class's folder for multilabel."""
    if spec.task != "multilabel":
        return [list_files(folder, role=role, remedy=_READ)]
    unsafe = [name for name in spec.names if Path(name).name != name or name in (".", "..")]
    if unsafe:
        raise DataError(expected("score", "classes", "to be usable as folder names", some(unsafe), "Rename these."))
    return [list_files(folder / name, role=f"{role} of {name}", remedy=_READ) for name in spec.names]
