"""configuration -> the parts that several commands need."""

from collections.abc import Sequence
from typing import Any

import torch

from segmeter.checks import expected
from segmeter.data.build import build_dataset
from segmeter.data.check import DataReport, check_splits
from segmeter.data.config import DataConfig
from segmeter.data.dataset import Dataset
from segmeter.errors import DataError
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


def open_splits(config: DataConfig, splits: Sequence[str]) -> tuple[tuple[Dataset, ...], tuple[DataReport, ...]]:
    """Open splits and read every file of them once, so that a bad one is named before any work starts.

    Raises
    ------
    DataError
        Every file that can't be used, and every case that two splits share.
    """
    datasets = tuple(build_dataset(config, split=split) for split in splits)
    return datasets, check_splits(datasets)


def model_card(config: DataConfig, model: Any) -> ModelCard:
    """What a checkpoint will say of itself."""
    mean, std = default_normalisation(config.in_channels)
    return ModelCard(
        model=as_plain(model),
        spec=config.spec(),
        in_channels=config.in_channels,
        mean=config.mean or mean,
        std=config.std or std,
    )


def check_fit(dataset: Dataset, card: ModelCard) -> None:
    """Refuse a data set whose classes or channels are not those that the checkpoint was trained on."""
    pairs = (
        ("data.task", dataset.spec.task, card.spec.task),
        ("data.classes", list(dataset.spec.names), list(card.spec.names)),
        ("data.in_channels", dataset.in_channels, card.in_channels),
    )
    remedy = "Set it as it was in training."
    problems = [
        expected("eval", key, f"to be the checkpoint's {theirs}", ours, remedy)
        for key, ours, theirs in pairs
        if ours != theirs
    ]
    if problems:
        raise DataError(problems)
