"""`segmeter predict`: a checkpoint and images -> label maps."""

import sys

from segmeter.cli.commands._overlays import Drawer
from segmeter.cli.commands._parts import open_device
from segmeter.cli.commands.eval import checkpoint_facts
from segmeter.cli.config.schema import PredictConfig
from segmeter.cli.runs.job import Job
from segmeter.cli.runs.run_folder import note_done, open_run
from segmeter.data.folders.folder import open_images
from segmeter.evaluation.predict import PredictionRun, predict
from segmeter.inference.predictor import Predictor
from segmeter.models.checkpoints.checkpoint import read_checkpoint
from segmeter.postprocess.pipeline import build_steps
from segmeter.report.html import write_report


def run(config: PredictConfig, job: Job) -> None:
    """Predict an image or every image of a folder."""
    device = open_device(config.device)
    checkpoint = read_checkpoint(config.checkpoint)
    card = checkpoint.card
    build_steps(config.postprocess.steps, card.spec)
    dataset = open_images(
        config.input,
        spec=card.spec,
        in_channels=card.in_channels,
        max_pixels=config.data.max_pixels,
        orientation=config.data.orientation,
    )
    segmenter = checkpoint.load_segmenter(device)
    with open_run(config, job, facts={**checkpoint_facts(checkpoint), "data": dataset.fingerprint()}) as folder:
        count = predict(
            PredictionRun(
                predictor=Predictor(segmenter, config.inference, device),
                dataset=dataset,
                export=config.export,
                postprocess=config.postprocess,
                folder=folder,
                on_case=Drawer(config.report.replace(worst=0), folder, card.spec),  # without scores none is worst
            )
        )
        if config.report.html:
            note_done(folder)
            write_report(folder, config.report)
    sys.stdout.write(f"{count} images   {folder / 'predictions'}\n")
    if config.report.html:
        sys.stdout.write(f"report     {folder / 'report.html'}\n")
