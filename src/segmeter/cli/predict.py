"""`segmeter predict`: a checkpoint and images -> label maps."""

import sys

from segmeter.cli.app import Job
from segmeter.cli.build import open_device
from segmeter.cli.config.schema import PredictConfig
from segmeter.cli.eval import checkpoint_facts
from segmeter.cli.overlays import Drawer
from segmeter.cli.run_folder import open_run
from segmeter.data.folder import open_images
from segmeter.evaluation.predict import PredictionRun, predict
from segmeter.inference.predictor import Predictor
from segmeter.models.checkpoint import read_checkpoint
from segmeter.postprocess.pipeline import build_steps


def run(config: PredictConfig, job: Job) -> None:
    """Predict an image or every image of a folder."""
    device = open_device(config.device)
    checkpoint = read_checkpoint(config.checkpoint)
    card = checkpoint.card
    dataset = open_images(config.input, spec=card.spec, in_channels=card.in_channels)
    build_steps(config.postprocess.steps, card.spec)
    segmenter = checkpoint.load_segmenter(device)
    with open_run(config, job, facts={**checkpoint_facts(checkpoint), "data": dataset.fingerprint()}) as folder:
        count = predict(
            PredictionRun(
                predictor=Predictor(segmenter, config.inference, device),
                dataset=dataset,
                export=config.export,
                postprocess=config.postprocess,
                folder=folder,
                on_case=Drawer(config.report, folder, card.spec),
            )
        )
    sys.stdout.write(f"{count} images   {folder / 'predictions'}\n")
