"""Scores masks that any tool wrote against their references: one row per pair, and a summary. No model, no torch."""

import logging
import math
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from segmeter import __version__
from segmeter.checks import expected, some
from segmeter.data.files.opened import TimeLimit, open_array, read_header
from segmeter.data.files.refusals import show
from segmeter.data.masks.reading import hash_map
from segmeter.data.sample import Reading
from segmeter.distributed.shards import Shard, describe_shard, note_shard
from segmeter.errors import DataError, InputError
from segmeter.evaluation.case_scorer import CaseScorer
from segmeter.evaluation.drive import SUMMARY, CaseResult, MemoryBudget, collect, conclude, record_cases
from segmeter.evaluation.manifest import (
    Entry,
    check_same,
    hashes_of,
    open_manifest,
    parse_case_facts,
    read_case_facts,
)
from segmeter.evaluation.mask_pairs import MaskPair, Pairing, check_unchanged, hash_pair, limit_of
from segmeter.evaluation.spacings import Spacings
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.summary.slice_labels import hash_tables
from segmeter.parallel import map_in_processes, map_in_threads
from segmeter.progress import track
from segmeter.records import Summary, read_json
from segmeter.remote import fetch_ahead
from segmeter.threads import count_cores

if TYPE_CHECKING:  # most runs have no probabilities
    from segmeter.metrics.probabilities import Calibration

_LOG = logging.getLogger(__name__)
_BYTES_PER_PROB = 12  # At the peak, measured on 3 million pixels of 3 and of 19 classes: 12 as NPZ, 7 to 9 as NPY
_NO_PROBS = "Free memory, cut the case into tiles, or leave out probs=."


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """The masks to score, and where the metrics are written.

    Parameters
    ----------
    pairing
        The files, from `find_pairs`.
    reading
        How label maps are read.
    metrics
        The group `metrics` of the configuration.
    probs
        Files of probabilities by their case's stem, from `find_probs`; empty measures none.
    folder
        The run's folder.
    workers
        Number of processes. 0 uses threads, one per core. Decoding, counting, surfaces and objects release the GIL, so
        processes pay off only for measures that don't.
    resume
        Whether to continue the run in `folder`.
    shard
        Which of the pairs are scored; None takes all.
    """

    pairing: Pairing
    reading: Reading
    metrics: MetricsConfig
    probs: Mapping[str, Path] = field(default_factory=dict)
    folder: Path
    workers: int = 0
    resume: bool = False
    shard: Shard | None = None

    @property
    def pairs(self) -> Sequence[MaskPair]:
        """The pairs that this run scores."""
        return self.pairing.pairs if self.shard is None else self.shard.take(self.pairing.pairs)

    def identity(self) -> dict[str, Any]:
        """Collect everything but the files that determines the metrics. A run is resumed only if it is the same."""
        case_ids = [pair.case_id for pair in self.pairing.pairs]
        reading = self.reading
        spec = {name: value for name, value in reading.spec if name != "colours"}
        return {
            "data": {
                **spec,
                "label_map": sorted(reading.label_map.items()),
                "key": reading.key,
                "instances": reading.instances,
                "instance_divisor": reading.divisor,
                "flat": reading.flat,
                "overlap": reading.overlap,
                "corners": reading.corners,
                "resample": reading.resample,
            },
            "metrics": self.metrics.model_dump(),
            "tables": hash_tables(self.metrics),
            "probs": bool(self.probs),
            "images": any(pair.image for pair in self.pairing.pairs),
            "missing_predictions": list(self.pairing.missing),
            "extra_predictions": len(self.pairing.extra),
            "segmeter": __version__,
            **({"shard": describe_shard(self.shard, case_ids)} if self.shard else {}),
        }

    def scorer(self) -> CaseScorer:
        """Build the function that measures one pair."""
        missing = bool(self.pairing.missing)
        return CaseScorer(self.reading, self.metrics, flag_missing=missing, processes=self.workers or 1)


def score(job: Scoring) -> dict[str, Any]:
    """Measure every pair, in parallel.

    Writes into the run's folder: the sums of the calibration if there are probabilities, cases.parquet and cases.csv,
    objects.parquet if a measure lists objects, then metrics.json and records.parquet. An interrupted run is resumed
    from manifest.json and its journal; the caller asks `check_resumed` first. Cases without a prediction are counted in
    the summary's ``missing_predictions``, and have 1 in the rows' ``extra_missing``; ``spacing`` says where the
    spacings come from.

    Returns
    -------
    dict
        The content of metrics.json.

    Raises
    ------
    DataError
        One line for every file that can't be scored. No metric is written then, but a resume finds the other cases.
    ConfigError
        The resumed run used another configuration.
    RunError
        A worker process was killed.
    """
    identity = job.identity()
    manifest = open_manifest(job.folder, identity, [pair.case_id for pair in job.pairs], resume=job.resume)
    if manifest.done:
        return read_json(job.folder / SUMMARY, Summary)
    scorer = job.scorer()
    spacings = Spacings()
    done = parse_case_facts(read_case_facts(job.folder)) if job.resume else {}
    if job.resume:
        manifest.truncate(len(done))
    for case_id, facts in done.items():
        spacings.add(case_id, facts)

    def until_units_differ(results: Generator[CaseResult, None, None]) -> Generator[CaseResult, None, None]:
        """Note the spacing of each case. Distances in two units have no mean, so a second unit ends the run."""
        with closing(results):
            while not (problems := spacings.problems() if job.metrics.measures else []):
                result = next(results, None)
                if result is None:
                    return
                if isinstance(result, Entry):
                    spacings.add(result.case_id, result.resume_facts)
                yield result
        raise DataError(problems)

    rest = [pair for pair in job.pairs if pair.case_id not in done]
    if job.workers:
        results = map_in_processes(scorer, rest, processes=job.workers, describe=lambda pair: pair.case_id)
    else:
        ahead = fetch_ahead(rest, lambda pair: pair.files)
        results = map_in_threads(scorer, ahead, threads=count_cores(), name="score")
    record_cases(until_units_differ(results), manifest, what="scoring", total=len(rest))
    for line in spacings.warnings():
        _LOG.warning("%s", line)
    missing = [pair.case_id for pair in job.pairs if not pair.predictions]
    entries = note_shard(identity) | spacings.summary(missing=missing, extra=len(job.pairing.extra))
    calibration = None
    hashes = dict[str, str]()
    if job.probs:
        measured = hashes_of(read_case_facts(job.folder))
        calibration, hashes = measure_probs(scorer, job.pairs, job.probs, measured=measured)
    spec = job.reading.spec
    rows = manifest.table(spec)
    return conclude(manifest, rows, spec, job.metrics, facts=entries, calibration=calibration, inputs=hashes)


