"""`segmeter score`: measures masks against references, and writes metrics, pictures and a report."""

import gc
import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from segmeter.checks import some
from segmeter.classes import ClassSpec
from segmeter.cli.config.command_configs import ScoreConfig
from segmeter.cli.folders import NO_FOLDER, Job, find_resumed
from segmeter.cli.results import find_objective, record_results, settle_metrics
from segmeter.cli.run_folder import open_run, show_files
from segmeter.data.files.refusals import known_place, show
from segmeter.data.labels_config import read_labels
from segmeter.data.pairing import find_beside
from segmeter.data.sample import Reading
from segmeter.distributed.shards import check_filled, parse_shard, part_warning
from segmeter.evaluation.manifest import hashes_of, read_case_facts
from segmeter.evaluation.mask_pairs import check_unchanged, find_pairs, find_probs, limit_of, read_case_image
from segmeter.evaluation.score import Scoring, check_resumed, refuse_files, score
from segmeter.metrics.cases.nnunet import write_summary
from segmeter.metrics.cases.stored import open_cases
from segmeter.metrics.summary.scoreboard import build_scoreboard
from segmeter.metrics.summary.slice_labels import check_case_ids
from segmeter.records import MANIFEST
from segmeter.report.config import ReportConfig
from segmeter.report.pictures.worst import write_worst_list
from segmeter.report.summary import print_summary

NNUNET = "summary.json"

_LOG = logging.getLogger(__name__)


def run_score(config: ScoreConfig, job: Job) -> float | None:
    """Score, and return the objective, which a sweep may optimise."""
    spec = config.data.spec()
    nnunet = None if config.data.nnunet is None else read_labels(config.data.nnunet)
    metrics = config.metrics
    if nnunet and not metrics.groups:  # the regions of dataset.json
        metrics = metrics.replace(groups=dict(nnunet.groups))
    config = config.replace(metrics=settle_metrics(metrics, spec, instances=config.data.instances))
    objective = find_objective(config.objective, config.metrics, spec)
    scoring, images = _find_files(config, spec, suffix=nnunet.file_ending if nnunet else "")
    resumed = find_resumed(config, job, holds=MANIFEST)
    scoring = replace(scoring, folder=resumed or NO_FOLDER, resume=resumed is not None)
    pairing = scoring.pairing
    if scoring.shard:
        _LOG.warning("%s", part_warning(scoring.shard, len(scoring.pairs), len(pairing.pairs)))
    if pairing.missing:
        _LOG.warning("cases without a prediction, scored as background (%s).", some(pairing.missing))
    if pairing.extra:
        _LOG.warning("predictions without a reference in %s (%s).", show(config.predictions), some(pairing.extra))
    facts = {
        "predictions": known_place(config.predictions),
        "references": known_place(config.references),
        "probs": known_place(config.probs) if config.probs else None,
        "data": pairing.fingerprint(),
        "missing_predictions": list(pairing.missing),
        "extra_predictions": list(pairing.extra),
    }
    accept = partial(check_resumed, scoring)
    with open_run(config, job, resumed=resumed, facts=facts, accept=accept) as folder:
        scoring = replace(scoring, folder=folder)
        gc.freeze()  # spares the collector all that was imported: one pass over it takes as long as scoring 100 pairs
        summary = score(scoring)
        if images:
            draw_cases(scoring, images, config.report)
        if nnunet:
            write_summary(
                folder / NNUNET,
                open_cases([folder]),
                spec,
                references=str(config.references),
                predictions=str(config.predictions),
                regions=nnunet.regions,
                file_ending=nnunet.file_ending,
            )
        write_worst_list(folder, spec, config.metrics, config.report.worst)
        value = record_results(folder, summary, config.report, objective)
    print_summary(summary)
    show_files(folder)
    return value


def _find_files(config: ScoreConfig, spec: ClassSpec, *, suffix: str) -> tuple[Scoring, Mapping[str, Path]]:
    """Find the masks to score, with their probabilities, and the images; refuse what can't be scored."""
    pairing = find_pairs(
        config.predictions,
        config.references,
        spec=spec,
        missing=config.missing,
        endings=(config.prediction_ending, config.reference_ending),
        suffix=suffix,
    )
    reading = Reading.of(config.data, spec)
    scoring = Scoring(
        pairing=pairing, reading=reading, metrics=config.metrics, folder=NO_FOLDER, workers=config.workers
    )
    refuse_files(scoring)
    images = dict[str, Path]()
    if config.images:
        stems = (pair.stem for pair in pairing.pairs)
        remedy = "Leave images= out to score without them."
        images = find_beside(config.images, stems, role="images", what="an image", remedy=remedy)
    check_case_ids(config.metrics, spec, [pair.case_id for pair in pairing.pairs], images=bool(images))
    shard = None
    if config.shard is not None:
        shard = parse_shard(config.shard)
        check_filled(shard, len(pairing.pairs), "cases", "Take fewer shards.")
    probs = find_probs(config.probs, pairing.pairs) if config.probs else {}
    if images and any(measure.name == "content" for measure in config.metrics.measures):
        with_images = [replace(pair, image=images[pair.stem]) for pair in pairing.pairs]
        pairing = replace(pairing, pairs=with_images)
    return replace(scoring, pairing=pairing, shard=shard, probs=probs), images


def draw_cases(scoring: Scoring, images: Mapping[str, Path], config: ReportConfig) -> None:
    """Draw the chosen cases of a finished run of `score`, and crop the worst.

    Parameters
    ----------
    scoring
        The finished run.
    images
        The image of every case, by stem.
    config
        The report settings: which cases are drawn, their size, and the number of crops.

    Raises
    ------
    DataError
        One line per image that can't be read or has another size, and per case whose masks changed.
    """
    from segmeter.report.pictures.chosen import Ranking  # these load drawing libraries, which most runs don't need
    from segmeter.report.pictures.finished import draw_run
    from segmeter.report.pictures.layers import DrawnCase
    from segmeter.report.pictures.objects import measured_objects

    pairs = {pair.case_id: pair for pair in scoring.pairs}
    measured_hashes = hashes_of(read_case_facts(scoring.folder))
    scorer = scoring.scorer()

    def read(case_id: str) -> DrawnCase:
        pair = pairs[case_id]
        path = images[pair.stem]
        maps = scorer.read(pair)
        in_time = limit_of(replace(pair, image=path), scoring.reading.timeout_s)
        in_time(partial(check_unchanged, pair, measured_hashes))
        image, _ = in_time(partial(read_case_image, path, maps.shape, max_pixels=scoring.reading.max_pixels))
        return DrawnCase(
            image=image,
            target=maps.target,
            labels=maps.labels,
            objects=measured_objects(scoring.metrics, maps.target_instances, maps.instances),
            files={"image": [path], "target": pair.references, "prediction": pair.predictions},
        )

    ranking = Ranking.of(build_scoreboard(open_cases([scoring.folder]), scoring.reading.spec, scoring.metrics))
    draw_run(scoring.folder, ranking, read, config, scoring.reading.spec)
