"""`segmeter predict`: runs a checkpoint on images and writes label maps."""

import sys

from segmeter.cli.commands._parts import keep_threads, open_card_images, open_device, predicting
from segmeter.cli.commands.eval import draw_predicted
from segmeter.cli.config.model_schema import PredictConfig
from segmeter.cli.runs.resume import find_resumed
from segmeter.cli.runs.run_folder import Job, note_done
from segmeter.evaluation.evaluate import PredictionRun, predict
from segmeter.evaluation.large import prefer_bands
from segmeter.evaluation.manifest import NAME
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
    content = dataset.fingerprint()
    with predicting(config, job, checkpoint, dataset, content=content, device=device, resumed=resumed) as run:
        folder, predictor = run.folder, run.predictor
        count = predict(PredictionRun(**vars(run)))
        draw_predicted(folder, run.dataset, config)
        if config.report.html:
            note_done(folder, {})
            write_report(folder, config.report)
    sys.stdout.write(f"{count} images   {folder / 'predictions'}\n{predictor.stages.report()}\n")
    sys.stdout.write(f"precision  {predictor.precision} on {device}\n")
    if config.report.html:
        sys.stdout.write(f"report     {folder / 'report.html'}\n")
