"""Data, model and configurations -> a job: caches, source of samples and augmentation come together here."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import nn

from segmeter.models.segmenter import Segmenter
from segmeter.training.augment import Augment
from segmeter.training.augment_config import AugmentConfig
from segmeter.training.cache import Budget, CachedCases, Cases
from segmeter.training.config import TrainingConfig
from segmeter.training.job import TrainJob
from segmeter.training.sampling import SampleSource

BYTES_PER_GB = 10**9


def build_job(
    *,
    folder: Path,
    segmenter: Segmenter,
    loss: nn.Module,
    train_data: Cases,
    val_data: Cases | None,
    training: TrainingConfig,
    augment: AugmentConfig,
    identity: Mapping[str, Any],
    **settings: Any,
) -> TrainJob:
    """Put a job together.

    Parameters
    ----------
    folder, segmenter, loss, training
        See `TrainJob`.
    train_data, val_data
        Data sets; both are cached within ``training.cache_gb``, the training cases first.
    augment
        How samples are drawn and changed.
    identity
        The configurations that this function does not see (loss, data), as plain values, compared on resuming.
    settings
        The other fields of `TrainJob`.

    Returns
    -------
    What `segmeter.training.loop.train` takes.
    """
    budget = Budget(int(training.cache_gb * BYTES_PER_GB))
    train_cases = CachedCases(train_data, budget)
    return TrainJob(
        folder=folder,
        segmenter=segmenter,
        loss=loss,
        source=SampleSource(train_cases, augment, batch_size=training.batch_size, seed=training.seed),
        train_cases=train_cases,
        val_cases=None if val_data is None else CachedCases(val_data, budget),
        augment=Augment(augment, segmenter.card.spec),
        training=training,
        identity={"augment": asdict(augment), **identity},
        **settings,
    )
