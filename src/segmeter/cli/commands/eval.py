"""`segmeter eval` and `predict`: run a checkpoint on a data set with masks, or on images alone."""

import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from segmeter import __version__
from segmeter.checks import expected
from segmeter.cli.commands._parts import keep_threads, open_card_images, prepare_device
from segmeter.cli.config.model_command_configs import EvalConfig, PredictConfig, Trained
from segmeter.cli.folders import NO_FOLDER, Job, find_resumed
from segmeter.cli.results import find_objective, record_results, settle_metrics
from segmeter.cli.run_folder import open_run, show_files
from segmeter.data.dataset import Dataset
from segmeter.data.verification.intensity import mismatch_warnings
from segmeter.data.verification.splits import open_splits
from segmeter.distributed.shards import describe_shard, parse_shard, part_warning, take_batches
from segmeter.errors import ConfigError
from segmeter.evaluation.decisions.tune import tuning_warnings
from segmeter.evaluation.evaluate import evaluate, predict, prefer_bands
from segmeter.evaluation.manifest import PREDICTIONS, check_same
from segmeter.evaluation.predicted import CaseRun
from segmeter.export.dicom import find_series, write_series
from segmeter.inference.predictor import Predictor
from segmeter.losses.config import build_loss, fix_weights
from segmeter.metrics.cases.stored import open_cases
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.summary.scoreboard import build_scoreboard
from segmeter.metrics.summary.slice_labels import check_case_ids, hash_tables
from segmeter.models.trained import Checkpoints, read_checkpoints
from segmeter.postprocess.config import INSTANCE_STEPS
from segmeter.postprocess.pipeline import build_steps
from segmeter.records import MANIFEST
from segmeter.report.pictures.chosen import Ranking
from segmeter.report.pictures.finished import EvaluatedCases, draw_run
from segmeter.report.pictures.worst import write_worst_list
from segmeter.report.summary import print_summary
from segmeter.schema import as_plain

# These groups decide the results, and so they identify a run, but for the keys in `_FREE`.
_DECIDING = ("data", "loss", "inference", "export", "postprocess", "metrics")
_FREE = (*(("data", key) for key in ("root", "verify", "timeout_s")), ("export", "workers"), ("export", "queue_mb"))
_LOG = logging.getLogger(__name__)


def run_eval(config: EvalConfig, job: Job) -> float | None:
    """Evaluate, and return the objective, which a sweep may optimise."""
    device = prepare_device(config.device)
    checkpoint = read_checkpoints(config.checkpoints, user_card=config.model, spec=config.data.spec())
    card = checkpoint.card
    config = config.replace(metrics=settle_metrics(config.metrics, card.spec, instances=config.data.instances))
    n_axes, kind = (2, "images") if getattr(config.data, "planes", None) is None else (3, "volumes")
    if config.metrics.spacing and len(config.metrics.spacing) != n_axes:
        rule = f"to have {n_axes} values, as {kind} do"
        raise ConfigError(expected("metrics", "spacing", rule, config.metrics.spacing))
    objective = find_objective(config.objective, config.metrics, card.spec)
    build_steps(config.postprocess.steps, card.spec)
    weighted_loss = fix_weights(config.loss, card.spec, checkpoint.class_pixels)
    resumed = find_resumed(config, job, holds=MANIFEST)
    keep_threads(device, resumed)
    (dataset,), (report,) = open_splits(config.data, [config.data.split])
    check_case_ids(config.metrics, dataset.spec, dataset.case_ids, images=True)
    loss = build_loss(weighted_loss, spec=dataset.spec, class_counts=checkpoint.class_pixels)
    warnings = mismatch_warnings(report.intensities, card.mean, card.std, card.clip)
    for line in (*warnings, *tuning_warnings(checkpoint.folders, dataset.case_ids)):
        _LOG.warning("%s", line)
    measured_loss = loss.to(device) if card.output == "logits" else None  # a model that gives labels has no loss
    with predicting(
        config,
        job,
        checkpoint,
        dataset,
        content=report.content_sha256,
        device=device,
        resumed=resumed,
        decided=config.replace(loss=weighted_loss),
    ) as run:
        summary = evaluate(run, metrics=config.metrics, loss=measured_loss)
        draw_predicted(run, config, config.metrics)
        write_worst_list(run.folder, dataset.spec, config.metrics, config.report.worst)
        value = record_results(run.folder, summary, config.report, objective)
    print_summary(summary)
    show_files(run.folder)
    sys.stdout.write(f"{run.predictor.stages.report()}\n")
    return value


def run_predict(config: PredictConfig, job: Job) -> None:
    """Predict an image or every image of a folder."""
    device = prepare_device(config.device)
    checkpoint = read_checkpoints(config.checkpoints, user_card=config.model)
    card = checkpoint.card
    build_steps(config.postprocess.steps, card.spec)
    resumed = find_resumed(config, job, holds=MANIFEST)
    keep_threads(device, resumed)
    dataset = prefer_bands(
        open_card_images(config.input, card, config.data),
        inference=config.inference,
        export=config.export,
        postprocess=config.postprocess,
    )
    content = dataset.fingerprint()
    with predicting(config, job, checkpoint, dataset, content=content, device=device, resumed=resumed) as run:
        count = predict(run)
        draw_predicted(run, config)
        record_results(run.folder, {}, config.report)
    sys.stdout.write(f"{count} images   {run.folder / 'predictions'}\n{run.predictor.stages.report()}\n")
    sys.stdout.write(f"precision  {run.predictor.precision} on {device}\n")
    if config.report.html:
        sys.stdout.write(f"report     {run.folder / 'report.html'}\n")


