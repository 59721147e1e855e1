"""`segmeter eval` and `predict`: run a checkpoint on a data set with masks, or on images alone."""

import logging
import sys
from importlib.util import find_spec
from pathlib import Path

from segmeter.checks import expected
from segmeter.classes import ClassSpec
from segmeter.cli.commands._parts import keep_threads, open_card_images, open_device, predicting
from segmeter.cli.config.model_schema import EvalConfig, PredictConfig
from segmeter.cli.runs.objective import find_objective, results
from segmeter.cli.runs.resume import find_resumed
from segmeter.cli.runs.run_folder import Job, note_done, show_files
from segmeter.data.dataset import Dataset
from segmeter.data.verification.intensity import mismatch_warnings
from segmeter.data.verification.report import open_splits
from segmeter.errors import ConfigError
from segmeter.evaluation.decisions.tune import tuning_warnings
from segmeter.evaluation.evaluate import Evaluation, evaluate, predict
from segmeter.evaluation.large import prefer_bands
from segmeter.evaluation.manifest import NAME
from segmeter.evaluation.predicted import PREDICTIONS
from segmeter.losses.build import build_loss, fix_weights
from segmeter.metrics.cases.stored import open_cases
from segmeter.metrics.config.metrics import MetricsConfig, check_metrics, with_objects
from segmeter.metrics.summary.scoreboard import build_scoreboard, settle_headline
from segmeter.metrics.summary.slice_labels import check_case_ids
from segmeter.models.card import ModelCard
from segmeter.models.trained import read_checkpoints
from segmeter.postprocess.config import INSTANCE_STEPS
from segmeter.postprocess.pipeline import build_steps
from segmeter.report.html import write_report
from segmeter.report.pictures.chosen import Ranking
from segmeter.report.pictures.finished import EvaluatedCases, draw_run
from segmeter.report.pictures.worst import write_worst_list
from segmeter.report.summary import print_summary

_LOG = logging.getLogger(__name__)


def run_eval(config: EvalConfig, job: Job) -> float | None:
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
    for line in tuning_warnings(checkpoint.folders, dataset.case_ids):
        _LOG.warning("%s", line)
    measured = loss.to(device) if checkpoint.card.output == "logits" else None  # labels have none
    decided = config.replace(loss=weighted)
    with predicting(
        config, job, checkpoint, dataset, content=content, device=device, resumed=resumed, decided=decided
    ) as run:
        folder, predictor = run.folder, run.predictor
        summary = evaluate(Evaluation(**vars(run), loss=measured, metrics=config.metrics))
        draw_predicted(folder, run.dataset, config, config.metrics)
        write_worst_list(folder, dataset.spec, config.metrics, config.report.worst)
        found = results(summary, objective)
        note_done(folder, found)
        if config.report.html:
            write_report(folder, config.report)
    print_summary(summary)
    show_files(folder)
    sys.stdout.write(f"{predictor.stages.report()}\n")
    return next(iter(found.values()))


def run_predict(config: PredictConfig, job: Job) -> None:
    """Predict an image or every image of a folder."""
    device = open_device(config.device)
    checkpoint = read_checkpoints(config.checkpoints, told=config.model)
    card = checkpoint.card
    build_steps(config.postprocess.steps, card.spec)
    resumed = find_resumed(config, job, config.resume, holds=NAME)
    keep_threads(device, resumed)
    dataset = prefer_bands(
        open_card_images(config.input, card, config.data),
        inference=config.inference,
        export=config.export,
        postprocess=config.postprocess,
    )
    content = dataset.fingerprint()
    with predicting(config, job, checkpoint, dataset, content=content, device=device, resumed=resumed) as run:
        folder, predictor = run.folder, run.predictor
        count = predict(run)
        draw_predicted(folder, run.dataset, config)
        if config.report.html:
            note_done(folder, {})
            write_report(folder, config.report)
    sys.stdout.write(f"{count} images   {folder / 'predictions'}\n{predictor.stages.report()}\n")
    sys.stdout.write(f"precision  {predictor.precision} on {device}\n")
    if config.report.html:
        sys.stdout.write(f"report     {folder / 'report.html'}\n")


def _check(config: EvalConfig, spec: ClassSpec) -> str | None:
    """Run the checks that need no data before any is read or drawn, and return the name of the objective."""
    axes, kind = (2, "images") if getattr(config.data, "planes", None) is None else (3, "volumes")
    if len(config.metrics.spacing or (1,) * axes) != axes:
        raise ConfigError(
            expected("metrics", "spacing", f"to have {axes} values, as {kind} do", config.metrics.spacing)
        )
    objective = find_objective(config.objective, config.metrics, spec)
    build_steps(config.postprocess.steps, spec)
    return objective


def _open(config: EvalConfig, card: ModelCard) -> tuple[Dataset, str]:
    """Return the checked data set with its content hash. Warns of intensities unlike those in training."""
    (dataset,), (report,) = open_splits(config.data, [config.data.split])
    for line in mismatch_warnings(report.intensities, card.mean, card.std, card.clip):
        _LOG.warning("%s", line)
    check_case_ids(config.metrics, dataset.spec, dataset.case_ids, images=True)
    return dataset, report.content_sha256


def draw_predicted(
    folder: Path, dataset: Dataset, config: EvalConfig | PredictConfig, metrics: MetricsConfig | None = None
) -> None:
    """Draw the chosen cases from the label maps that the run wrote, or warn if it wrote none that can be read.

    Parameters
    ----------
    folder
        The run's folder.
    dataset
        The predicted cases.
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
    if not report.overlays and not (report.worst and metrics):
        return None
    if not config.export.labels:
        return _LOG.warning("pictures: none are drawn, as export.labels=false keeps no label maps.")
    file_format = config.export.labels_format
    if file_format in ("mha", "nrrd") and find_spec("SimpleITK") is None:
        return _LOG.warning("pictures: none are drawn; reading %s needs: pip install 'segmeter[itk]'.", file_format)
    if metrics is None:
        ranking, report = Ranking(case_ids=dataset.case_ids), report.replace(worst=0)
    else:
        ranking = Ranking.of(build_scoreboard(open_cases([folder]), dataset.spec, metrics))
    numbered = any(step.name in INSTANCE_STEPS for step in config.postprocess.steps)
    if numbered and not config.export.instances:
        _LOG.warning("pictures: no objects are drawn, as export.instances=false keeps none of their numbers.")
        metrics = None
    read = EvaluatedCases(predictions=folder / PREDICTIONS, dataset=dataset, metrics=metrics)
    return draw_run(folder, ranking, read, report, dataset.spec)
