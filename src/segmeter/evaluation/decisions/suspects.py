"""Ranks the objects whose reference is likely wrong, and the images whose labels would teach a model most. No torch."""

import json
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field
from scipy.special import xlogy

from segmeter.checks import expected, some
from segmeter.classes import ClassSpec
from segmeter.errors import DataError, InputError
from segmeter.evaluation.decisions.held_out import HeldOut, find_probs, read_held_out, read_probs
from segmeter.evaluation.drive import collect
from segmeter.export.objects import encode_geojson
from segmeter.files import make_folder, write_bytes, write_json
from segmeter.metrics.arrays import FloatArray, divide, json_number_or_inf
from segmeter.metrics.objects.planted import SHARE, find_chances, match_planted, plant_errors
from segmeter.metrics.objects.suspects import CROPS, DRAWN, KINDS, Kind, Suspect, confidence_sums, find_suspects
from segmeter.records import Form

SCHEMA = 1  # of suspects.json and label_next.json
COCO, OUTLINES = "suspects.coco.json", "suspects"
ROUNDS = 3  # copies of a reference with planted errors
_LISTED, _DRAWN = 300, 60  # suspects in suspects.json and in the files of annotation tools, and those with a crop
_CELLS = 4  # squares per axis, whose mean probabilities describe an image
_MOST_PIXELS = 1 << 31
_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("case_id", "kind", "given", "suggested")),
        ("score", pa.float64()),
        *((name, pa.int64()) for name in ("top", "left", "height", "width", "size")),
        ("run", pa.string()),
    ]
)
Job = tuple[HeldOut, int]  # a run, and the index of a case in its data set
Row = Mapping[str, Any]  # of the table of suspects
Drawing = Callable[[NDArray[Any], NDArray[Any], NDArray[Any], Row, ClassSpec], bytes]
"""Draws a suspect from image, reference, the model's labels, row and classes."""


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


def find_in_runs(
    runs: Sequence[HeldOut], seed: int, folder: Path, draw: Drawing | None = None
) -> tuple[dict[str, Any], pa.Table]:
    """Rank the suspects of all runs, and write outlines, crops and the COCO file into a folder.

    Cases are read one after another, and only numbers stay in memory. Scores become chances by planted errors: the same
    search runs on copies of the references in which a share of the objects was changed.

    Returns
    -------
    tuple
        The content of suspects.json, see `Suspects`, and the table of all suspects, the likeliest first.

    Raises
    ------
    InputError
        Two runs have a case in common, or differ in their classes.
    DataError
        Files can't be read or don't fit together, one line each.
    """
    _check_together(runs)
    confidence, jobs = usual_confidence(runs), _jobs(runs)
    studied = list(collect(partial(_study, confidence=confidence, seed=seed), jobs, what="studying"))
    hits, errors = ([pair for each in studied for pair in each[place]] for place in (1, 2))
    rows = _rank(pa.concat_tables([_SCHEMA.empty_table(), *(each[0] for each in studied)]), _by_kind(hits))
    first = rows.slice(0, _LISTED).to_pylist()
    _write_files(folder, jobs, first, confidence, draw)
    kinds, chances, told = rows["kind"].to_numpy(), rows["chance"].to_numpy(), dict[str, dict[str, Any]]()
    for kind, known in _by_kind(errors).items():
        own = kinds == kind
        told[kind] = {"found": int(own.sum()), "expected": float(chances[own].sum()), "planted": len(known)}
        told[kind] |= {"recovered": sum(known) / len(known) if known else None}
    result = {"schema": SCHEMA, "n_cases": len(jobs), "classes": list(runs[0].dataset.spec.names)}
    result |= {"runs": [str(run.folder) for run in runs], "assumed_share": SHARE, "kinds": told}
    listed = [{key: value for key, value in row.items() if key != "run"} for row in first]
    return result | {"suspects": listed}, rows


def _by_kind(pairs: Sequence[tuple[Kind, Any]]) -> dict[Kind, list[Any]]:
    return {kind: [value for each, value in pairs if each == kind] for kind in KINDS}


