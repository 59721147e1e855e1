"""configuration -> the parts that several commands need."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from segmeter import __version__
from segmeter.checks import expected
from segmeter.cli.config.schema import Trained
from segmeter.cli.config.trained_data import describe_data
from segmeter.data.config import DataConfig
from segmeter.data.dataset import Dataset
from segmeter.data.verification.intensity import clip_limits, normalisation
from segmeter.data.verification.report import DataReport
from segmeter.distributed.batches import BatchOf, take_batches
from segmeter.distributed.shards import describe_shard, parse_shard, part_warning
from segmeter.errors import ConfigError
from segmeter.evaluation.manifest import read_run_manifest
from segmeter.export.config import ExportConfig
from segmeter.export.series import Series, find_series
from segmeter.inference.device import pick_device
from segmeter.inference.memory import keep_freed_memory
from segmeter.metrics.summary.slice_labels import hash_tables
from segmeter.models.card import ModelCard, default_normalisation
from segmeter.schema import as_plain
from segmeter.threads import share_cores

_DECIDING = ("data", "loss", "inference", "export", "postprocess", "metrics")  # groups that decide the results
_FREE = (*(("data", key) for key in ("root", "verify", "timeout_s")), ("export", "workers"), ("export", "queue_mb"))
_LOG = logging.getLogger(__name__)


def open_device(name: str, local: int = 0) -> torch.device:
    """Choose the device and the threads, and on a CPU let the process keep the memory that it frees.

    Parameters
    ----------
    name
        As the configuration says it.
    local
        Which of the processes of this machine asks: where they train together each has a GPU of its own.

    Raises
    ------
    ConfigError
        It is not there; the line says what is.
    """
    share_cores()
    device = pick_device(name)
    if device.type == "cuda" and local:
        device = pick_device(f"cuda:{local}")
    if device.type == "cpu":
        keep_freed_memory()
    return device


def keep_threads(device: torch.device, resumed: Path | None) -> None:
    """Let a resumed run compute with the threads that it began with: on a CPU the last bits depend on their number."""
    threads = read_run_manifest(resumed)["identity"].get("threads") if resumed else None
    if device.type == "cpu" and isinstance(threads, int) and threads != torch.get_num_threads():
        _LOG.warning("resume: %d threads, as the run began with, not %d.", threads, torch.get_num_threads())
        torch.set_num_threads(threads)


def run_identity(config: Trained, facts: Mapping[str, Any], device: torch.device, *, precision: str) -> dict[str, Any]:
    """All that decides the results: the contents of data and checkpoints, not where they lie.

    `precision` is the one that the model computes in, as "auto" means another one on another machine.
    """
    groups = [group for group in _DECIDING if group in type(config).model_fields]
    values: dict[str, Any] = {group: as_plain(getattr(config, group)) for group in groups}
    for group, key in _FREE:
        values[group].pop(key, None)
    kept = {name: facts[name] for name in ("checkpoint_sha256", "data")}
    threads = {"threads": torch.get_num_threads()} if device.type == "cpu" else {}
    metrics = getattr(config, "metrics", None)  # predict has none
    if metrics is not None:
        values["tables"] = hash_tables(metrics)
    computed = {"device": str(device), "precision": precision, **threads}
    return {**values, "files": kept, **computed, "segmeter": __version__}


def open_series(export: ExportConfig, dataset: Dataset, shard: str | None) -> tuple[Series, ...]:
    """The DICOM series of the images, where segmentations of them are asked for.

    Raises
    ------
    ConfigError, DataError
        They can't be made, see `find_series`; or the cases are a part of the run, which may part a series.
    """
    if export.dicom_series is None:
        return ()
    if shard is not None:
        rule, remedy = "to be null with a shard, which may hold a part of a series", "Run without shard and launch."
        raise ConfigError(expected("export", "dicom_series", rule, repr(str(export.dicom_series)), remedy))
    return find_series(export.dicom_series, dataset, export)


def take_shard(
    dataset: Dataset, text: str | None, *, batch_size: int
) -> tuple[Dataset, Sequence[BatchOf] | None, dict[str, Any]]:
    """The part of a data set that a job takes, the batches of its cases, and what the job's identity says of it."""
    if text is None:
        return dataset, None, {}
    shard = parse_shard(text)
    part, batches = take_batches(dataset, shard, batch_size=batch_size)
    _LOG.warning("%s", part_warning(shard, len(part), len(dataset)))
    return part, batches, {"shard": describe_shard(shard, dataset.case_ids)}


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
        class_pixels=tuple(int(count) for count in seen.class_pixels),
    )
