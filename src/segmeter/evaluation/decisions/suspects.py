"""Ranks the objects whose reference is likely wrong, and the images whose labels would teach a model most. No torch."""

import json
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

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

SCHEMA = 1  # The version of suspects.json and label_next.json
COCO, OUTLINES = "suspects.coco.json", "suspects"
ROUNDS = 3  # Errors are planted in this many copies of each reference
_LISTED = 300  # suspects.json and the files for annotation tools list this many suspects
_DRAWN = 60  # The first of them have a crop
_CELLS = 4  # An image is described by the mean probabilities of 4 x 4 cells
_MOST_PIXELS = 1 << 31
_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("case_id", "kind", "given", "suggested")),
        ("score", pa.float64()),
        *((name, pa.int64()) for name in ("top", "left", "height", "width", "size")),
        ("run", pa.string()),
    ]
)
Job = tuple[HeldOut, int]  # A run, and the index of a case in its data set
Row = Mapping[str, Any]  # A row of the table of suspects
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

    Cases are read one after another, and only numbers stay in memory. Planted errors turn scores into chances: the same
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
    confidence = usual_confidence(runs)
    jobs = _jobs(runs)
    studies = list(collect(partial(_study, confidence=confidence, seed=seed), jobs, what="studying"))
    scores = _by_kind([pair for study in studies for pair in study.scores])
    recovered = _by_kind([pair for study in studies for pair in study.recovered])
    rows = _rank(pa.concat_tables([_SCHEMA.empty_table(), *(study.suspects for study in studies)]), scores)
    listed = rows.slice(0, _LISTED).to_pylist()
    _write_files(folder, jobs, listed, confidence, draw)
    kinds = rows["kind"].to_numpy()
    chances = rows["chance"].to_numpy()
    facts = dict[str, dict[str, Any]]()
    for kind, hits in recovered.items():
        of_kind = kinds == kind
        facts[kind] = {"found": int(of_kind.sum()), "expected": float(chances[of_kind].sum()), "planted": len(hits)}
        facts[kind] |= {"recovered": sum(hits) / len(hits) if hits else None}
    result = {"schema": SCHEMA, "n_cases": len(jobs), "classes": list(runs[0].dataset.spec.names)}
    result |= {"runs": [str(run.folder) for run in runs], "assumed_share": SHARE, "kinds": facts}
    suspects = [{key: value for key, value in row.items() if key != "run"} for row in listed]
    return result | {"suspects": suspects}, rows


def _by_kind(pairs: Sequence[tuple[Kind, Any]]) -> dict[Kind, list[Any]]:
    return {kind: [value for own_kind, value in pairs if own_kind == kind] for kind in KINDS}


def _jobs(runs: Sequence[HeldOut]) -> list[Job]:
    return [(run, index) for run in runs for index in range(len(run.dataset))]


def _check_together(runs: Sequence[HeldOut]) -> None:
    spec = runs[0].dataset.spec
    folders = dict[str, Path]()  # by case id
    problems = list[str]()
    for run in runs:
        if run.dataset.spec.names != spec.names or run.dataset.spec.task != spec.task:
            problems.append(expected("suspects", "runs", "to have the same classes", f"others in {run.folder}"))
        if shared := [case_id for case_id in run.dataset.case_ids if case_id in folders]:
            given = f"{some(shared)} in {folders[shared[0]]} and {run.folder}"
            problems.append(expected("suspects", "runs", "to share no case", given))
        folders |= dict.fromkeys(run.dataset.case_ids, run.folder)
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


class _Study(NamedTuple):
    """A case's suspects, the scores of suspects on planted errors, and whether each planted error has a suspect."""

    suspects: pa.Table
    scores: list[tuple[Kind, float]]
    recovered: list[tuple[Kind, bool]]


