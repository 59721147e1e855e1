"""Compares the masks of several readers in pairs and with their majority. No torch."""

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from segmeter.checks import expected, some
from segmeter.classes import ClassSpec
from segmeter.data.labels_config import LabelsConfig
from segmeter.data.pairing import Files, twice_problems
from segmeter.data.sample import Reading
from segmeter.errors import ConfigError, DataError, InputError
from segmeter.evaluation.compare import short_names
from segmeter.evaluation.decisions.config import AgreeKeys
from segmeter.evaluation.drive import MemoryBudget, collect
from segmeter.evaluation.mask_pairs import MaskPair, limit_of, mask_files
from segmeter.evaluation.pair_maps import PairLoader
from segmeter.export.config import ExportConfig
from segmeter.export.formats import write_npy
from segmeter.export.writer import Writer
from segmeter.files import make_folder, safe_id
from segmeter.metrics.arrays import json_number
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.measures.protocol import CaseMaps, Measure, build_measures
from segmeter.metrics.measures.row import make_row
from segmeter.metrics.summary.agreement import (
    MAJORITY,
    REST,
    Compared,
    Readings,
    agreement_scores,
    lay_out_readings,
    majority_vote,
    staple,
    summarise_agreement,
)
from segmeter.records import read_run

_BYTES = 24  # Memory per pixel and reader: labels, votes and the temporary arrays of a comparison


