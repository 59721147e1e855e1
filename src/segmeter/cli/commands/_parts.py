"""Builds the parts that several commands need, such as the device and the identity of a run, from the configuration."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch

from segmeter import __version__
from segmeter.checks import expected
from segmeter.cli.config.model_schema import EvalConfig, ImagesConfig, PredictConfig, Trained
from segmeter.cli.config.trained_data import describe_data
from segmeter.cli.runs.run_folder import Job, open_run
from segmeter.data.config import DataConfig
from segmeter.data.dataset import Dataset
from segmeter.data.folders.folder import open_images
from segmeter.data.verification.intensity import clip_limits, normalisation
from segmeter.data.verification.report import DataReport
from segmeter.distributed.batches import take_batches
from segmeter.distributed.shards import describe_shard, parse_shard, part_warning
from segmeter.errors import ConfigError
from segmeter.evaluation.manifest import check_same, read_run_manifest
from segmeter.evaluation.predicted import PREDICTIONS, CaseRun
from segmeter.export.config import ExportConfig
from segmeter.export.dicom import Series, find_series, write_series
from segmeter.inference.device import keep_freed_memory, pick_device
from segmeter.inference.predictor import Predictor
from segmeter.metrics.summary.slice_labels import hash_tables
from segmeter.models.card import ModelCard, default_normalisation
from segmeter.models.trained import Checkpoints
from segmeter.records import read_run
from segmeter.schema import as_plain
from segmeter.threads import count_is_set, share_cores

_DECIDING = ("data", "loss", "inference", "export", "postprocess", "metrics")  # groups that decide the results
_FREE = (*(("data", key) for key in ("root", "verify", "timeout_s")), ("export", "workers"), ("export", "queue_mb"))
_LOG = logging.getLogger(__name__)


def open_device(name: str, local: int = 0) -> torch.device:
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


def choose_threads(resumed: Path | None) -> None:
    """Let a resumed training on a CPU keep the threads that it began with, unless the environment sets them."""
    if resumed is not None and not count_is_set():
        _set_threads(read_run(resumed).get("hardware", {}).get("threads"))


def keep_threads(device: torch.device, resumed: Path | None) -> None:
    """Let a resumed run compute with its original number of threads, on which the last bits depend on a CPU."""
    if device.type == "cpu" and resumed is not None:
        _set_threads(read_run_manifest(resumed)["identity"].get("threads"))


def _set_threads(began: Any) -> None:
    if isinstance(began, int) and began != torch.get_num_threads():
        _LOG.warning("resume: %d threads, as the run began with, not %d.", began, torch.get_num_threads())
        torch.set_num_threads(began)


def run_identity(config: Trained, facts: Mapping[str, Any], device: torch.device, *, precision: str) -> dict[str, Any]:
    """Collect everything that decides the results: the contents of data and checkpoints, but not their location.

    `precision` is the actual one, as "auto" differs between machines.
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
    """Return the DICOM series of the images, if segmentations of them are to be written.

    Raises
    ------
    ConfigError, DataError
        The segmentations can't be made (see `find_series`), or the job is a shard, which may split a series.
    """
    if export.dicom_series is None:
        return ()
    if shard is not None:
        rule, remedy = "to be null with a shard, which may hold a part of a series", "Run without shard and launch."
        raise ConfigError(expected("export", "dicom_series", rule, repr(str(export.dicom_series)), remedy))
    return find_series(export.dicom_series, dataset, export)


@contextmanager
def predicting(
    config: EvalConfig | PredictConfig,
    job: Job,
    checkpoint: Checkpoints,
    dataset: Dataset,
    *,
    content: str,
    device: torch.device,
    resumed: Path | None,
    decided: EvalConfig | None = None,
) -> Iterator[CaseRun]:
    """Open the run of a checkpoint on the cases of a data set, or on its shard; DICOM series are written at the end.

    Parameters
    ----------
    content
        The hash of the data set.
    resumed
        The folder of the run to continue.
    decided
        The configuration completed by the checkpoint, for example with class weights; None if it adds nothing.
    """
    series = open_series(config.export, dataset, config.shard)
    cases, batches, shard = take_shard(dataset, config.shard, batch_size=config.inference.batch_size)
    predictor = Predictor(checkpoint.load(device), config.inference, device)
    facts = {**checkpoint.facts(), "data": content, "precision": predictor.precision}
    identity = run_identity(decided or config, facts, device, precision=predictor.precision) | shard
    accept = partial(check_same, resumed or Path(), identity, cases.case_ids)
    with open_run(config, job, resumed=resumed, facts=facts, accept=accept) as folder:
        yield CaseRun(
            predictor=predictor,
            dataset=cases,
            export=config.export,
            postprocess=config.postprocess,
            folder=folder,
            identity=identity,
            resume=resumed is not None,
            batches=batches,
        )
        write_series(folder / PREDICTIONS, series, checkpoint.card.spec)


def take_shard(
    dataset: Dataset, text: str | None, *, batch_size: int
) -> tuple[Dataset, Sequence[int] | None, dict[str, Any]]:
    """Return a job's part of the data set, the batches of its cases, and the shard for the job's identity."""
    if text is None:
        return dataset, None, {}
    shard = parse_shard(text)
    part, batches = take_batches(dataset, shard, batch_size=batch_size)
    _LOG.warning("%s", part_warning(shard, len(part), len(dataset)))
    return part, batches, {"shard": describe_shard(shard, dataset.case_ids)}


def open_card_images(path: Path, card: ModelCard, limits: ImagesConfig) -> Dataset:
    """Open images for the model of a card, which also says whether they are volumes, and how it saw their planes."""
    return open_images(
        path,
        spec=card.spec,
        in_channels=card.plane_channels,
        max_pixels=limits.max_pixels,
        orientation=limits.orientation,
        level=limits.level,
        timeout_s=limits.timeout_s,
        planes=limits.planes or card.data.get("planes"),
        context=card.context,
        channel_files=card.data.get("channel_files", ()),
    )


def model_card(config: DataConfig, model: Any, seen: DataReport) -> ModelCard:
    """Return the model card that a checkpoint will hold.

    Parameters
    ----------
    seen
        The report on the training split. The normalisation is checked on it, or computed from it if "auto".

    Raises
    ------
    DataError
        The normalised inputs would be far from mean 0 and spread 1.
    """
    mean, std = normalisation(config, seen.intensities, default_normalisation(config.in_channels))
    planes = 1 + 2 * getattr(config, "context", 0)  # the network sees them side by side, each with all channels
    return ModelCard(
        model=as_plain(model),
        spec=config.spec(),
        in_channels=config.in_channels * planes,
        mean=mean * planes,
        std=std * planes,
        clip=clip_limits(config, seen.intensities) * planes,
        data=describe_data(config),
        class_pixels=tuple(int(count) for count in seen.class_pixels),
    )
