"""`segmeter eval`: runs a checkpoint on a data set and writes label maps, metrics, pictures and a report."""

import logging
import sys
from functools import partial
from pathlib import Path

from segmeter.checks import expected
from segmeter.classes import ClassSpec
from segmeter.cli.commands._parts import keep_threads, open_device, open_series, run_identity, take_shard
from segmeter.cli.config.model_schema import EvalConfig
from segmeter.cli.pictures import draw_predicted
from segmeter.cli.runs.objective import find_objective, results
from segmeter.cli.runs.resume import find_resumed
from segmeter.cli.runs.run_folder import Job, note_done, open_run, show_files
from segmeter.data.dataset import Dataset
from segmeter.data.verification.intensity import mismatch_warnings
from segmeter.data.verification.report import open_splits
from segmeter.errors import ConfigError
from segmeter.evaluation.decisions.tune import tuning_warnings
from segmeter.evaluation.evaluate import Evaluation, evaluate
from segmeter.evaluation.manifest import NAME, check_same
from segmeter.evaluation.predicted import PREDICTIONS
from segmeter.export.dicom import write_series
from segmeter.inference.predictor import Predictor
from segmeter.losses.build import build_loss, fix_weights
from segmeter.metrics.config.metrics import check_metrics, with_objects
from segmeter.metrics.summary.scoreboard import settle_headline
from segmeter.metrics.summary.slice_labels import check_case_ids
from segmeter.models.card import ModelCard
from segmeter.models.trained import read_checkpoints
from segmeter.postprocess.pipeline import build_steps
from segmeter.report.html import write_report
from segmeter.report.pictures.worst import write_worst_list
from segmeter.report.summary import print_summary

_LOG = logging.getLogger(__name__)


def run(config: EvalConfig, job: Job) -> float | None:
    """Evaluate; returns the objective, which a sweep may optimise."""
    device = open_device(config.device)
    checkpoint = read_checkpoints(config.checkpoints, told=config.model, spec=config.data.spec())
    metrics = with_objects(config.metrics) if config.data.instances else config.metrics
    check_metrics(metrics, checkpoint.card.spec)
    config = config.replace(metrics=settle_headline(metrics, checkpoint.card.spec))
    objective = _check(config, checkpoint.card.spec)
    weighted = fix_weights(config.loss, checkpoint.card.spec, checkpoint.class_pixels)
    resumed = find_resumed(config, job, config.resume, holds=NAME)
    keep_threads(device, resumed)
    dataset, content = _open(config, checkpoint.card)
    loss = build_loss(weighted, spec=dataset.spec, class_counts=checkpoint.class_pixels)
    series = open_series(config.export, dataset, config.shard)
    for line in tuning_warnings(checkpoint.folders, dataset.case_ids):
        _LOG.warning("%s", line)
    facts = {**checkpoint.facts(), "data": content}
    dataset, batches, shard = take_shard(dataset, config.shard, batch_size=config.inference.batch_size)
    predictor = Predictor(checkpoint.load(device), config.inference, device)
    computed = {"precision": predictor.precision}
    identity = run_identity(config.replace(loss=weighted), facts, device, **computed) | shard
    accept = partial(check_same, resumed or Path(), identity, dataset.case_ids)
    facts |= computed
    with open_run(config, job, resumed=resumed, facts=facts, accept=accept) as folder:
        summary = evaluate(
            Evaluation(
                predictor=predictor,
                dataset=dataset,
                loss=loss.to(device) if checkpoint.card.output == "logits" else None,  # labels have none
                export=config.export,
                postprocess=config.postprocess,
                metrics=config.metrics,
                folder=folder,
                identity=identity,
                resume=resumed is not None,
                batches=batches,
            )
        )
        write_series(folder / PREDICTIONS, series, dataset.spec)
        draw_predicted(folder, dataset, config, config.metrics)
        write_worst_list(folder, dataset.spec, config.metrics, config.report.worst)
        found = results(summary, objective)
        note_done(folder, found)
        if config.report.html:
            write_report(folder, config.report)
    print_summary(summary)
    show_files(folder)
    sys.stdout.write(f"{predictor.stages.report()}\n")
    return next(iter(found.values()))


def _check(config: EvalConfig, spec: ClassSpec) -> str | None:
    """Check what needs no data before any is read, or drawn; give the name of the objective."""
    axes, kind = (2, "images") if getattr(config.data, "planes", None) is None else (3, "volumes")
    if len(config.metrics.spacing or (1,) * axes) != axes:
        raise ConfigError(
            expected("metrics", "spacing", f"to have {axes} values, as {kind} do", config.metrics.spacing)
        )
    objective = find_objective(config.objective, config.metrics, spec)
    build_steps(config.postprocess.steps, spec)
    return objective


def _open(config: EvalConfig, card: ModelCard) -> tuple[Dataset, str]:
    """The checked data set with its content hash. Warns of intensities unlike those in training."""
    (dataset,), (report,) = open_splits(config.data, [config.data.split])
    for line in mismatch_warnings(report.intensities, card.mean, card.std, card.clip):
        _LOG.warning("%s", line)
    check_case_ids(config.metrics, dataset.spec, dataset.case_ids, images=True)
    return dataset, report.content_sha256
