"""Masks that any tool wrote, with their references -> rows of counts and their summary; no model, no torch."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from segmeter import __version__
from segmeter.checks import some
from segmeter.classes import ClassSpec
from segmeter.data.config import Instances
from segmeter.data.files.formats.drawn import Overlap
from segmeter.data.files.masks import Reading, hash_map
from segmeter.data.in_time import TimeLimit
from segmeter.distributed.shards import Shard, describe_shard
from segmeter.errors import DataError, LateError
from segmeter.evaluation.cases import CaseScorer, Scored
from segmeter.evaluation.manifest import Entry, Manifest, check_same, read_notes, read_run_manifest
from segmeter.evaluation.memory import check_counts
from segmeter.evaluation.pairing import MaskPair, Pairing, Pairs, hash_pair, limit_of
from segmeter.evaluation.places import Place, Places
from segmeter.evaluation.plain.groups import split_groups
from segmeter.evaluation.probs import measure_probs
from segmeter.evaluation.resuming.restore import open_manifest
from segmeter.evaluation.sharding import note_shard
from segmeter.files import remove, write_json
from segmeter.metrics.cases.packed import RowStore
from segmeter.metrics.cases.table import CaseRow, write_cases
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.probabilities.stored import NAME as SUMS
from segmeter.metrics.probabilities.stored import summarise_calibration, write_sums
from segmeter.metrics.summary.slice_labels import check_tables, hash_tables
from segmeter.metrics.summary.summarise import summarise
from segmeter.parallel import map_in_processes, map_in_threads
from segmeter.progress import track
from segmeter.records import Summary, read_json
from segmeter.remote.ahead import fetch_ahead
from segmeter.threads import count_cores

SUMMARY = "metrics.json"

_BESIDE = 1 << 14  # rows whose tables are written while they are summarised

Result = TypeVar("Result")
Outcome = Scored | tuple[str, ...]  # what is wrong with a case's files

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """What is scored, and where the metrics are written.

    Parameters
    ----------
    pairing
        The files, from `find_pairs`.
    spec
        What the labels mean.
    label_map
        From a stored value or colour to a label, for both folders; empty takes stored values as labels.
    max_pixels
        The most pixels or voxels of a file, checked before it is decoded.
    key
        Which array of NPZ archives and Zarr groups; None takes the only one.
    instances
        Whether the files hold numbers of objects instead of labels, for a binary task: both sides, or one of them; on
        the other side connected parts are then the objects.
    divisor
        As for `Reading`.
    flat
        Whether volumes of depth 1 are read as images.
    overlap, resample, timeout_s
        As for `Reading`.
    metrics
        Its group of the configuration.
    probs
        Files of probabilities by their case's stem, from `find_probs`; empty measures none.
    folder
        The run's folder.
    workers
        Processes; 0 uses threads, one per core: decoding, counting, surfaces and objects release the interpreter, so
        that processes pay off only for measures that do not.
    resume
        Whether to continue the run in `folder`.
    shard
        Which of the pairs are scored; None takes all.
    """

    pairing: Pairing
    spec: ClassSpec
    label_map: Mapping[str, int]
    max_pixels: int
    key: str | None = None
    instances: Instances = False
    divisor: int | None = None
    flat: bool = False
    overlap: Overlap = "error"
    resample: Literal["refuse", "nearest"] = "refuse"
    timeout_s: float | None = None
    metrics: MetricsConfig
    probs: Mapping[str, Path] = field(default_factory=dict)
    folder: Path
    workers: int = 0
    resume: bool = False
    shard: Shard | None = None

    @property
    def pairs(self) -> Pairs:
        """The pairs that this run scores."""
        every = self.pairing.pairs
        return every if self.shard is None else cast(Pairs, self.shard.take(every))

    @property
    def case_ids(self) -> list[str]:
        """In the order of the pairs."""
        return self.pairs.case_ids

    def identity(self) -> dict[str, Any]:
        """All that decides the figures but the files; a run goes on only where it is the same."""
        spec = {name: value for name, value in self.spec if name != "colours"}
        return {
            "data": {
                **spec,
                "label_map": sorted(self.label_map.items()),
                "key": self.key,
                "instances": self.instances,
                "instance_divisor": self.divisor,
                "flat": self.flat,
                "overlap": self.overlap,
                "resample": self.resample,
            },
            "metrics": self.metrics.model_dump(),
            "tables": hash_tables(self.metrics),
            "probs": bool(self.probs),
            "images": self.pairing.pairs.have_images,
            "missing_predictions": list(self.pairing.missing),
            "extra_predictions": len(self.pairing.extra),
            "segmeter": __version__,
            **({"shard": describe_shard(self.shard, self.pairing.pairs.case_ids)} if self.shard else {}),
        }

    def scorer(self) -> CaseScorer:
        """What measures one pair."""
        reading = Reading(
            spec=self.spec,
            label_map=self.label_map,
            max_pixels=self.max_pixels,
            key=self.key,
            instances=self.instances,
            divisor=self.divisor,
            flat=self.flat,
            overlap=self.overlap,
            resample=self.resample,
            timeout_s=self.timeout_s,
        )
        missing = bool(self.pairing.missing)
        processes, cases = self.workers or 1, len(self.pairing.pairs)
        return CaseScorer(reading, self.metrics, flag_missing=missing, processes=processes, cases=cases)


def score(job: Scoring) -> dict[str, Any]:
    """Read every pair once, in parallel, and measure it.

    Writes cases.parquet, cases.csv and metrics.json into the run's folder, and manifest.json, from which an interrupted
    run is resumed; the caller asks `check_resumed` first. Cases without a prediction are counted in the summary's
    ``missing_predictions``, and have 1 in the rows' ``extra_missing``; ``spacing`` says where the spacings come from.

    Returns
    -------
    dict
        The content of metrics.json.

    Raises
    ------
    DataError
        One line for every file that can't be scored; no metric is written then.
    ConfigError
        The resumed run used another configuration.
    RunError
        A worker process was killed.
    """
    check_counts(job.spec.counts_shape)
    manifest = open_manifest(job.folder, job.identity(), job.case_ids, resume=job.resume)
    if manifest.done:
        return read_json(job.folder / SUMMARY, Summary)
    rows, places = RowStore(), Places()
    try:
        done = _restore(job, manifest, rows, places)
        _measure(job, manifest, job.pairs.of_cases(lambda case_id: case_id not in done), rows, places)
    finally:
        manifest.close()
    for line in places.warnings():
        _LOG.warning("%s", line)
    (summary, hashes), written = _beside_tables(job, rows, partial(_summarise, job, manifest, rows, places))
    write_json(job.folder / SUMMARY, summary)
    manifest.finish((SUMMARY, *written, *([SUMS] if job.probs else [])), inputs=hashes)
    return summary


def _summarise(
    job: Scoring, manifest: Manifest, rows: RowStore, places: Places
) -> tuple[dict[str, Any], dict[str, str]]:
    """The content of metrics.json, and the hashes of files that were read for it alone."""
    summary = summarise(rows, job.spec, job.metrics) | note_shard(job.identity())
    check_tables(job.metrics, manifest.identity)
    summary |= summarise_files(places, missing=job.pairs.missing, extra=len(job.pairing.extra))
    if not job.probs:
        return summary, {}
    sums, hashes = measure_probs(job.scorer(), job.pairs, job.probs, measured=manifest.hashes())
    summary["calibration"] = summarise_calibration(sums.compute(), job.spec)
    write_sums(job.folder, sums)
    return summary, hashes


def _beside_tables(job: Scoring, rows: RowStore, work: Callable[[], Result]) -> tuple[Result, tuple[str, ...]]:
    """Do the work, and write the tables, beside it where few rows need little memory; what it refuses leaves none."""
    if len(rows) > _BESIDE:
        return work(), write_cases(job.folder, rows, job.spec)
    with ThreadPoolExecutor(1, thread_name_prefix="tables") as beside:
        written = beside.submit(write_cases, job.folder, rows, job.spec)
        try:
            return work(), written.result()
        except BaseException:
            with suppress(Exception):  # what the work raised is said first
                for name in written.result():
                    remove(job.folder / name)
            raise


def refuse_files(job: Scoring) -> None:
    """Refuse names that can't be paired, with all that is wrong in the files of those that can: these are read for it.

    Raises
    ------
    DataError
        Where the pairing has problems.
    """
    if not job.pairing.problems:
        return
    read = _score_in_threads(replace(job, metrics=MetricsConfig(spacing=job.metrics.spacing)).scorer(), job.pairs)
    results = track(chain.from_iterable(read), "reading", len(job.pairs))
    found = [result for result in results if not isinstance(result, Scored)]
    raise DataError([*job.pairing.problems, *chain.from_iterable(found)])


def summarise_files(places: Places, *, missing: Sequence[str], extra: int) -> dict[str, Any]:
    """What metrics.json says of the files: cases without a prediction, predictions without a reference, spacings."""
    return {
        "missing_predictions": {"n": len(missing), "cases": list(missing)},
        "extra_predictions": extra,
        "spacing": places.summary(),
    }


def read_place(note: Mapping[str, Any], row: CaseRow) -> Place:
    """The place of a case, from what its manifest notes and from its row."""
    return Place(**{**note, "warnings": tuple(note["warnings"]), "spacing": row.spacing})


def check_resumed(job: Scoring, folder: Path) -> None:
    """Refuse to resume a run, interrupted or finished, that had other settings, cases or files; nothing is changed.

    Raises
    ------
    ConfigError
        What differs in the settings and cases, one line each.
    DataError
        The files of cases changed since they were measured.
    """
    check_same(folder, job.identity(), job.case_ids)
    noted = {case_id: each["sha256"] for case_id, each in read_notes(folder).items()}
    known = job.pairs.of_cases(noted.__contains__)
    found = map_in_threads(lambda pair: limit_of(pair, job.timeout_s)(partial(hash_pair, pair)), known)
    now = track(zip(known, found, strict=True), "checking what is done", len(known))
    changed = {pair.case_id for pair, digest in now if digest != noted[pair.case_id]}
    inputs = read_run_manifest(folder).get("inputs", {})
    for stem, path in job.probs.items():
        in_time = TimeLimit(seconds=job.timeout_s, case_id=stem, files=(path,))
        if stem in inputs and in_time(partial(hash_map, path)) != inputs[stem]:
            changed.add(stem)
    if changed:
        remedy = "Start a new run with resume=null."
        raise DataError(f"resume: the files of cases changed since they were measured ({some(changed)}). {remedy}")


def _restore(job: Scoring, manifest: Manifest, rows: RowStore, places: Places) -> set[str]:
    """Keep what the interrupted run has measured."""
    done = set()
    for entry in manifest.entries() if job.resume else ():
        rows.append(entry.measured)
        places.add(entry.case_id, read_place(entry.note, entry.measured))
        done.add(entry.case_id)
    return done


def _measure(job: Scoring, manifest: Manifest, pairs: Pairs, rows: RowStore, places: Places) -> None:
    problems: list[str] = []
    groups = (
        (
            [each]
            for each in map_in_processes(job.scorer(), pairs, processes=job.workers, describe=lambda pair: pair.case_id)
        )
        if job.workers
        else _score_in_threads(job.scorer(), pairs)
    )
    for result in track(_noted(manifest, _numbered(job, groups)), "scoring", len(pairs)):
        if not isinstance(result, Scored):
            problems.extend(result)
            continue
        rows.append(result.row)
        places.add(result.row.case_id, result.place)
        if job.metrics.measures and places.problems():
            raise DataError(places.problems())
    if problems:
        raise DataError(problems)


def _noted(manifest: Manifest, groups: Iterable[list[Outcome]]) -> Iterator[Outcome]:
    """Yield the results of each group once those of its cases that were measured are in the manifest."""
    for group in groups:
        manifest.add(*(_entry(each) for each in group if isinstance(each, Scored)))
        yield from group


def _numbered(job: Scoring, groups: Iterable[list[Outcome]]) -> Iterator[list[Outcome]]:
    """The same groups; a case that is not read in time gets its number, which those who read it do not know."""
    try:
        yield from groups
    except LateError as error:
        raise error.at(job.case_ids.index(error.case_id)) from error


def _score_in_threads(scorer: CaseScorer, pairs: Sequence[MaskPair]) -> Iterator[list[Outcome]]:
    """Score all pairs, a group at a time, in order."""
    groups = split_groups(pairs, scorer.reading.spec, plain=scorer.counts_only)
    ahead = fetch_ahead(groups, lambda group: chain.from_iterable(pair.files for pair in group))
    with closing(map_in_threads(scorer.score_all, ahead, threads=count_cores(), name="score")) as found:
        yield from found


def _entry(scored: Scored) -> Entry:
    note = {key: getattr(scored.place, key) for key in ("unit", "source", "overridden", "warnings")}
    return Entry(case_id=scored.row.case_id, row=scored.row, sha256=scored.sha256, note=note)
