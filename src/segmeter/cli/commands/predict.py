"""`segmeter predict`: runs a checkpoint on images and writes label maps."""

import sys
from functools import partial
from pathlib import Path

from segmeter.cli.commands._parts import (
    keep_threads,
    open_card_images,
    open_device,
    open_series,
    run_identity,
    take_shard,
)
from segmeter.cli.config.model_schema import PredictConfig
from segmeter.cli.pictures import draw_predicted
from segmeter.cli.runs.resume import find_resumed
from segmeter.cli.runs.run_folder import Job, note_done, open_run
from segmeter.evaluation.evaluate import PredictionRun, predict
from segmeter.evaluation.large import prefer_bands
from segmeter.evaluation.manifest import NAME, check_same
from segmeter.evaluation.predicted import PREDICTIONS
from segmeter.export.dicom import write_series
from segmeter.inference.predictor import Predictor
from segmeter.models.trained import read_checkpoints
from segmeter.postprocess.pipeline import build_steps
from segmeter.report.html import write_report


def run(config: PredictConfig, job: Job) -> None:
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
    series = open_series(config.export, dataset, config.shard)
    predictor = Predictor(checkpoint.load(device), config.inference, device)
    facts = {**checkpoint.facts(), "data": dataset.fingerprint()}
    dataset, batches, shard = take_shard(dataset, config.shard, batch_size=config.inference.batch_size)
    computed = {"precision": predictor.precision}
    identity = run_identity(config, facts, device, **computed) | shard
    accept = partial(check_same, resumed or Path(), identity, dataset.case_ids)
    facts |= computed
    with open_run(config, job, resumed=resumed, facts=facts, accept=accept) as folder:
        count = predict(
            PredictionRun(
                predictor=predictor,
                dataset=dataset,
                export=config.export,
                postprocess=config.postprocess,
                folder=folder,
                identity=identity,
                resume=resumed is not None,
                batches=batches,
            )
        )
        write_series(folder / PREDICTIONS, series, card.spec)
        draw_predicted(folder, dataset, config)
        if config.report.html:
            note_done(folder, {})
            write_report(folder, config.report)
    sys.stdout.write(f"{count} images   {folder / 'predictions'}\n{predictor.stages.report()}\n")
    sys.stdout.write(f"precision  {predictor.precision} on {device}\n")
    if config.report.html:
        sys.stdout.write(f"report     {folder / 'report.html'}\n")
