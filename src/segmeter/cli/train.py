"""`segmeter train`: data and configuration -> checkpoints."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from segmeter.cli.app import Job
from segmeter.cli.build import model_card, open_device, open_splits
from segmeter.cli.config.schema import TrainConfig
from segmeter.cli.resume import find_resumed
from segmeter.cli.run_folder import open_run
from segmeter.losses.build import build_loss
from segmeter.models.build import build_segmenter
from segmeter.report.html import write_report
from segmeter.schema import as_plain
from segmeter.training.augment import Augment
from segmeter.training.cache import Budget, CachedCases
from segmeter.training.job import TrainJob, TrainResult
from segmeter.training.loop import train
from segmeter.training.sampling import SampleSource


def run(config: TrainConfig, job: Job) -> float | None:
    """Train; returns the best score, which a sweep may optimise."""
    device = open_device(config.device)
    resumed = find_resumed(config, job, config.resume, holds="checkpoints")
    (train_data, val_data), (seen, _) = open_splits(config.data, ["train", "val"])
    loss = build_loss(config.loss, spec=train_data.spec, class_counts=seen.class_pixels)
    torch.manual_seed(config.seed)  # the first weights
    segmenter = build_segmenter(model_card(config.data, config.model))
    budget = Budget(int(config.training.cache_gb * 1e9))
    train_cases, val_cases = CachedCases(train_data, budget), CachedCases(val_data, budget)
    seed, batch_size = config.training.seed, config.training.batch_size
    with open_run(config, job, resumed=resumed, facts={"data": seen.content_sha256}) as folder:
        result = train(
            TrainJob(
                folder=folder,
                segmenter=segmenter,
                loss=loss,
                source=SampleSource(train_cases, config.augment, batch_size=batch_size, seed=seed),
                train_cases=train_cases,
                val_cases=val_cases if len(val_data) else None,
                augment=Augment(config.augment, train_data.spec),
                training=config.training,
                optimizer=config.optimizer,
                schedule=config.schedule,
                inference=config.inference,
                logger=config.logger,
                device=str(device),
                identity=_identity(config),
                resume=resumed is not None,
                allow_changes=config.allow_changes,
            )
        )
    write_report(folder)  # after the run has closed its records
    _show(folder, result, config.training.monitor)
    return result.score


def _identity(config: TrainConfig) -> dict[str, Any]:
    return {"loss": as_plain(config.loss), "augment": as_plain(config.augment), "data": as_plain(config.data)}


def _show(folder: Path, result: TrainResult, monitor: str) -> None:
    score = "not validated" if result.score is None or np.isnan(result.score) else f"{monitor} {result.score:.4f}"
    sys.stdout.write(
        f"{result.steps} steps, {result.epochs:.1f} epochs in {result.seconds:.0f} s "
        f"({result.images_per_second:.1f} images/s), ended by: {result.reason}\n"
        f"best      {score}   {folder / 'checkpoints' / 'best'}\n"
        f"report    {folder / 'report.html'}\n"
    )
