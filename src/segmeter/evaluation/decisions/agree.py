"""Compares the masks of several readers in pairs and with their majority. No torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from segmeter.checks import expected, some
from segmeter.classes import ClassSpec
from segmeter.data.folders.pairing import Files, twice_problems
from segmeter.data.in_time import TimeLimit
from segmeter.data.labels_config import LabelsConfig
from segmeter.data.masks.options import Reading
from segmeter.errors import ConfigError, DataError, InputError
from segmeter.evaluation.decisions.config import AgreeKeys
from segmeter.evaluation.finished.compare import short_names
from segmeter.evaluation.memory import Room
from segmeter.evaluation.pair_maps import PairReader
from segmeter.evaluation.pairing import MaskPair, mask_files
from segmeter.export.config import ExportConfig
from segmeter.export.formats import write_npy
from segmeter.export.writer import Writer
from segmeter.files import atomic_write, make_folder, safe_id
from segmeter.metrics.arrays import plain
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.measures.protocol import CaseMaps, build_measures
from segmeter.metrics.measures.row import make_row
from segmeter.metrics.pixels.consensus import majority_vote, staple
from segmeter.metrics.summary.agreement import (
    MAJORITY,
    REST,
    Compared,
    Readings,
    agreement_scores,
    lay_out_readings,
    summarise_agreement,
)
from segmeter.parallel import map_in_threads
from segmeter.progress import track
from segmeter.records import read_run
from segmeter.threads import count_cores

TABLE = "agree.parquet"
_BYTES = 24  # per pixel and reader: labels, votes and the temporary arrays of one comparison


@dataclass(frozen=True, kw_only=True)
class AgreeJob:
    """The masks of several readers, and how they are compared.

    Parameters
    ----------
    readers, models
        Names and places; models are compared with readers and count in no majority.
    cases
        From `find_cases`: case id to the files of each reader and model, in the order of their names.
    left_out
        Cases that not every reader has.
    reading
        How masks are read. Its spec need not have an ignored value: only the comparison does, see `spec`.
    metrics
        What is measured.
    keys
        The command's own keys.
    """

    readers: Mapping[str, Path]
    models: Mapping[str, Path]
    cases: Mapping[str, list[tuple[Path, ...]]]
    left_out: Sequence[str]
    reading: Reading
    metrics: MetricsConfig
    keys: AgreeKeys

    @property
    def spec(self) -> ClassSpec:
        """The classes to compare by: masks may not hold the ignored value that these add."""
        return self.reading.spec.with_ignored()


def check_readers(data: LabelsConfig) -> None:
    """Refuse settings of masks that tell a prediction from a reference, as readers have no sides.

    Raises
    ------
    ConfigError
        With a line for each.
    """
    given = {
        "data.invalid": ("to be error, as every value of a reader is a class", data.invalid == "count", data.invalid),
        "data.instances": (
            "to be true or false, as readers have no sides",
            isinstance(data.instances, str),
            data.instances,
        ),
        "data.resample": (
            "to be refuse, as no reader's grid is the reference",
            data.resample != "refuse",
            data.resample,
        ),
    }
    if problems := [expected("config", key, rule, value) for key, (rule, wrong, value) in given.items() if wrong]:
        raise ConfigError(problems)


def name_readers(keys: AgreeKeys) -> tuple[dict[str, Path], dict[str, Path]]:
    """Name readers and models by their folders.

    Folders are readers. Runs are models if there are folders too, and readers otherwise; `models` names others.

    Raises
    ------
    InputError
        Fewer than two readers, one place twice, or a model that is not among them.
    """
    places = [*keys.folders, *keys.runs]
    names = short_names([place.resolve() for place in places])
    problems = []
    if twice := sorted(
        {str(place) for place in places if [each.resolve() for each in places].count(place.resolve()) > 1}
    ):
        problems.append(expected("agree", "folders and runs", "to be different places", f"{some(twice)} twice"))
    asked = set(keys.models) or set(names[len(keys.folders) :] if keys.folders else ())
    if unknown := sorted(asked - set(names)):
        problems.append(expected("agree", "models", f"to be among {', '.join(names)}", some(unknown)))
    named = dict(zip(names, places, strict=True))
    readers = {name: place for name, place in named.items() if name not in asked}
    if len(readers) < 2 and not problems:
        rule, remedy = "to name two readers or more", "Write folders=[A,B,C], or runs=[A,B]."
        problems.append(expected("agree", "folders", rule, some(readers) if readers else "none", remedy))
    if problems:
        raise InputError(problems)
    return readers, {name: place for name, place in named.items() if name in asked}


def masks_of_run(folder: Path) -> Path:
    """The label maps of a finished run of eval or predict.

    Raises
    ------
    DataError
        It is no such run, or kept no label maps.
    """
    masks = folder / "predictions" / "labels"
    if masks.is_dir():
        return masks
    try:
        command = read_run(folder).get("command", "")
    except (OSError, InputError):
        command = ""
    remedy = (
        "Give the folder of masks itself in folders=."
        if command == "score"
        else "Run it again, and keep its label maps."
    )
    given = f"{folder}, {f'a run of {command}' if command else 'which is no run'}"
    raise DataError(expected("agree", "runs", "to hold predictions/labels", given, remedy))


def find_cases(
    places: Mapping[str, Path], spec: ClassSpec, *, missing: str
) -> tuple[dict[str, list[tuple[Path, ...]]], list[str]]:
    """Find the masks of every case by file name.

    Returns
    -------
    dict
        Case id to the files of each reader: one each, for multilabel one per class.
    list
        Cases that are left out because a reader lacks them.

    Raises
    ------
    DataError
        A folder can't be read, two files have one name, no case is shared, or, unless `missing` is "leave_out", a
        reader lacks a case.
    """
    found: dict[str, list[Files]] = {name: mask_files(place, name, spec, "", "") for name, place in places.items()}
    problems = [line for name, planes in found.items() for files in planes for line in twice_problems(files, name)]
    every = sorted({stem for planes in found.values() for files in planes for stem in files}, key=safe_id)
    lacking = {name: [stem for stem in every if not all(stem in files for files in planes)]
               for name, planes in found.items()}  # fmt: skip
    left_out = {stem for stems in lacking.values() for stem in stems}
    if missing == "error":
        remedy = "missing=leave_out compares the cases that all readers have."
        problems += [
            expected("agree", f"reader {name!r}", "to have a mask of every case", f"none of {some(stems)}", remedy)
            for name, stems in lacking.items()
            if stems
        ]
    elif len(left_out) == len(every):
        problems.append(expected("agree", "folders", "to share a case", "none in all of them"))
    if problems:
        raise DataError(problems)
    cases = {
        safe_id(stem): [tuple(files[stem][0] for files in planes) for planes in found.values()]
        for stem in every
        if stem not in left_out
    }
    return cases, sorted(left_out)


def agree(job: AgreeJob, folder: Path) -> dict[str, Any]:
    """Compare all readers, and write agree.parquet and the consensus maps into a folder.

    Returns
    -------
    dict
        The content of agree.json, see `segmeter.metrics.summary.agreement.Agreement`, with ``places`` of the readers,
        ``left_out`` and ``consensus``.

    Raises
    ------
    DataError
        Files can't be read or don't fit together, one line each.
    """
    measured = _Measured(job, folder)
    rows: dict[Compared, list[CaseRow]] = {}
    tied: dict[str, list[float]] = {MAJORITY: [], REST: []}
    problems: list[str] = []
    found = map_in_threads(measured, job.cases.items(), threads=count_cores(), name="agree")
    for result in track(found, "comparing", len(job.cases)):
        if isinstance(result, list):
            problems += result
            continue
        for key, row in result.rows.items():
            rows.setdefault(key, []).append(row)
        for kind, share in result.tied.items():
            tied[kind].append(share)
    if problems:
        raise DataError(problems)
    shares = {kind: plain(np.mean(each)) if each else None for kind, each in tied.items()}
    readings = Readings(readers=list(job.readers), models=list(job.models), rows=rows, tied=shares)
    boards = lay_out_readings(readings, job.spec, job.metrics)
    board = next(iter(boards.values()))
    columns: dict[str, Any] = {"case_id": [], "reference": [], "reader": []}
    for (reference, reader), one in boards.items():
        for name, cells in zip(columns, (one.run.case_ids, [reference], [reader]), strict=True):
            columns[name] += list(cells) * (1 if name == "case_id" else len(board.run.case_ids))
    scores = {name: np.concatenate([one.values(name) for one in boards.values()]) for name in agreement_scores(board)}
    with atomic_write(folder / TABLE) as file:
        pq.write_table(pa.table({**columns, **{k: pa.array(v, from_pandas=True) for k, v in scores.items()}}), file)
    places = {name: str(place) for name, place in (*job.readers.items(), *job.models.items())}
    more = {"places": places, "left_out": list(job.left_out), "consensus": list(job.keys.consensus)}
    return summarise_agreement(readings, boards) | more


@dataclass(frozen=True, kw_only=True)
class _Compared:
    """The rows of one case, and the shares of its pixels without a majority."""

    rows: dict[Compared, CaseRow]
    tied: dict[str, float]


class _Measured:
    """Compares the readers of one case at a time; threads share it."""

    def __init__(self, job: AgreeJob, folder: Path) -> None:
        self.job, self.folder, self.spec = job, folder, job.spec
        self._reader = PairReader(job.reading, job.metrics.spacing)
        self._measures = build_measures(job.metrics, self.spec)
        self._room = Room()

    def __call__(self, case: tuple[str, list[tuple[Path, ...]]]) -> _Compared | list[str]:
        case_id, files = case
        paths = tuple(path for each in files for path in each)
        in_time = TimeLimit(seconds=self.job.reading.timeout_s, case_id=case_id, files=paths)
        pair = MaskPair(case_id=case_id, stem=case_id, references=paths, predictions=())
        _, pixels = in_time(partial(self._reader.look, pair))
        what, remedy = f"case {case_id!r}", "Free memory, or cut the masks into tiles."
        try:
            with self._room.hold(pixels * len(paths) * _BYTES, what=what, remedy=remedy):
                maps, spacing = in_time(partial(self._reader.load_readers, case_id, files))
                known: dict[str, Any] = {"spacing": spacing.spacing, "unit": spacing.unit} if spacing.spacing else {}
                found = self._compare(maps)
                return replace(found, rows={key: replace(row, **known) for key, row in found.rows.items()})
        except InputError as error:
            return [*error.problems]

    def _compare(self, given: list[CaseMaps]) -> _Compared:
        """Measure every pair, and each map against the majority of all readers, and of the readers but itself."""
        job, spec = self.job, self.spec
        names, people = [*job.readers, *job.models], list(job.readers)
        void = np.any([spec.is_ignored(one.target) for one in given], axis=0)
        targets = [spec.ignoring(one.target, void) for one in given]
        labels = [np.where(void, 0, one.target).astype(spec.label_dtype) for one in given]
        rows: dict[Compared, CaseRow] = {}
        for a, b in ((a, b) for a in range(len(given)) for b in range(len(given)) if a != b):
            numbers: dict[str, Any] = {"target_instances": given[a].instances, "instances": given[b].instances}
            maps = replace(given[a], target=targets[a], labels=labels[b], spec=self.spec, kept={}, **numbers)
            if names[a] in people or names[b] in people:
                rows[names[a], names[b]] = make_row(maps, self._measures)
        if given[0].instances is not None:  # which objects a majority would have is not known
            return _Compared(rows=rows, tied={})
        every = majority_vote(targets[: len(people)], self.spec)
        self._write(given[0].case_id, targets[: len(people)], every)
        tied = {MAJORITY: self._share(every, void)}
        rest = [majority_vote([*targets[:k], *targets[k + 1 : len(people)]], self.spec) for k in range(len(people))]
        if len(people) > 2:
            tied[REST] = float(np.mean([self._share(one, void) for one in rest]))
        for place, name in enumerate(names):
            others = rest[place] if place < len(people) else every
            for kind, target in ((MAJORITY, every), (REST, others)):
                if len(people) > 2 or place >= len(people):
                    maps = replace(given[0], target=target, labels=labels[place], spec=self.spec, kept={})
                    rows[kind, name] = make_row(maps, self._measures)
        return _Compared(rows=rows, tied=tied)

    def _share(self, consensus: NDArray[Any], void: NDArray[np.bool_]) -> float:
        """The share of counted pixels that have no majority."""
        return float((self.spec.is_ignored(consensus) & ~void).sum() / max(1, int((~void).sum())))

    def _write(self, case_id: str, maps: Sequence[NDArray[Any]], majority: NDArray[Any]) -> None:
        for kind in self.job.keys.consensus:
            found = majority if kind == MAJORITY else staple(maps, self.spec)
            place = self.folder / "consensus" / kind
            if found.ndim - self.spec.is_multilabel == 2:
                Writer(place, ExportConfig(labels=True, labels_format="png"), self.spec).write(case_id, found)
            else:
                make_folder(place)
                write_npy(place / f"{case_id}.npy", found)
