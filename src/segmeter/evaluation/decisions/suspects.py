"""Ranks the objects whose reference is likely wrong, from the probabilities of models that never saw them. No torch."""

import json
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
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
from segmeter.errors import DataError, InputError
from segmeter.evaluation.decisions.config import SuspectsKeys
from segmeter.evaluation.decisions.held_out import HeldOut, read_held_out
from segmeter.export.objects import encode_coco, encode_geojson
from segmeter.files import atomic_write, make_folder, write_bytes, write_json
from segmeter.metrics.arrays import FloatArray, divide
from segmeter.metrics.objects.planted import SHARE, calibrate, chance_of, match_planted, plant_errors
from segmeter.metrics.objects.suspects import DRAWN, KINDS, Suspect, confidence_sums, find_suspects
from segmeter.parallel import map_in_threads
from segmeter.progress import track
from segmeter.records import Form
from segmeter.threads import count_cores

SCHEMA = 1  # of suspects.json
TABLE, COCO, OUTLINES = "suspects.parquet", "suspects.coco.json", "suspects"
ROUNDS = 3  # copies of a reference with planted errors


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


@dataclass(frozen=True, kw_only=True, eq=False)
class _Studied:
    """The suspects of a case as rows, the scores of planted errors by kind, and how many were planted and found."""

    rows: list[dict[str, Any]]
    scores: dict[str, list[float]]
    planted: dict[str, tuple[int, int]]


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
    spec, problems = runs[0].dataset.spec, list[str]()
    rows, scores = list[dict[str, Any]](), defaultdict[str, list[float]](list)
    planted: dict[str, tuple[int, int]] = dict.fromkeys(KINDS, (0, 0))
    confidence = usual_confidence(runs)
    jobs = [(run, index) for run in runs for index in range(len(run.dataset))]
    study = partial(_study, confidence=confidence, seed=seed)
    found = map_in_threads(lambda job: _try(study, *job), jobs, threads=count_cores(), name="suspects")
    for one in track(found, "studying", len(jobs)):
        if isinstance(one, list):
            problems += one
            continue
        rows += one.rows
        for kind in KINDS:
            scores[kind] += one.scores.get(kind, [])
            planted[kind] = planted[kind][0] + one.planted[kind][0], planted[kind][1] + one.planted[kind][1]
    if problems:
        raise DataError(problems)
    _rank(rows, scores, spec)
    columns = list(rows[0]) if rows else ["case_id"]
    with atomic_write(folder / TABLE) as file:
        pq.write_table(pa.table({name: [row[name] for row in rows] for name in columns}), file)
    _write_outlines(folder, runs, rows[: keys.exported], confidence)
    kinds = {
        kind: {
            "found": sum(row["kind"] == kind for row in rows),
            "expected": float(sum(row["chance"] for row in rows if row["kind"] == kind)),
            "planted": planted[kind][0],
            "recovered": planted[kind][1] / planted[kind][0] if planted[kind][0] else None,
        }
        for kind in KINDS
    }
    listed = [{key: value for key, value in row.items() if key != "run"} for row in rows[: keys.exported]]
    return {
        "schema": SCHEMA,
        "n_cases": len(jobs),
        "classes": list(spec.names),
        "runs": [str(run.folder) for run in runs],
        "assumed_share": SHARE,
        "kinds": kinds,
        "suspects": listed,
    }


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
    jobs = [(run, index) for run in runs for index in range(len(run.dataset))]
    total, problems = np.zeros((2, runs[0].dataset.spec.num_classes)), list[str]()
    found = map_in_threads(lambda job: _try(_confidence, *job), jobs, threads=count_cores(), name="confidence")
    for one in track(found, "reading probabilities", len(jobs)):
        if isinstance(one, list):
            problems += one
        else:
            total += one
    if problems:
        raise DataError(problems)
    return divide(*total)


def _confidence(run: HeldOut, index: int) -> NDArray[np.float64]:
    _, target, probs = read_held_out(run, index)
    return confidence_sums(target, probs, run.dataset.spec)


def _try(work: Callable[..., Any], run: HeldOut, *given: Any) -> Any:
    """Do the work of one case; problems of its files are returned, so that those of all cases come together."""
    try:
        return work(run, *given)
    except InputError as error:
        return [*error.problems]


def _study(run: HeldOut, index: int, *, confidence: FloatArray, seed: int) -> _Studied:
    sample, target, probs = read_held_out(run, index)
    spec, case_id = run.dataset.spec, sample.case_id
    found = find_suspects(target, probs, spec, instances=sample.instances, confidence=confidence)
    rng = np.random.default_rng([seed, zlib.crc32(case_id.encode("utf-8", "surrogateescape"))])
    scores, planted = defaultdict[str, list[float]](list), dict[str, tuple[int, int]](dict.fromkeys(KINDS, (0, 0)))
    for _ in range(ROUNDS):
        changed, errors = plant_errors(target, spec, rng, share=SHARE)
        there = find_suspects(changed, probs, spec, confidence=confidence)
        hits = match_planted(there, errors)
        for one in (one for one, hit in zip(there, hits, strict=True) if hit):
            scores[one.kind].append(one.score)
        for error in errors:
            many, recovered = planted[error.kind]
            planted[error.kind] = many + 1, recovered + int(match_planted([error], there)[0])
    rows = [{"case_id": case_id, **_row(one, spec), "run": str(run.folder)} for one in found]
    return _Studied(rows=rows, scores=scores, planted=planted)


def _row(one: Suspect, spec: ClassSpec) -> dict[str, Any]:
    height, width = one.mask.shape
    return {
        "kind": one.kind,
        "given": spec.names[one.given],
        "suggested": spec.names[one.suggested],
        "score": one.score,
        "top": one.top,
        "left": one.left,
        "height": height,
        "width": width,
        "size": one.size,
    }


def _rank(rows: list[dict[str, Any]], scores: Mapping[str, list[float]], spec: ClassSpec) -> None:
    """Give each row its chance and the unusualness of its size, and put the likeliest first."""
    for kind in KINDS:
        mine = [row for row in rows if row["kind"] == kind]
        found = np.array([row["score"] for row in mine])
        chances = chance_of(found, *calibrate(found, np.array(scores[kind]), ROUNDS))
        for row, chance in zip(mine, chances, strict=True):
            row["chance"] = float(chance)
    for name in spec.names:
        mine = [row for row in rows if (row["suggested"] if row["kind"] == "missing" else row["given"]) == name]
        for row, z in zip(mine, _unusual(np.array([row["size"] for row in mine], float)), strict=True):
            row["size_z"] = float(z)
    rows.sort(key=lambda row: (-row["chance"], -row["score"], row["case_id"], row["top"], row["left"]))
    for rank, row in enumerate(rows, start=1):
        row["rank"] = rank


def _unusual(sizes: FloatArray) -> FloatArray:
    """How far the logarithm of each size is from the median, in robust standard deviations."""
    if not len(sizes):
        return sizes
    logs = np.log(np.maximum(sizes, 1))
    away = logs - np.median(logs)
    spread = 1.4826 * np.median(np.abs(away))
    return np.asarray(away / spread if spread > 0 else np.zeros_like(away))


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
