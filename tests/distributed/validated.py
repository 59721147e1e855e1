"""A validation as each process of a world takes part in it."""

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from segmeter.data.sample import Sample
from segmeter.distributed.ranks import World
from segmeter.errors import RunError, StopSignals
from segmeter.inference.config import InferenceConfig
from segmeter.inference.results import Prediction
from segmeter.training.clock import Limits
from segmeter.training.learner import Learner
from segmeter.training.validation import Validator, score_share
from tests.training.tiny import TinyCases, tiny_job, tiny_segmenter


class MixedCases(TinyCases):
    """Cases of two sizes, so that batches are not all full, and no number of processes divides them."""

    def __getitem__(self, index: int) -> Sample:
        sample = super().__getitem__(index)
        end = 12 if index in (3, 6, 7) else 16
        assert sample.target is not None
        return replace(sample, image=sample.image[:end], target=sample.target[:end])


def name_of(prediction: Prediction, folder: Path) -> Path:
    """Stands for a picture, and says what would be drawn."""
    return folder / f"{prediction.sample.case_id} {int(prediction.labels.sum())}.png"


def validate_each_way(world: World, folder: Path) -> list[Any]:
    """What rank 0 has of four validations: a whole one, one with a fault in rank 1, and with a signal to rank 1 or 0.

    The running statistics of batch norm differ between the processes.
    """
    found: list[Any] = []
    for poisoned, signalled in ((), None), ((2,), None), ((), 1), ((), 0):
        cases, stop = MixedCases(count=11, poisoned=poisoned), StopSignals()
        options = {"inference": InferenceConfig(precision="float32", batch_size=2), "draw": name_of, "pictures": 4}
        job = tiny_job(folder, val_cases=cases, world=world, segmenter=tiny_segmenter(), **options)
        learner = Learner(job, torch.device("cpu"), Limits(config=job.settings.training, batches_per_epoch=2))
        learner.published.network.layers[1].running_mean += world.rank
        stop.hear(int(signal.SIGUSR1) if world.rank == signalled else 0)
        if not world.leads:
            world.gather(score_share(job, learner, stop=stop))
            continue
        validator = Validator(job, learner, step=0, show=lambda words: None, stop=stop)
        try:
            found.append((validator(7, 0.1), stop.number))
        except RunError as error:
            found.append(str(error))
        validator.settle()
    return found
