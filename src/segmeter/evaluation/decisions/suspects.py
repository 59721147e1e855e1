"""Ranks the objects whose reference is likely wrong, from the probabilities of models that never saw them. No torch."""

import json
import zlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import Field

from segmeter.checks import expected, some
from segmeter.classes import ClassSpec
from segmeter.errors import InputError
from segmeter.evaluation.decisions.config import SuspectsKeys
from segmeter.evaluation.decisions.held_out import HeldOut, read_held_out
from segmeter.evaluation.drive import collect
from segmeter.export.objects import encode_coco, encode_geojson
from segmeter.files import atomic_write, make_folder, write_bytes, write_json
from segmeter.metrics.arrays import FloatArray, divide
from segmeter.metrics.objects.planted import SHARE, calibrate, chance_of, match_planted, plant_errors
from segmeter.metrics.objects.suspects import DRAWN, KINDS, Suspect, confidence_sums, find_suspects
from segmeter.records import Form

SCHEMA = 1  # of suspects.json
TABLE, COCO, OUTLINES = "suspects.parquet", "suspects.coco.json", "suspects"
ROUNDS = 3  # copies of a reference with planted errors
_TEXTS, _WHOLE = ("case_id", "kind", "given", "suggested"), ("top", "left", "height", "width", "size")
_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in _TEXTS),
        ("score", pa.float64()),
        *((name, pa.int64()) for name in _WHOLE),
        ("run", pa.string()),
    ]
)


class Suspects(Form):
    """suspects.json: the result of `segmeter suspects`."""

    schema_: int = Field(SCHEMA, alias="schema")
    n_cases: int
    classes: list[str]
    assumed_share: float
    """Share of wrong objects that every chance assumes."""
    kinds: dict[str, dict[str, Any]]
    """By kind: ``found``, ``expected`` (sum of chances), ``planted`` errors of the calibration and ``recovered``, the
    share of them that has a suspect."""
    suspects: list[dict[str, Any]]
    """The first ones: ``rank, case_id, kind, given, suggested, chance, score``, the box (``top, left, height, width``,
    pixels), ``size`` (pixels) and ``size_z``, how unusual that is for its class."""


Job = tuple[HeldOut, int]  # a run, and the place of a case in its data set


@dataclass(frozen=True, kw_only=True, eq=False)
class _Studied:
    """The suspects of a case, the scores of planted errors by kind, and how many were planted and found."""

    rows: pa.Table
    scores: dict[str, list[float]]
    planted: Counter[str]
    recovered: Counter[str]


def find_in_runs(runs: Sequence[HeldOut], keys: SuspectsKeys, seed: int, folder: Path) -> dict[str, Any]:
    """Rank the suspects of all runs, and write suspects.parquet, outlines and the COCO file into a folder.

    Cases are studied one after another; only numbers stay in memory. Scores become chances by planted errors: the same
    search runs on copies of the references in which a share of the objects was changed.

    Raises
    ------
    InputError
        Two runs have a case in common, or differ in their classes.
    DataError
        Files can't be read or don't fit together, one line each.
    """
    _check_together(runs)
    confidence, jobs = usual_confidence(runs), _jobs(runs)
    tables, scores = [_SCHEMA.empty_table()], defaultdict[str, list[float]](list)
    planted, recovered = Counter[str](), Counter[str]()
    for one in collect(partial(_study, confidence=confidence, seed=seed), jobs, what="studying"):
        tables.append(one.rows)
        planted += one.planted
        recovered += one.recovered
        for kind, found in one.scores.items():
            scores[kind] += found
    rows = _rank(pa.concat_tables(tables), scores)
    with atomic_write(folder / TABLE) as file:
        pq.write_table(rows, file)
    first = rows.slice(0, keys.exported).to_pylist()
    _write_outlines(folder, runs, first, confidence)
    kinds, chances = rows["kind"].to_numpy(), rows["chance"].to_numpy()
    return {
        "schema": SCHEMA,
        "n_cases": len(jobs),
        "classes": list(runs[0].dataset.spec.names),
        "runs": [str(run.folder) for run in runs],
        "assumed_share": SHARE,
        "kinds": {
            kind: {
                "found": int((kinds == kind).sum()),
                "expected": float(chances[kinds == kind].sum()),
                "planted": planted[kind],
                "recovered": recovered[kind] / planted[kind] if planted[kind] else None,
            }
            for kind in KINDS
        },
        "suspects": [{key: value for key, value in row.items() if key != "run"} for row in first],
    }


def _jobs(runs: Sequence[HeldOut]) -> list[Job]:
    return [(run, index) for run in runs for index in range(len(run.dataset))]


def _check_together(runs: Sequence[HeldOut]) -> None:
    first, seen, problems = runs[0].dataset.spec, dict[str, Path](), list[str]()
    for run in runs:
        if run.dataset.spec.names != first.names or run.dataset.spec.task != first.task:
            problems.append(expected("suspects", "runs", "to have the same classes", f"others in {run.folder}"))
        if shared := [case_id for case_id in run.dataset.case_ids if case_id in seen]:
            rule = "to share no case"
            problems.append(expected("suspects", "runs", rule, f"{some(shared)} in {seen[shared[0]]} and {run.folder}"))
        seen |= dict.fromkeys(run.dataset.case_ids, run.folder)
    if problems:
        raise InputError(problems)


def usual_confidence(runs: Sequence[HeldOut]) -> FloatArray:
    """The mean probability (C,) of each class where the reference has it, over all cases; NaN where none has it.

    Raises
    ------
    DataError
        Files can't be read or don't fit together, one line each.
    """
    total = np.zeros((2, runs[0].dataset.spec.num_classes))
    for sums in collect(_confidence, _jobs(runs), what="reading probabilities"):
        total += sums
    return divide(*total)


