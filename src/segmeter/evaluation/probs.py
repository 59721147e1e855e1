"""Measures the calibration of files of probabilities against their references. No model, no torch."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from segmeter.checks import expected
from segmeter.data.files.opened import open_array
from segmeter.data.files.sniff import show
from segmeter.data.folders.pairing import find_beside
from segmeter.errors import DataError, InputError
from segmeter.evaluation.cases import CaseScorer
from segmeter.evaluation.drive import collect
from segmeter.evaluation.pairing import MaskPair, check_unchanged, limit_of
from segmeter.metrics.probabilities.calibration import Calibration
from segmeter.metrics.probabilities.stored import empty_sums

_WHAT = "measuring probabilities"
_FORM = "Probabilities are NPY or NPZ files of float32, (C, H, W) or (C, D, H, W), as export.probs writes them."


def find_probs(folder: Path, pairs: Sequence[MaskPair]) -> dict[str, Path]:
    """Find the probabilities of every pair by its file's name without suffix.

    Raises
    ------
    DataError
        The folder is missing, or a case has no file or two.
    """
    stems, remedy = (pair.stem for pair in pairs), "Leave probs= out to measure none."
    chosen = find_beside(folder, stems, role="probs", what="probabilities", remedy=remedy)
    wrong = [path for path in chosen.values() if path.suffix.lower() not in (".npy", ".npz")]
    problems = [expected(show(path), "probs", "to be an NPY or NPZ file", path.suffix, _FORM) for path in wrong]
    if problems:
        raise DataError(problems)
    return chosen


def measure_probs(
    scorer: CaseScorer, pairs: Sequence[MaskPair], files: Mapping[str, Path], *, measured: Mapping[str, str]
) -> tuple[Calibration, dict[str, str]]:
    """Add up the calibration of all cases.

    Parameters
    ----------
    scorer
        Reads the references.
    pairs, files
        The cases, and their files from `find_probs`.
    measured
        Hashes of the pairs when they were measured, from `hash_pair`, by case id.

    Returns
    -------
    tuple
        The sums, and the sha256 of every file by its stem.

    Raises
    ------
    DataError
        One line for every file that can't be used, or that changed since it was measured.
    """
    sums, hashes, problems = empty_sums(scorer.reading.spec), dict[str, str](), list[str]()
    try:
        for stem, target, probs, sha256 in collect(partial(_read, scorer, files, measured), pairs, what=_WHAT):
            try:
                sums.update(target, probs)
                hashes[stem] = sha256
            except InputError as error:
                problems += [f"{show(files[stem])}: {line}" for line in error.problems]
    except DataError as error:
        problems += error.problems
    if problems:
        raise DataError(problems)
    return sums, hashes


def _read(
    scorer: CaseScorer, files: Mapping[str, Path], measured: Mapping[str, str], pair: MaskPair
) -> tuple[str, NDArray[Any], NDArray[Any], str]:
    """Return the stem of a case, its target, and its probabilities with the sha256 of their file."""
    path, reading = files[pair.stem], scorer.reading
    in_time = limit_of(pair, reading.timeout_s)
    most = reading.max_pixels * reading.spec.num_classes

    def decode() -> tuple[NDArray[Any], str]:
        with open_array(path, settled=True, key=reading.key, max_pixels=most, axes="probs") as array:
            return array.read(), array.sha256

    try:
        target = scorer.read(replace(pair, predictions=())).target
        in_time(partial(check_unchanged, pair, measured))
        return pair.stem, target, *replace(in_time, files=(path,))(decode)
    except OSError as error:
        raise DataError(expected(show(path), "file", "to be readable", error.strerror or error)) from error
