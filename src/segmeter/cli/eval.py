"""`segmeter eval`: a checkpoint and data -> label maps, figures, pictures, report."""

import sys
from pathlib import Path
from typing import Any

from segmeter import __version__
from segmeter.checks import expected
from segmeter.cli.app import Job
from segmeter.cli.build import check_fit, open_device, open_splits
from segmeter.cli.config.schema import EvalConfig
from segmeter.cli.overlays import Drawer
from segmeter.cli.resume import find_resumed
from segmeter.cli.run_folder import open_run
from segmeter.errors import ConfigError
from segmeter.evaluation.evaluate import Evaluation, evaluate
from segmeter.evaluation.manifest import NAME, check_same
from segmeter.inference.predictor import Predictor
from segmeter.losses.build import build_loss
from segmeter.metrics.config import check_clusters, check_metrics
from segmeter.models.checkpoint import Checkpoint, read_checkpoint
from segmeter.postprocess.pipeline import build_steps
from segmeter.report.html import write_report
from segmeter.report.table import print_summary
from segmeter.schema import as_plain


def run(config: EvalConfig, job: Job) -> float | None:
    """Evaluate; returns the dataset's mean IoU, which a sweep may optimise."""
    device = open_device(config.device)
    checkpoint = read_checkpoint(config.checkpoint)
    (dataset,), (report,) = open_splits(config.data, [config.data.split])
    check_fit(dataset, checkpoint.card)
    check_metrics(config.metrics, dataset.spec)
    check_clusters(config.metrics.cluster, dataset.case_ids)
    if len(config.metrics.spacing or (1, 1)) != 2:
        raise ConfigError(expected("metrics", "spacing", "to have 2 values, as images do", config.metrics.spacing))
    build_steps(config.postprocess.steps, dataset.spec)
    loss = build_loss(config.loss, spec=dataset.spec, class_counts=report.class_pixels)
    facts = {**checkpoint_facts(checkpoint), "data": report.content_sha256}
    identity, resumed = _identity(config, facts, str(device)), find_resumed(config, job, config.resume, holds=NAME)
    if resumed:  # before the folder's records are touched
        check_same(resumed, identity, dataset.case_ids)
    segmenter = checkpoint.load_segmenter(device)
    with open_run(config, job, resumed=resumed, facts=facts) as folder:
        draw = Drawer(config.report, folder, dataset.spec, config.metrics)
        summary = evaluate(
            Evaluation(
                predictor=Predictor(segmenter, config.inference, device),
                dataset=dataset,
                loss=loss.to(device),
                export=config.export,
                postprocess=config.postprocess,
                metrics=config.metrics,
                folder=folder,
                on_case=draw,
                identity=identity,
                resume=resumed is not None,
                on_restored=draw.remember,
            )
        )
    _show(config, folder, summary)  # after the run has closed its records, so that the report can say how it ended
    mean_iou: float | None = summary["dataset"]["mean_iou"]
    return mean_iou


def _identity(config: EvalConfig, facts: dict[str, Any], device: str) -> dict[str, Any]:
    """All that decides the results; where the data and the checkpoint lie does not, what is in them does."""
    groups = ("data", "loss", "inference", "export", "postprocess", "metrics")
    values: dict[str, Any] = {group: as_plain(getattr(config, group)) for group in groups}
    for group, key in (("data", "root"), ("export", "workers"), ("export", "queue_mb")):
        values[group].pop(key)
    kept = {name: facts[name] for name in ("checkpoint_sha256", "data")}
    return {**values, "files": kept, "device": device, "segmeter": __version__}


def checkpoint_facts(checkpoint: Checkpoint) -> dict[str, Any]:
    """What run.json says about the checkpoint."""
    return {
        "checkpoint": str(checkpoint.folder),
        "checkpoint_sha256": checkpoint.sha256,
        "trained": dict(checkpoint.progress),
    }


def _show(config: EvalConfig, folder: Path, summary: dict[str, Any]) -> None:
    print_summary(summary)
    lines = [f"figures   {folder / 'metrics.json'}", f"cases     {folder / 'cases.csv'}"]
    if config.report.overlays:
        lines.append(f"overlays  {folder / 'overlays'}")
    if config.report.html:
        lines.append(f"report    {write_report(folder, config.report)}")
    sys.stdout.write("\n".join(lines) + "\n")
