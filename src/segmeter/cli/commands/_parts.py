"""configuration -> the parts that several commands need."""

from typing import Any

import torch

from segmeter.cli.config.trained_data import describe_data
from segmeter.data.config import DataConfig
from segmeter.data.verification.intensity import clip_limits, normalisation
from segmeter.data.verification.report import DataReport
from segmeter.inference.allocator import keep_freed_memory
from segmeter.inference.device import pick_device
from segmeter.models.card import ModelCard, default_normalisation
from segmeter.schema import as_plain


def open_device(name: str) -> torch.device:
    """Choose the device, and on a CPU let the process keep the memory that it frees.

    Raises
    ------
    ConfigError
        It is not there; the line says what is.
    """
    device = pick_device(name)
    if device.type == "cpu":
        keep_freed_memory()
    return device


def model_card(config: DataConfig, model: Any, seen: DataReport) -> ModelCard:
    """What a checkpoint will say of itself.

    Parameters
    ----------
    seen
        What the training split holds; the normalisation is checked on it, and computed from it where it is "auto".

    Raises
    ------
    DataError
        The normalised inputs would be far from mean 0 and spread 1.
    """
    mean, std = normalisation(config, seen.intensities, default_normalisation(config.in_channels))
    return ModelCard(
        model=as_plain(model),
        spec=config.spec(),
        in_channels=config.in_channels,
        mean=mean,
        std=std,
        clip=clip_limits(config, seen.intensities),
        data=describe_data(config),
    )