def _confidence(job: Job) -> NDArray[np.float64]:
    _, target, probs = read_held_out(*job)
    return confidence_sums(target, probs, job[0].dataset.spec)


def _study(job: Job, *, confidence: FloatArray, seed: int) -> _Studied:
    sample, target, probs = read_held_out(*job)
    spec, case_id = job[0].dataset.spec, sample.case_id
    found = find_suspects(target, probs, spec, instances=sample.instances, confidence=confidence)
    rows = [[case_id, one.kind, *_said(one, spec), str(job[0].folder)] for one in found]
    rng = np.random.default_rng([seed, zlib.crc32(case_id.encode("utf-8", "surrogateescape"))])
    scores, planted, recovered = defaultdict[str, list[float]](list), Counter[str](), Counter[str]()
    for _ in range(ROUNDS):
        changed, instances, errors = plant_errors(target, spec, rng, share=SHARE, instances=sample.instances)
        there = find_suspects(changed, probs, spec, instances=instances, confidence=confidence)
        hits, known = match_planted(there, errors, target.shape)
        for one in (one for one, hit in zip(there, hits, strict=True) if hit):
            scores[one.kind].append(one.score)
        planted.update(error.kind for error in errors)
        recovered.update(error.kind for error, hit in zip(errors, known, strict=True) if hit)
    table = pa.Table.from_pylist([dict(zip(_SCHEMA.names, row, strict=True)) for row in rows], _SCHEMA)
    return _Studied(rows=table, scores=scores, planted=planted, recovered=recovered)


def _said(one: Suspect, spec: ClassSpec) -> list[Any]:
    names = [spec.names[one.given], spec.names[one.suggested]]
    return [*names, one.score, one.top, one.left, *one.mask.shape, one.size]


def _rank(rows: pa.Table, scores: Mapping[str, list[float]]) -> pa.Table:
    """Give each row its chance and the unusualness of its size, and put the likeliest first."""
    kinds, given, suggested = (rows[name].to_numpy() for name in ("kind", "given", "suggested"))
    found, chance, unusual = rows["score"].to_numpy(), np.zeros(len(rows)), np.zeros(len(rows))
    for kind in KINDS:
        mine = kinds == kind
        chance[mine] = chance_of(found[mine], *calibrate(found[mine], np.array(scores[kind]), ROUNDS))
    named, logs = np.where(kinds == "missing", suggested, given), np.log(np.maximum(rows["size"].to_numpy(), 1))
    for name in set(named):  # how far a size is from the median of its class, in robust standard deviations of its log
        away = logs[named == name] - np.median(logs[named == name])
        spread = 1.4826 * np.median(np.abs(away))
        unusual[named == name] = away / spread if spread > 0 else 0.0
    ranked = rows.append_column("chance", [chance]).append_column("size_z", [unusual])
    keys = [("chance", "descending"), ("score", "descending"), *((k, "ascending") for k in ("case_id", "top", "left"))]
    return ranked.sort_by(keys).append_column("rank", [np.arange(1, len(rows) + 1)])


def regions_of_case(
    run: HeldOut, index: int, rows: Sequence[Mapping[str, Any]], confidence: FloatArray
) -> tuple[Any, NDArray[Any], list[Suspect]]:
    """Read a case again, with the regions of its rows, in their order."""
    sample, target, probs = read_held_out(run, index)
    given: dict[str, Any] = {"instances": sample.instances, "confidence": confidence}
    found = find_suspects(target, probs, run.dataset.spec, **given)
    known = {(one.kind, one.top, one.left, one.mask.shape, one.score): one for one in found}
    keys = [(row["kind"], row["top"], row["left"], (row["height"], row["width"]), row["score"]) for row in rows]
    return sample, probs, [known[key] for key in keys]


def _write_outlines(
    folder: Path, runs: Sequence[HeldOut], rows: Sequence[Mapping[str, Any]], confidence: FloatArray
) -> None:
    """Write one GeoJSON file per case, for QuPath, and one COCO data set, for CVAT and Label Studio."""
    by_case = defaultdict[str, list[Mapping[str, Any]]](list)
    for row in rows:
        by_case[row["case_id"]].append(row)
    images, annotations = list[dict[str, Any]](), list[dict[str, Any]]()
    make_folder(folder / OUTLINES)
    for run in runs:
        for index, case_id in enumerate(run.dataset.case_ids):
            if case_id not in by_case:
                continue
            sample, _, regions = regions_of_case(run, index, by_case[case_id], confidence)
            kinds, numbers = np.zeros((2, *sample.image.shape[:2]), np.int32)
            for number, one in reversed([*enumerate(regions, start=1)]):  # the likeliest stay on top
                kinds[one.box][one.mask] = 1 + KINDS.index(one.kind)
                numbers[one.box][one.mask] = number
            maps = (kinds.astype(np.uint8), numbers, DRAWN)
            write_bytes(folder / OUTLINES / f"{case_id}.geojson", encode_geojson(case_id, *maps))
            size = {"height": sample.image.shape[0], "width": sample.image.shape[1]}
            images.append({"id": len(images) + 1, "file_name": run.dataset.pairs[index].image.name, **size})
            for entry in json.loads(encode_coco(case_id, *maps)):
                chance = by_case[case_id][entry["id"] - 1]["chance"]
                own = {"id": len(annotations) + 1, "image_id": len(images), "iscrowd": 0, "score": chance}
                annotations.append({**entry, **own})
    names = [{"id": number, "name": name} for number, name in enumerate(DRAWN.names) if number]
    write_json(folder / COCO, {"images": images, "categories": names, "annotations": annotations})