def identify_run(config: Trained, facts: Mapping[str, Any], device: torch.device, *, precision: str) -> dict[str, Any]:
    """Collect everything that decides the results: the contents of data and checkpoints, but not their location.

    `precision` is the actual one, as "auto" differs between machines.
    """
    groups = [group for group in _DECIDING if group in type(config).model_fields]
    values: dict[str, Any] = {group: as_plain(getattr(config, group)) for group in groups}
    for group, key in _FREE:
        values[group].pop(key, None)
    files = {name: facts[name] for name in ("checkpoint_sha256", "data")}
    threads = {"threads": torch.get_num_threads()} if device.type == "cpu" else {}
    metrics = getattr(config, "metrics", None)  # predict has none
    if metrics is not None:
        values["tables"] = hash_tables(metrics)
    computing = {"device": str(device), "precision": precision, **threads}
    return {**values, "files": files, **computing, "segmeter": __version__}


@contextmanager
def predicting(
    config: EvalConfig | PredictConfig,
    job: Job,
    checkpoint: Checkpoints,
    dataset: Dataset,
    *,
    content: str,
    device: torch.device,
    resumed: Path | None,
    decided: EvalConfig | None = None,
) -> Iterator[CaseRun]:
    """Open the run of a checkpoint on a data set, or on a shard of it. DICOM series are written after the block.

    Parameters
    ----------
    content
        The hash of the data set.
    resumed
        The folder of the run to continue.
    decided
        The configuration completed by the checkpoint, for example with class weights; None if it adds nothing.
    """
    series_folder = config.export.dicom_series
    if series_folder is not None and config.shard is not None:
        rule = "to be null with a shard, which may hold a part of a series"
        given = repr(str(series_folder))
        raise ConfigError(expected("export", "dicom_series", rule, given, "Run without shard and launch."))
    series = () if series_folder is None else find_series(series_folder, dataset, config.export)
    cases = dataset
    shard_identity: dict[str, Any] = {}
    batches: Sequence[int] | None = None
    if config.shard is not None:
        shard = parse_shard(config.shard)
        cases, batches = take_batches(dataset, shard, batch_size=config.inference.batch_size)
        _LOG.warning("%s", part_warning(shard, len(cases), len(dataset)))
        shard_identity = {"shard": describe_shard(shard, dataset.case_ids)}
    predictor = Predictor(checkpoint.load(device), config.inference, device)
    facts = {**checkpoint.facts(), "data": content, "precision": predictor.precision}
    identity = identify_run(decided or config, facts, device, precision=predictor.precision) | shard_identity
    accept = partial(check_same, resumed or NO_FOLDER, identity, cases.case_ids)
    with open_run(config, job, resumed=resumed, facts=facts, accept=accept) as folder:
        yield CaseRun(
            predictor=predictor,
            dataset=cases,
            export=config.export,
            postprocess=config.postprocess,
            folder=folder,
            identity=identity,
            resume=resumed is not None,
            batches=batches,
        )
        write_series(folder / PREDICTIONS, series, checkpoint.card.spec)


def draw_predicted(run: CaseRun, config: EvalConfig | PredictConfig, metrics: MetricsConfig | None = None) -> None:
    """Draw the chosen cases from the label maps that the run wrote, or warn if it wrote no readable ones.

    Parameters
    ----------
    run
        The finished run of the command.
    config
        The command's configuration, which says what was exported and which cases are drawn.
    metrics
        The measured metrics; None for `predict`, whose cases have no scores.

    Raises
    ------
    DataError
        One line for each problem of a file that can't be read.
    """
    report = config.report
    dataset = run.dataset
    if not report.overlays and not (report.worst and metrics):
        return None
    if not config.export.labels:
        return _LOG.warning("pictures: none are drawn, as export.labels=false keeps no label maps.")
    labels_format = config.export.labels_format
    if labels_format in ("mha", "nrrd") and find_spec("SimpleITK") is None:
        text = "pictures: none are drawn; reading %s needs: pip install 'segmeter[itk]'."
        return _LOG.warning(text, labels_format)
    if metrics is None:
        ranking = Ranking(case_ids=dataset.case_ids)
        report = report.replace(worst=0)
    else:
        ranking = Ranking.of(build_scoreboard(open_cases([run.folder]), dataset.spec, metrics))
    gives_objects = run.predictor.segmenter.card.output == "instances"
    has_objects = gives_objects or any(step.name in INSTANCE_STEPS for step in config.postprocess.steps)
    if has_objects and not config.export.instances:
        _LOG.warning("pictures: no objects are drawn, as export.instances=false keeps none of their numbers.")
        metrics = None
    cases = EvaluatedCases(predictions=run.folder / PREDICTIONS, dataset=dataset, metrics=metrics)
    return draw_run(run.folder, ranking, cases, report, dataset.spec)