def _study(job: Job, *, confidence: FloatArray, seed: int) -> _Study:
    """Find the suspects of a case, and of copies with planted errors."""
    run, _ = job
    sample, target, probs = read_held_out(*job)
    spec = run.dataset.spec
    case_id = sample.case_id
    suspects = find_suspects(target, probs, spec, instances=sample.instances, confidence=confidence)
    rng = np.random.default_rng([seed, zlib.crc32(case_id.encode("utf-8", "surrogateescape"))])
    scores = list[tuple[Kind, float]]()
    recovered = list[tuple[Kind, bool]]()
    for _ in range(ROUNDS):
        changed, instances, errors = plant_errors(target, spec, rng, share=SHARE, instances=sample.instances)
        in_copy = find_suspects(changed, probs, spec, instances=instances, confidence=confidence)
        suspect_hits, error_hits = match_planted(in_copy, errors, target.shape)
        scores += [(suspect.kind, suspect.score) for suspect, hit in zip(in_copy, suspect_hits, strict=True) if hit]
        recovered += [(error.kind, bool(hit)) for error, hit in zip(errors, error_hits, strict=True)]
    rows = []
    for suspect in suspects:
        given, suggested = spec.names[suspect.given], spec.names[suspect.suggested]
        box = (suspect.top, suspect.left, *suspect.mask.shape)
        values = (case_id, suspect.kind, given, suggested, suspect.score, *box, suspect.size, str(run.folder))
        rows.append(dict(zip(_SCHEMA.names, values, strict=True)))
    return _Study(pa.Table.from_pylist(rows, _SCHEMA), scores, recovered)


def _rank(rows: pa.Table, scores: Mapping[Kind, list[float]]) -> pa.Table:
    """Give each row its chance and how unusual its size is, and put the likeliest first."""
    kinds, given, suggested, row_scores = (rows[name].to_numpy() for name in ("kind", "given", "suggested", "score"))
    chances = np.zeros(len(rows))
    for kind in KINDS:
        of_kind = kinds == kind
        chances[of_kind] = find_chances(row_scores[of_kind], np.array(scores[kind]), ROUNDS)
    classes = np.where(kinds == "missing", suggested, given)
    log_sizes = np.log(np.maximum(rows["size"].to_numpy(), 1))
    size_z = np.zeros(len(rows))
    for name in set(classes):  # distance of a log size from its class's median, in robust standard deviations
        of_class = classes == name
        distances = log_sizes[of_class] - np.median(log_sizes[of_class])
        spread = 1.4826 * np.median(np.abs(distances))
        size_z[of_class] = distances / spread if spread > 0 else 0.0
    ranked = rows.append_column("chance", [chances]).append_column("size_z", [size_z])
    keys = [("chance", "descending"), ("score", "descending"), *((k, "ascending") for k in ("case_id", "top", "left"))]
    return ranked.sort_by(keys).append_column("rank", [np.arange(1, len(rows) + 1)])


def regions_of_case(
    run: HeldOut, index: int, rows: Sequence[Row], confidence: FloatArray
) -> tuple[Any, NDArray[Any], list[Suspect]]:
    """Read a case again, with the regions of its rows, in their order."""
    sample, target, probs = read_held_out(run, index)
    suspects = find_suspects(target, probs, run.dataset.spec, instances=sample.instances, confidence=confidence)
    by_key = {(each.kind, each.top, each.left, each.mask.shape, each.score): each for each in suspects}
    keys = [(row["kind"], row["top"], row["left"], (row["height"], row["width"]), row["score"]) for row in rows]
    return sample, probs, [by_key[key] for key in keys]


def _write_files(
    folder: Path, jobs: Sequence[Job], rows: Sequence[Row], confidence: FloatArray, draw: Drawing | None
) -> None:
    """Write for each case one GeoJSON file, for QuPath; for all one COCO data set; and the crops of the first rows."""
    by_case = defaultdict[str, list[Row]](list)
    for row in rows:
        by_case[row["case_id"]].append(row)
    images = list[dict[str, Any]]()
    annotations = list[dict[str, Any]]()
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
        for number, suspect in reversed([*enumerate(regions, start=1)]):  # the likeliest stay on top
            kinds[suspect.box][suspect.mask] = 1 + KINDS.index(suspect.kind)
            numbers[suspect.box][suspect.mask] = number
        outlines = encode_geojson(case_id, kinds.astype(np.uint8), numbers, DRAWN)
        write_bytes(folder / OUTLINES / f"{case_id}.geojson", outlines)
        size = {"height": sample.image.shape[0], "width": sample.image.shape[1]}
        images.append({"id": len(images) + 1, "file_name": run.dataset.pairs[index].image.name, **size})
        for feature in json.loads(outlines)["features"]:
            chance = by_case[case_id][feature["id"] - 1]["chance"]
            ids = {"id": len(annotations) + 1, "image_id": len(images), "score": chance}
            annotations.append(_annotation(feature) | ids)
    categories = [{"id": number, "name": name} for number, name in enumerate(DRAWN.names) if number]
    write_json(folder / COCO, {"images": images, "categories": categories, "annotations": annotations})