def measure_probs(
    scorer: CaseScorer, pairs: Sequence[MaskPair], files: Mapping[str, Path], *, measured: Mapping[str, str]
) -> tuple["Calibration", dict[str, str]]:
    """Add up the calibration of all cases.

    Parameters
    ----------
    scorer
        Reads the references.
    pairs, files
        The cases, and their files from `find_probs`.
    measured
        The hash of each pair when it was measured, from `hash_pair`, by case id.

    Returns
    -------
    tuple
        The sums, and the sha256 of every file by its stem.

    Raises
    ------
    DataError
        One line for every file that can't be used, or that changed since it was measured.
    """
    from segmeter.metrics.calibration_file import empty_sums  # most runs have no probabilities, and start sooner

    reading = scorer.reading
    max_values = reading.max_pixels * reading.spec.num_classes
    options: dict[str, Any] = {"key": reading.key, "max_pixels": max_values, "axes": "probs"}
    calibration = empty_sums(reading.spec)
    adding = threading.Lock()  # one case at a time; their order does not change the sums
    budget = MemoryBudget()

    def decode(path: Path) -> tuple[NDArray[Any], str]:
        with open_array(path, refuse_changes=True, **options) as array:
            return array.read(), array.sha256

    def add(pair: MaskPair) -> tuple[str, str]:
        """Add a case in the memory that it needs, and return its stem and the hash of its probabilities."""
        path = files[pair.stem]
        in_time = limit_of(pair, reading.timeout_s)
        of_probs = replace(in_time, files=(path,))
        try:
            values = math.prod(of_probs(partial(read_header, path, **options)).shape)
            with budget.hold(values * _BYTES_PER_PROB, what=f"case {pair.case_id!r}", remedy=_NO_PROBS):
                target = scorer.read(replace(pair, predictions=())).target
                in_time(partial(check_unchanged, pair, measured))
                probs, sha256 = of_probs(partial(decode, path))
                with adding:
                    try:
                        calibration.update(target, probs)
                    except InputError as error:
                        raise DataError([f"{show(path)}: {line}" for line in error.problems]) from error
            return pair.stem, sha256
        except OSError as error:
            raise DataError(expected(show(path), "file", "to be readable", error.strerror or error)) from error

    return calibration, dict(collect(add, pairs, what="measuring probabilities"))


def refuse_files(job: Scoring) -> None:
    """If names can't be paired, read the paired files too, and refuse all problems at once.

    Raises
    ------
    DataError
        The pairing has problems.
    """
    if not job.pairing.problems:
        return
    scorer = replace(job, metrics=MetricsConfig(spacing=job.metrics.spacing)).scorer()
    results = map_in_threads(scorer, fetch_ahead(job.pairs, lambda pair: pair.files), threads=count_cores())
    problems = [result for result in track(results, "reading", len(job.pairs)) if not isinstance(result, Entry)]
    raise DataError([*job.pairing.problems, *chain.from_iterable(problems)])


def check_resumed(job: Scoring) -> None:
    """Refuse to resume a run, interrupted or finished, of other settings, cases or files. This only reads.

    Raises
    ------
    ConfigError
        The differences in settings and cases, one line each.
    DataError
        The files of cases changed since they were measured.
    """
    before = check_same(job.folder, job.identity(), [pair.case_id for pair in job.pairs])
    measured = hashes_of(read_case_facts(job.folder))
    done = [pair for pair in job.pairs if pair.case_id in measured]
    digests = map_in_threads(lambda pair: limit_of(pair, job.reading.timeout_s)(partial(hash_pair, pair)), done)
    pairs = track(zip(done, digests, strict=True), "checking what is done", len(done))
    changed = {pair.case_id for pair, digest in pairs if digest != measured[pair.case_id]}
    inputs = before.get("inputs", {})
    for stem, path in job.probs.items():
        in_time = TimeLimit(seconds=job.reading.timeout_s, case_id=stem, files=(path,))
        if stem in inputs and in_time(partial(hash_map, path)) != inputs[stem]:
            changed.add(stem)
    if changed:
        remedy = "Start a new run with resume=null."
        raise DataError(f"resume: the files of cases changed since they were measured ({some(changed)}). {remedy}")