def _jobs(runs: Sequence[HeldOut]) -> list[Job]:
    return [(run, index) for run in runs for index in range(len(run.dataset))]


def _check_together(runs: Sequence[HeldOut]) -> None:
    first, seen, problems = runs[0].dataset.spec, dict[str, Path](), list[str]()
    for run in runs:
        if run.dataset.spec.names != first.names or run.dataset.spec.task != first.task:
            problems.append(expected("suspects", "runs", "to have the same classes", f"others in {run.folder}"))
        if shared := [case_id for case_id in run.dataset.case_ids if case_id in seen]:
            given = f"{some(shared)} in {seen[shared[0]]} and {run.folder}"
            problems.append(expected("suspects", "runs", "to share no case", given))
        seen |= dict.fromkeys(run.dataset.case_ids, run.folder)
    if problems:
        raise InputError(problems)


def usual_confidence(runs: Sequence[HeldOut]) -> FloatArray:
    """Average the probability (C,) of each class over the pixels of that class in all cases; NaN without any.

    Raises
    ------
    DataError
        Files can't be read or don't fit together, one line each.
    """

    def sums_of(job: Job) -> NDArray[np.float64]:
        _, target, probs = read_held_out(*job)
        return confidence_sums(target, probs, job[0].dataset.spec)

    return divide(*sum(collect(sums_of, _jobs(runs), what="reading probabilities"), np.zeros((2, 1))))


def _study(
    job: Job, *, confidence: FloatArray, seed: int
) -> tuple[pa.Table, list[tuple[Kind, float]], list[tuple[Kind, bool]]]:
    """Return the suspects of a case, the scores of those on planted errors, and which planted errors have one."""
    sample, target, probs = read_held_out(*job)
    spec, case_id = job[0].dataset.spec, sample.case_id
    found = find_suspects(target, probs, spec, instances=sample.instances, confidence=confidence)
    rng = np.random.default_rng([seed, zlib.crc32(case_id.encode("utf-8", "surrogateescape"))])
    scores, known = list[tuple[Kind, float]](), list[tuple[Kind, bool]]()
    for _ in range(ROUNDS):
        changed, instances, errors = plant_errors(target, spec, rng, share=SHARE, instances=sample.instances)
        there = find_suspects(changed, probs, spec, instances=instances, confidence=confidence)
        hits, recovered = match_planted(there, errors, target.shape)
        scores += [(one.kind, one.score) for one, hit in zip(there, hits, strict=True) if hit]
        known += [(error.kind, bool(hit)) for error, hit in zip(errors, recovered, strict=True)]
    rows = []
    for one in found:
        facts = (case_id, one.kind, spec.names[one.given], spec.names[one.suggested], one.score)
        place = (one.top, one.left, *one.mask.shape, one.size, str(job[0].folder))
        rows.append(dict(zip(_SCHEMA.names, facts + place, strict=True)))
    return pa.Table.from_pylist(rows, _SCHEMA), scores, known


def _rank(rows: pa.Table, scores: Mapping[Kind, list[float]]) -> pa.Table:
    """Give each row its chance and the unusualness of its size, and put the likeliest first."""
    kinds, given, suggested = (rows[name].to_numpy() for name in ("kind", "given", "suggested"))
    found, chance, unusual = rows["score"].to_numpy(), np.zeros(len(rows)), np.zeros(len(rows))
    for kind in KINDS:
        mine = kinds == kind
        chance[mine] = find_chances(found[mine], np.array(scores[kind]), ROUNDS)
    named, logs = np.where(kinds == "missing", suggested, given), np.log(np.maximum(rows["size"].to_numpy(), 1))
    for name in set(named):  # distance of a size from the median of its class, in robust standard deviations of its log
        away = logs[named == name] - np.median(logs[named == name])
        spread = 1.4826 * np.median(np.abs(away))
        unusual[named == name] = away / spread if spread > 0 else 0.0
    ranked = rows.append_column("chance", [chance]).append_column("size_z", [unusual])
    keys = [("chance", "descending"), ("score", "descending"), *((k, "ascending") for k in ("case_id", "top", "left"))]
    return ranked.sort_by(keys).append_column("rank", [np.arange(1, len(rows) + 1)])