@dataclass(frozen=True, kw_only=True)
class AgreeJob:
    """The masks of several readers, and how they are compared.

    Parameters
    ----------
    readers, models
        Their folders by name. Models are compared with readers, but don't count in majorities.
    cases
        From `find_cases`: case id to the files of each reader and model, in the order of their names.
    left_out
        Cases that not every reader has.
    reading
        How masks are read. Its spec needs no ignored value, as the comparison adds one, see `spec`.
    metrics
        The metrics to compute.
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
        """The classes to compare by, with an ignored value even if masks may not contain one."""
        return self.reading.spec.with_ignored()


def check_readers(data: LabelsConfig) -> None:
    """Refuse settings that treat predictions and references differently, as readers have no sides.

    Raises
    ------
    ConfigError
        One line for each.
    """
    rules = [
        ("invalid", data.invalid == "count", "to be error, as every value of a reader is a class"),
        ("instances", isinstance(data.instances, str), "to be true or false, as readers have no sides"),
        ("resample", data.resample != "refuse", "to be refuse, as no reader's grid is the reference"),
    ]
    if problems := [expected("config", f"data.{key}", rule, getattr(data, key)) for key, wrong, rule in rules if wrong]:
        raise ConfigError(problems)


def name_readers(keys: AgreeKeys) -> tuple[dict[str, Path], dict[str, Path]]:
    """Name readers and models by their folders.

    Folders are readers. Runs are models if there are folders too, and readers otherwise; `models` names others.

    Raises
    ------
    InputError
        There are fewer than two readers, a folder is given twice, or a model is not among the folders and runs.
    """
    folders = [*keys.folders, *keys.runs]
    resolved = [folder.resolve() for folder in folders]
    names = short_names(resolved)
    problems = list[str]()
    if twice := sorted({str(folder) for folder in resolved if resolved.count(folder) > 1}):
        problems.append(expected("agree", "folders and runs", "to be different places", f"{some(twice)} twice"))
    models = set(keys.models) or set(names[len(keys.folders) :] if keys.folders else ())
    if unknown := sorted(models - set(names)):
        problems.append(expected("agree", "models", f"to be among {', '.join(names)}", some(unknown)))
    named = dict(zip(names, folders, strict=True))
    readers = {name: folder for name, folder in named.items() if name not in models}
    if len(readers) < 2 and not problems:
        rule, remedy = "to name two readers or more", "Write folders=[A,B,C], or runs=[A,B]."
        problems.append(expected("agree", "folders", rule, some(readers) if readers else "none", remedy))
    if problems:
        raise InputError(problems)
    return readers, {name: folder for name, folder in named.items() if name in models}


def masks_of_run(folder: Path) -> Path:
    """Find the label maps of a finished run of eval or predict.

    Raises
    ------
    DataError
        The run is of another kind, kept no label maps, or is not finished.
    InputError
        Its run.json is damaged.
    """
    masks = folder / "predictions" / "labels"
    if not masks.is_dir():
        remedy = "Give runs of eval or predict that kept their label maps; folders=[...] takes any folders of masks."
        raise DataError(expected("agree", "runs", "to hold predictions/labels", folder, remedy))
    try:
        state = read_run(folder).get("state")
    except FileNotFoundError:
        state = "without run.json"
    if state != "done":
        remedy = f"Finish it with resume={folder}, or give its label maps as folders=[{masks}]."
        raise DataError(expected("agree", "runs", "to be finished", f"{folder} ({state})", remedy))
    return masks


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
    masks: dict[str, list[Files]] = {name: mask_files("agree", place, name, spec) for name, place in places.items()}
    problems = [line for name, planes in masks.items() for files in planes for line in twice_problems(files, name)]
    stems = sorted({stem for planes in masks.values() for files in planes for stem in files}, key=safe_id)
    rule, remedy = "to have a mask of every case", "missing=leave_out compares the cases that all readers have."
    left_out = set[str]()
    for name, planes in masks.items():
        lacking = [stem for stem in stems if not all(stem in files for files in planes)]
        left_out |= {*lacking}
        if lacking and missing == "error":
            problems.append(expected("agree", f"reader {name!r}", rule, f"none of {some(lacking)}", remedy))
    if missing != "error" and len(left_out) == len(stems):
        problems.append(expected("agree", "folders", "to share a case", "none in all of them"))
    if problems:
        raise DataError(problems)
    shared = [stem for stem in stems if stem not in left_out]
    cases = {safe_id(stem): [tuple(files[stem][0] for files in planes) for planes in masks.values()] for stem in shared}
    return cases, sorted(left_out)


def agree(job: AgreeJob, folder: Path) -> tuple[dict[str, Any], pa.Table]:
    """Compare all readers, and write the consensus maps into a folder.

    Returns
    -------
    tuple
        The content of agree.json, see `segmeter.metrics.summary.agreement.Agreement`, with ``places`` of the readers,
        ``left_out`` and ``consensus``; and the scores of each comparison of each case.

    Raises
    ------
    DataError
        Files can't be read or don't fit together, one line each.
    """
    measures = build_measures(job.metrics, job.spec)
    work = partial(_compare_case, job, folder, PairLoader(job.reading, job.metrics.spacing), MemoryBudget(), measures)
    rows = defaultdict[Compared, list[CaseRow]](list)
    tied = defaultdict[str, list[float]](list)
    for compared, shares in collect(work, [*job.cases.items()], what="comparing"):
        for key, row in compared.items():
            rows[key].append(row)
        for kind, share in shares.items():
            tied[kind].append(share)
    means = {kind: json_number(np.mean(tied[kind])) if tied[kind] else None for kind in (MAJORITY, REST)}
    readings = Readings(readers=list(job.readers), models=list(job.models), rows=rows, tied=means)
    boards = lay_out_readings(readings, job.spec, job.metrics)
    tables = []
    for (reference, reader), board in boards.items():
        case_ids = board.run.case_ids
        count = len(case_ids)
        columns = {"case_id": case_ids, "reference": [reference] * count, "reader": [reader] * count}
        scores = {name: pa.array(board.values(name), from_pandas=True) for name in agreement_scores(board)}
        tables.append(pa.table(columns | scores))
    places = {name: str(place) for name, place in (*job.readers.items(), *job.models.items())}
    facts = {"places": places, "left_out": list(job.left_out), "consensus": list(job.keys.consensus)}
    return summarise_agreement(readings, boards) | facts, pa.concat_tables(tables)


def _compare_case(
    job: AgreeJob,
    folder: Path,
    loader: PairLoader,
    budget: MemoryBudget,
    measures: Sequence[Measure],
    case: tuple[str, list[tuple[Path, ...]]],
) -> tuple[dict[Compared, CaseRow], dict[str, float]]:
    """Make the rows of one case, and the shares of its pixels without a majority."""
    case_id, files = case
    paths = tuple(path for planes in files for path in planes)
    pair = MaskPair(case_id=case_id, stem=case_id, references=paths, predictions=())
    in_time = limit_of(pair, job.reading.timeout_s)
    pixels, _ = in_time(partial(loader.find_size, pair))  # large maps are read whole too
    remedy = "Free memory, or cut the masks into tiles."
    with budget.hold(pixels * len(paths) * _BYTES, what=f"case {case_id!r}", remedy=remedy):
        maps, spacing = in_time(partial(loader.load_annotations_of, case_id, files))
        rows, tied = _compare(job, folder, measures, maps)
    if spacing.spacing:
        rows = {key: replace(row, spacing=spacing.spacing, unit=spacing.unit) for key, row in rows.items()}
    return rows, tied


def _compare(
    job: AgreeJob, folder: Path, measures: Sequence[Measure], maps: list[CaseMaps]
) -> tuple[dict[Compared, CaseRow], dict[str, float]]:
    """Measure every pair, and each map against the majority of all readers and the majority of all other readers."""
    spec = job.spec
    names = [*job.readers, *job.models]
    num_readers = len(job.readers)
    ignored = np.any([spec.is_ignored(case.target) for case in maps], axis=0)
    targets = [spec.ignoring(case.target, ignored) for case in maps]
    labels = [np.where(ignored, 0, case.target).astype(spec.label_dtype) for case in maps]
    rows: dict[Compared, CaseRow] = {}

    def measure(reference: str, target: NDArray[Any], b: int, a: int | None = None) -> None:
        compared = replace(
            maps[0],
            target=target,
            labels=labels[b],
            spec=spec,
            kept={},
            target_instances=None if a is None else maps[a].instances,
            instances=None if a is None else maps[b].instances,
        )
        rows[reference, names[b]] = make_row(compared, measures)

    for a, b in itertools.permutations(range(len(maps)), 2):
        if min(a, b) < num_readers:
            measure(names[a], targets[a], b, a)
    if maps[0].instances is not None:  # a majority of pixels has no objects
        return rows, {}
    majority = majority_vote(targets[:num_readers], spec)
    others = [majority_vote([*targets[:k], *targets[k + 1 : num_readers]], spec) for k in range(num_readers)]
    for kind in job.keys.consensus:
        consensus = majority if kind == MAJORITY else staple(targets[:num_readers], spec)
        kind_folder = folder / "consensus" / kind
        if consensus.ndim - spec.is_multilabel == 2:
            Writer(kind_folder, ExportConfig(labels=True, labels_format="png"), spec).write(maps[0].case_id, consensus)
        else:
            make_folder(kind_folder)
            write_npy(kind_folder / f"{maps[0].case_id}.npy", consensus)
    for b in range(len(maps)):
        if num_readers > 2 or b >= num_readers:
            measure(MAJORITY, majority, b)
            measure(REST, others[b] if b < num_readers else majority, b)
    # The shares of the counted pixels that have no majority
    counted = ~ignored
    shares = [
        float((spec.is_ignored(votes) & counted).sum() / max(1, int(counted.sum()))) for votes in (majority, *others)
    ]
    return rows, {MAJORITY: shares[0]} | ({REST: float(np.mean(shares[1:]))} if num_readers > 2 else {})