def _annotation(feature: Mapping[str, Any]) -> dict[str, Any]:
    """Turn a GeoJSON feature into COCO's polygons, which more tools read than its run lengths.

    A line joins each hole to its outline, as a polygon of COCO has no holes.
    """
    facts = feature["properties"]
    geometry_type, coordinates = feature["geometry"].values()
    parts = coordinates if geometry_type == "MultiPolygon" else [coordinates]  # each is a ring, then its holes
    polygons = [np.concatenate([part for ring in rings for part in (ring, rings[0][:1])]) for rings in parts]
    first, last = (corner(np.concatenate(polygons), axis=0) for corner in (np.min, np.max))
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
    if any(probs.keys() != files[0].keys() for probs in files):
        other = sorted(set().union(*files) - set(ids).intersection(*files[1:]))
        raise DataError(expected("suspects", "runs", "to predict the same images", f"others ({some(other)})"))
    described = collect(lambda case_id: _describe([probs[case_id] for probs in files]), ids, what="reading")
    gains, features = zip(*described, strict=True)
    order, distances = cover(np.array(gains), np.stack(features))
    images = [
        {"rank": rank, "case_id": ids[i], "gain": float(gains[i]), "distance": json_number_or_inf(distance)}
        for rank, (i, distance) in enumerate(zip(order, distances, strict=True), start=1)
    ]
    return {"schema": SCHEMA, "by": "disagreement" if len(runs) > 1 else "entropy", "images": images}


def _describe(paths: Sequence[Path]) -> tuple[float, FloatArray]:
    """Return the gain of an image, and the mean probabilities of its cells."""
    members = [read_probs(path, max_pixels=_MOST_PIXELS) for path in paths]
    if len({probs.shape for probs in members}) > 1:
        raise DataError(expected(str(paths[0]), "probabilities", "to have one size in all runs", "several"))
    mean = np.mean(members, axis=0)
    gain = _entropy(mean) - (float(np.mean([_entropy(probs) for probs in members])) if len(members) > 1 else 0.0)
    cells = [cell for rows in np.array_split(mean, _CELLS, axis=1) for cell in np.array_split(rows, _CELLS, axis=2)]
    return gain, np.concatenate([(cell if cell.size else mean).mean(axis=(1, 2)) for cell in cells])


def _entropy(probs: NDArray[Any]) -> float:
    """Average the entropy over the pixels, in nats. Channels that don't sum to 1 are independent classes."""
    rounding = 1e-3 + len(probs) / 500  # probabilities may be stored in one byte per channel
    independent = len(probs) == 1 or float(np.abs(probs.sum(axis=0) - 1).max(initial=0)) > rounding
    outcomes = np.concatenate([1 - probs, probs]) if independent else probs
    return float(-xlogy(outcomes, outcomes).sum(axis=0).mean())


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
    nearest = np.full(len(gains), np.inf)
    remaining = np.ones(len(gains), bool)
    weight = gains
    order = list[int]()
    distances = list[float]()
    for _ in range(len(gains)):
        chosen = int(np.flatnonzero(remaining)[np.argmax(weight[remaining])])
        order.append(chosen)
        distances.append(float(nearest[chosen]))
        remaining[chosen] = False
        nearest = np.minimum(nearest, np.linalg.norm(places - places[chosen], axis=1))
        weight = gains * nearest
    return order, distances