def regions_of_case(
    run: HeldOut, index: int, rows: Sequence[Row], confidence: FloatArray
) -> tuple[Any, NDArray[Any], list[Suspect]]:
    """Read a case again, with the regions of its rows, in their order."""
    sample, target, probs = read_held_out(run, index)
    given: dict[str, Any] = {"instances": sample.instances, "confidence": confidence}
    found = find_suspects(target, probs, run.dataset.spec, **given)
    known = {(one.kind, one.top, one.left, one.mask.shape, one.score): one for one in found}
    keys = [(row["kind"], row["top"], row["left"], (row["height"], row["width"]), row["score"]) for row in rows]
    return sample, probs, [known[key] for key in keys]


def _write_files(
    folder: Path, jobs: Sequence[Job], rows: Sequence[Row], confidence: FloatArray, draw: Drawing | None
) -> None:
    """Write for each case one GeoJSON file, for QuPath; for all one COCO data set; and the crops of the first rows."""
    by_case = defaultdict[str, list[Row]](list)
    for row in rows:
        by_case[row["case_id"]].append(row)
    images, annotations = list[dict[str, Any]](), list[dict[str, Any]]()
    make_folder(folder / OUTLINES)
    make_folder(folder / CROPS)
    for run, index in jobs:
        case_id, spec = run.dataset.case_ids[index], run.dataset.spec
        if case_id not in by_case:
            continue
        sample, probs, regions = regions_of_case(run, index, by_case[case_id], confidence)
        labels = probs.argmax(axis=0) if len(probs) > 1 else probs[0] > 0.5
        for row in by_case[case_id]:
            if draw is not None and row["rank"] <= _DRAWN:
                picture = draw(sample.image, sample.target, labels.astype(spec.label_dtype), row, spec)
                write_bytes(folder / CROPS / f"{row['rank']}.webp", picture)
        kinds, numbers = np.zeros((2, *sample.image.shape[:2]), np.int32)
        for number, one in reversed([*enumerate(regions, start=1)]):  # the likeliest stay on top
            kinds[one.box][one.mask] = 1 + KINDS.index(one.kind)
            numbers[one.box][one.mask] = number
        outlines = encode_geojson(case_id, kinds.astype(np.uint8), numbers, DRAWN)
        write_bytes(folder / OUTLINES / f"{case_id}.geojson", outlines)
        size = {"height": sample.image.shape[0], "width": sample.image.shape[1]}
        images.append({"id": len(images) + 1, "file_name": run.dataset.pairs[index].image.name, **size})
        for feature in json.loads(outlines)["features"]:
            chance = by_case[case_id][feature["id"] - 1]["chance"]
            own = {"id": len(annotations) + 1, "image_id": len(images), "score": chance}
            annotations.append(_annotation(feature) | own)
    names = [{"id": number, "name": name} for number, name in enumerate(DRAWN.names) if number]
    write_json(folder / COCO, {"images": images, "categories": names, "annotations": annotations})


def _annotation(feature: Mapping[str, Any]) -> dict[str, Any]:
    """Turn a GeoJSON feature into COCO's polygons, which more tools read than its run lengths.

    A line joins each hole to its outline, as a polygon of COCO has no holes.
    """
    facts, (form, found) = feature["properties"], feature["geometry"].values()
    parts = found if form == "MultiPolygon" else [found]  # each a ring, then its holes
    polygons = [np.concatenate([part for ring in rings for part in (ring, rings[0][:1])]) for rings in parts]
    first, last = (each(np.concatenate(polygons), axis=0) for each in (np.min, np.max))
    return {
        "category_id": facts["label"],
        "iscrowd": 0,
        "area": facts["pixels"],
        "bbox": [*first.tolist(), *(last - first).tolist()],
        "segmentation": [polygon.ravel().tolist() for polygon in polygons],
    }


