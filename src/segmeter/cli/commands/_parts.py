"""Builds from the configuration the parts that several commands need, such as the device and the model card."""

import logging
from pathlib import Path
from typing import Any

import torch

from segmeter.cli.config.model_command_configs import ImagesConfig
from segmeter.cli.config.trained_data import describe_data
from segmeter.data.config import DataConfig
from segmeter.data.dataset import Dataset
from segmeter.data.folder import open_images
from segmeter.data.verification.intensity import clip_limits, normalisation
from segmeter.data.verification.splits import DataReport
from segmeter.evaluation.manifest import read_run_manifest
from segmeter.inference.device import keep_freed_memory, pick_device
from segmeter.models.config import ModelCard, default_normalisation
from segmeter.records import read_run
from segmeter.schema import as_plain
from segmeter.threads import count_is_set, share_cores

_LOG = logging.getLogger(__name__)


def prepare_device(name: str, local: int = 0) -> torch.device:
    """Choose the device and the number of threads, and on a CPU let the process keep freed memory.

    Parameters
    ----------
    name
        The device in the configuration.
    local
        The rank of this process on this machine; processes that train together get one GPU each.

    Raises
    ------
    ConfigError
        There is no such device; the line lists those that exist.
    """
    share_cores()
    device = pick_device(name)
    if device.type == "cuda" and local:
        device = pick_device(f"cuda:{local}")
    if device.type == "cpu":
        keep_freed_memory()
    return device


def keep_threads(device: torch.device, resumed: Path | None, *, trains: bool = False) -> None:
    """Let a resumed run use its original number of threads: on a CPU the last bits of results depend on it.

    For a training, the environment may set another number.
    """
    if device.type != "cpu" or resumed is None or (trains and count_is_set()):
        return
    facts = read_run(resumed).get("hardware", {}) if trains else read_run_manifest(resumed)["identity"]
    n_threads = facts.get("threads")
    if isinstance(n_threads, int) and n_threads != torch.get_num_threads():
        _LOG.warning("resume: %d threads, as the run began with, not %d.", n_threads, torch.get_num_threads())
        torch.set_num_threads(n_threads)


def open_card_images(path: Path, card: ModelCard, limits: ImagesConfig) -> Dataset:
    """Open images for the model of a card, which also says whether they are volumes and how these are cut."""
    return open_images(
        path,
        spec=card.spec,
        in_channels=card.plane_channels,
        max_pixels=limits.max_pixels,
        orientation=limits.orientation,
        level=limits.level,
        timeout_s=limits.timeout_s,
        planes=limits.planes or card.data.get("planes"),
        context=int(card.data.get("context", 0)),
        channel_files=card.data.get("channel_files", ()),
    )


def model_card(config: DataConfig, model: Any, train_report: DataReport) -> ModelCard:
    """Return the model card that a checkpoint will hold.

    Parameters
    ----------
    train_report
        The report on the training split. The normalisation is checked against it, or computed from it if "auto".

    Raises
    ------
    DataError
        The normalised inputs would be far from mean 0 and spread 1.
    """
    mean, std = normalisation(config, train_report.intensities, default_normalisation(config.in_channels))
    planes = 1 + 2 * getattr(config, "context", 0)  # planes are stacked as channels, each with all of its own
    return ModelCard(
        model=as_plain(model),
        spec=config.spec(),
        in_channels=config.in_channels * planes,
        mean=mean * planes,
        std=std * planes,
        clip=clip_limits(config, train_report.intensities) * planes,
        data=describe_data(config),
        class_pixels=tuple(int(count) for count in train_report.class_pixels),
    )