class LabelNext(Form):
    """label_next.json: the result of `segmeter suspects order=label_next`."""

    schema_: int = Field(SCHEMA, alias="schema")
    by: str
    """"disagreement" of several runs, or "entropy" of one."""
    images: list[dict[str, Any]]
    """The best first: ``rank, case_id``, ``gain`` (nats per pixel) and ``distance`` to the nearest image above it."""


def rank_images(runs: Sequence[Path]) -> dict[str, Any]:
    """Rank the images of runs of predict as the content of label_next.json.

    Raises
    ------
    DataError
        A run kept no probabilities, the runs differ in their images, or a file can't be read.
    """
    files = [find_probs("suspects", folder) for folder in runs]
    ids = list(files[0])
    if any(each.keys() != files[0].keys() for each in files):
        other = sorted(set().union(*files) - set(ids).intersection(*files[1:]))
        raise DataError(expected("suspects", "runs", "to predict the same images", f"others ({some(other)})"))
    found = collect(lambda case_id: _describe([each[case_id] for each in files]), ids, what="reading")
    gains, places = zip(*found, strict=True)
    order, distances = cover(np.array(gains), np.stack(places))
    images = [
        {"rank": rank, "case_id": ids[i], "gain": float(gains[i]), "distance": json_number_or_inf(distance)}
        for rank, (i, distance) in enumerate(zip(order, distances, strict=True), start=1)
    ]
    return {"schema": SCHEMA, "by": "disagreement" if len(runs) > 1 else "entropy", "images": images}


def _describe(paths: Sequence[Path]) -> tuple[float, FloatArray]:
    """Return the gain of an image, and the mean probabilities of its squares."""
    members = [read_probs(path, max_pixels=_MOST_PIXELS) for path in paths]
    if len({each.shape for each in members}) > 1:
        raise DataError(expected(str(paths[0]), "probabilities", "to have one size in all runs", "several"))
    mean = np.mean(members, axis=0)
    gain = _entropy(mean) - (float(np.mean([_entropy(each) for each in members])) if len(members) > 1 else 0.0)
    cells = [cell for rows in np.array_split(mean, _CELLS, axis=1) for cell in np.array_split(rows, _CELLS, axis=2)]
    return gain, np.concatenate([(cell if cell.size else mean).mean(axis=(1, 2)) for cell in cells])


def _entropy(probs: NDArray[Any]) -> float:
    """Average the entropy over the pixels, in nats. Channels that don't sum to 1 are independent classes, present or
    not.
    """
    rounding = 1e-3 + len(probs) / 500  # of one byte per channel
    alone = len(probs) == 1 or float(np.abs(probs.sum(axis=0) - 1).max(initial=0)) > rounding
    every = np.concatenate([1 - probs, probs]) if alone else probs
    return float(-xlogy(every, every).sum(axis=0).mean())


def cover(gains: FloatArray, places: FloatArray) -> tuple[list[int], list[float]]:
    """Choose images one after another, by the product of gain and distance to those already chosen.

    Parameters
    ----------
    gains : (N,)
    places : (N, D)

    Returns
    -------
    The order, and each image's distance to the nearest one before it, which is inf for the first.

    Examples
    --------
    Of two equal images with large gains the second comes last:

    >>> cover(np.array([3.0, 2.9, 1.0]), np.array([[0.0], [0.0], [1.0]]))[0]
    [0, 2, 1]
    """
    nearest, left = np.full(len(gains), np.inf), np.ones(len(gains), bool)
    order, distances, weight = list[int](), list[float](), gains
    for _ in range(len(gains)):
        chosen = int(np.flatnonzero(left)[np.argmax(weight[left])])
        order.append(chosen)
        distances.append(float(nearest[chosen]))
        left[chosen] = False
        nearest = np.minimum(nearest, np.linalg.norm(places - places[chosen], axis=1))
        weight = gains * nearest
    return order, distances
