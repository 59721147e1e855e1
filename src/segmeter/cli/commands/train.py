"""`segmeter train`: trains a model on a data set, by a plan that suits both the data and the machine."""

import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from segmeter.classes import CORE, ClassSpec
from segmeter.cli.commands._folds import advise, run_folds
from segmeter.cli.commands._parts import keep_threads, model_card, prepare_device
from segmeter.cli.config.model_command_configs import TrainConfig
from segmeter.cli.folders import NO_FOLDER, SAVED_STEPS, Job, find_resumed, try_read_run
from segmeter.cli.run_folder import mask, note_done, open_run
from segmeter.data.dataset import Dataset
from segmeter.data.files.refusals import known_place
from segmeter.data.planes import VolumeSet
from segmeter.data.verification.splits import DataReport, open_splits
from segmeter.distributed.ranks import World, joined
from segmeter.distributed.shards import find_rank
from segmeter.inference.results import Prediction
from segmeter.losses.config import build_loss
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.pixels.confusion import count_case
from segmeter.metrics.summary.scoreboard import build_scoreboard
from segmeter.models.segmenter import build_segmenter
from segmeter.postprocess.config import SEPARATING, StepConfig
from segmeter.report.figures import number
from segmeter.report.html import write_report
from segmeter.report.page.training import FIRST_BATCH
from segmeter.report.pictures.flatten import class_legend, compose, draw_overlay, flatten, write_overlay
from segmeter.report.pictures.layers import draw_layers
from segmeter.report.pictures.maps import HATCHED
from segmeter.schema import as_plain
from segmeter.training.clock import PROFILE, TABLE, TRACE
from segmeter.training.config import LOSS, TrainingConfig, find_monitor
from segmeter.training.data.augment import Augment
from segmeter.training.data.cases import Budget, CachedDataset, PlaneCases, spread_evenly
from segmeter.training.data.epoch import Sources
from segmeter.training.data.sampling import SampleSource
from segmeter.training.data.windows import PartReader
from segmeter.training.job import TrainData, TrainJob, TrainResult, TrainSettings, check_job
from segmeter.training.plan import TrainPlan, fit_budget, left_open, plan_training
from segmeter.training.step import time_step
from segmeter.training.trainer import check_resumed, follow, train
from segmeter.training.validation import UNLEARNED

_LOG = logging.getLogger(__name__)
BATCH_PANEL = 240  # the longest side of a sample in first_batch.png, in pixels
_GAP = 6  # the pixels between an image and its target
CASE_PANEL = 320  # the longest side of a panel of a validated case, in pixels: small, as there are many
TIMING_SHARE = 0.02  # the share of a time budget that may go into timing steps, by which the plan is fitted


def run_train(config: TrainConfig, job: Job) -> float | None:
    """Train, and return the best score, which a sweep may optimise. Only the first of several processes returns one."""
    if config.folds is not None:
        run_folds(config, job, config.folds)
        return None
    place, minutes = find_rank(), config.training.stall_minutes
    device = prepare_device(config.device, place.local if place else 0)
    with joined(place, device, None if minutes is None else 60 * minutes) as world:
        return _train(config, job, device, world)


def _train(config: TrainConfig, job: Job, device: torch.device, world: World) -> float | None:
    resumed = find_resumed(config, job, holds=SAVED_STEPS) if world.leads else None
    if world.size == 1:
        keep_threads(device, resumed, trains=True)
    # refuses an unknown monitor before any data is read or drawn
    find_monitor(config.training.monitor, config.data.spec(), objects=bool(_steps(config)))
    with world.first_alone():
        datasets, (train_report, val_report) = open_splits(config.data, ["train", "val"], names_of=["test"])
    # chooses a crop and a batch size that are "auto"; with training.plan it chooses more
    plan = plan_training(config.training, config.data, config.augment, train_report=train_report, device=device.type)
    build_job = partial(
        _build_job,
        datasets=datasets,
        train_report=train_report,
        world=world,
        device=device,
        resumed=resumed,
    )
    record = try_read_run(resumed) if resumed else {}
    plan = plan.resumed(config, job.overrides, record)
    if world.leads and resumed is None and config.training.plan and plan.training.budget_seconds is not None:
        plan = _fit(plan, config, job, build_job, train_report=train_report, val_cases=val_report.n_planes)
    planned = world.broadcast(_planned(config, plan))
    train_job = build_job(planned)
    if not world.leads:
        follow(train_job)
        return None
    check_job(train_job)
    weights = record.get("initial_weights") or getattr(train_job.segmenter.network, "weights_report", None)
    expected = {"planned_steps": plan.steps} if plan.steps else {}
    facts = {
        "data": train_report.content_sha256,
        "val_data": val_report.content_sha256,
        "data_root": known_place(Path(planned.data.root).expanduser()),  # where eval finds the data again
        "planned": as_plain(plan.chosen),
        **expected,
        **({} if weights is None else {"initial_weights": weights}),
    }
    with open_run(planned, job, resumed=resumed, facts=facts, accept=partial(check_resumed, train_job)) as folder:
        if device.type == "cpu":
            _LOG.info("training on the CPU in %d threads", torch.get_num_threads())
        _print_plan(plan)
        for line in dict.fromkeys([*train_report.warnings, *val_report.warnings]):
            _LOG.warning("%s", line)
        advise(planned.data, *datasets, validates=planned.training.validate_every is not None)
        result = train(replace(train_job, folder=folder))
        note_done(folder, {**_scores(result), "steps": result.steps, **expected, "seconds": round(result.seconds, 1)})
        write_report(folder)
    _print_end(folder, planned.training, result, plan.steps)
    return result.score


def _planned(config: TrainConfig, plan: TrainPlan) -> TrainConfig:
    model = config.model.replace(**plan.model) if plan.model else config.model
    return config.replace(training=plan.training, data=plan.data, augment=plan.augment, model=model)


def _fit(
    plan: TrainPlan,
    config: TrainConfig,
    job: Job,
    build_job: Callable[[TrainConfig], TrainJob],
    *,
    train_report: DataReport,
    val_cases: int,
) -> TrainPlan:
    """Time some warm steps, show the first loss, and fit the plan to the time budget.

    If that changes the plan, time a step of the fitted one, and fit the given plan once more by what was learned. So a
    first measurement that was too slow does no lasting harm.
    """
    is_open = partial(left_open, config, job.overrides)
    limit_s = TIMING_SHARE * (plan.training.budget_seconds or 0)
    train_job = build_job(_planned(config, plan))
    step_s, loss = time_step(train_job, limit_s=limit_s)
    threads = f" in {torch.get_num_threads()} threads" if train_job.device.type == "cpu" else ""
    sys.stdout.write(f"measured  {step_s:.2g} s a step{threads}, loss {loss:.4f} before training\n")
    sys.stdout.flush()
    fit = partial(fit_budget, plan, config.model, train_report=train_report, val_cases=val_cases, is_open=is_open)
    fitted = fit(step_s=step_s)
    if _planned(config, fitted) == _planned(config, plan):
        return fitted
    seconds, _ = time_step(build_job(_planned(config, fitted)), limit_s=limit_s)
    return fit(step_s=step_s * seconds / fitted.step_s)  # corrected by what the fitted plan's step takes in truth


def _build_job(
    config: TrainConfig,
    *,
    datasets: Sequence[Dataset],
    train_report: DataReport,
    world: World,
    device: torch.device,
    resumed: Path | None,
) -> TrainJob:
    """Return the job to train. A new run gets its folder later, and rank 0 of it the first weights."""
    spec = datasets[0].spec
    loss = build_loss(config.loss, spec=spec, class_counts=train_report.class_pixels)
    torch.manual_seed(config.training.seed)  # of the initial weights; `training_environment` seeds the loop
    # a resumed run and the other processes load weights, so they need no file of `model.weights`
    card = model_card(config.data, config.model, train_report)
    segmenter = build_segmenter(card, initialise=world.leads and resumed is None)
    return TrainJob(
        folder=resumed or NO_FOLDER,
        settings=TrainSettings(
            training=config.training,
            optimizer=config.optimizer,
            schedule=config.schedule,
            inference=config.inference,
            loggers=config.logger.all,
            device=str(device),
            identity={key: as_plain(getattr(config, key)) for key in ("loss", "augment", "data")},
            masked=mask(as_plain(config)),
            steps=_steps(config),
            allow_changes=config.allow_changes,
        ),
        data=_open_data(config, *datasets, train_report=train_report, world=world, device=device),
        segmenter=segmenter,
        loss=loss,
        resume=resumed is not None,
        world=world,
        draw=partial(draw_validated, spec=spec),
        draw_batch=partial(draw_batch, spec=spec),
    )


def _open_data(
    config: TrainConfig,
    data: Dataset,
    val_data: Dataset,
    *,
    train_report: DataReport,
    world: World,
    device: torch.device,
) -> TrainData:
    """Return the samples to train on and the cases to validate on. Volumes are replaced by their planes."""
    presence = train_report.presence
    overfit_batches = config.training.overfit_batches
    if overfit_batches:  # train and validate on the first cases only
        data = val_data = data.subset(range(min(len(data), overfit_batches * int(config.training.batch_size))))
        presence = presence[: len(data)]
    sources = Sources.named((pair.source for pair in data.pairs), data.weights)
    val_cases: Dataset | PlaneCases = val_data
    if isinstance(data, VolumeSet):
        assert isinstance(val_data, VolumeSet)  # both splits are of one kind
        planes = PlaneCases(data, empty=config.data.empty_planes)
        val_cases = PlaneCases(val_data)
        cache_budget = Budget(0)  # unpacked planes are mapped files, which the system caches
        cases = CachedDataset(planes, cache_budget)
        presence = planes.presence
        sources = sources and Sources(sources.of[[index for index, _ in planes.places]], sources.weights)
    else:
        cache_budget = Budget(int(config.training.cache_gb * 1e9))
        data_with_cores = replace(data, core_depth=getattr(config.data, "core_depth", None))
        cases = CachedDataset(data_with_cores, cache_budget, parts=PartReader(data))
    source = SampleSource(
        cases,
        config.augment.replace(zoom=(1.0, 1.0), resolution=1.0) if overfit_batches else config.augment,
        batch_size=int(config.training.batch_size),
        seed=config.training.seed,
        samples=config.data.samples_per_epoch,
        presence=presence,
        downsample=getattr(config.model, "downsample", 1),
        part=(world.rank, world.size),
        sources=sources,
        defer=device.type == "cuda",
    )
    if config.training.validate_cases:
        val_cases = val_cases.subset(spread_evenly(len(val_cases), config.training.validate_cases))
    return TrainData(
        source=source,
        train_cases=cases,
        val_cases=CachedDataset(val_cases, cache_budget) if len(val_cases) else None,
        augment=None if overfit_batches else Augment(config.augment, data.spec),
    )


def _steps(config: TrainConfig) -> tuple[StepConfig, ...]:
    """Return the post-processing by which validation separates touching objects. eval uses the same steps."""
    return () if getattr(config.data, "core_depth", None) is None else SEPARATING


def _print_plan(plan: TrainPlan) -> None:
    """Print the planned values, as overrides that could be typed."""
    if plan.chosen:
        text = " ".join(plan.overrides)
        sys.stdout.write(f"planned   {text}\n")
        _LOG.info("planned: %s", text)
    if plan.step_s:
        sys.stdout.write(f"expected  about {plan.steps} steps of {plan.step_s:.2g} s, and time to validate\n")
    if plan.problem:
        _LOG.warning(plan.problem)


def _scores(result: TrainResult) -> dict[str, float | None]:
    """Return the scores of the best checkpoint, the one that chose it first; {} without validation."""
    return {} if result.score is None else {result.monitor: result.score, "mean_iou": result.values.get("mean_iou")}


def _print_end(folder: Path, config: TrainingConfig, result: TrainResult, planned: int) -> None:
    """Print how the training ended, its best checkpoint, and the answers of debug=overfit and debug=profile."""
    checkpoint = f"last      not validated   {folder / 'checkpoints' / 'last'}"
    if result.score is not None:
        scores = ", ".join(f"{name} {number(value)}" for name, value in _scores(result).items())
        checkpoint = f"best      {scores}   {folder / 'checkpoints' / 'best'}"
    steps = f"{result.steps} of {planned} planned steps" if planned else f"{result.steps} steps"
    sys.stdout.write(
        f"{steps}, {result.epochs:.1f} epochs in {result.seconds:.0f} s "
        f"({result.images_per_second:.1f} images/s), ended by: {result.reason}\n"
        f"{checkpoint}\n"
        f"report    {folder / 'report.html'}\n"
    )
    if result.unlearned:
        sys.stderr.write(
            f"warning: IoU below {UNLEARNED} at the best checkpoint, though the validation masks hold them: "
            f"{', '.join(result.unlearned)}.\n"
        )
    if config.profile_steps and (folder / PROFILE / TABLE).is_file():
        sys.stdout.write(f"profile   {folder / PROFILE / TABLE}, {TRACE} beside it for chrome://tracing or Perfetto\n")
    if config.overfit_batches and config.stop_at is not None:
        is_fitted = result.reason.startswith("stop_at")
        side = "above" if result.monitor == LOSS else "below"
        verdict = "fits" if is_fitted else f"DOES NOT FIT: {side} {config.stop_at:g}"
        score = f"{result.monitor} {number(result.score)} on the samples it was trained on, after {result.steps} steps"
        sys.stdout.write(f"overfit   {verdict}: {score}\n")
        if not is_fitted:
            sys.stdout.write(f"          look at masks and predictions in {folder / 'validation'}\n")


def draw_batch(
    images: NDArray[Any], targets: NDArray[Any], case_ids: Sequence[str], folder: Path, *, spec: ClassSpec
) -> Path:
    """Draw the samples of a batch side by side as first_batch.png, with the targets under the images.

    Parameters
    ----------
    images : (B, H, W, C)
        In the form that `display_image` takes.
    targets : (B, H, W), or (B, K, H, W) for multilabel, integer
        The classes of each pixel.
    """
    if not spec.is_ignored(CORE):
        targets = np.where(targets == CORE, 1, targets)
    samples = [
        draw_layers(image, None, target, spec, edge=BATCH_PANEL) for image, target in zip(images, targets, strict=True)
    ]
    pairs = [[flatten(layers, role, panel=BATCH_PANEL) for role in ("image", "prediction")] for layers in samples]
    gap = np.full((_GAP, pairs[0][0].shape[1], 3), 22, np.uint8)
    panels = [
        (name, np.concatenate([image, gap, target])) for name, (image, target) in zip(case_ids, pairs, strict=True)
    ]
    is_hatched = any(entry.get("hatched") for layers in samples for layer in layers.maps for entry in layer.entries)
    picture = compose(
        panels,
        title="first batch, as the network is given it",
        figure=f"{images.shape[1]} x {images.shape[2]} pixels",
        legend=[[*class_legend(samples), *([("ignored", HATCHED)] if is_hatched else [])]],
    )
    return write_overlay(folder, Path(FIRST_BATCH).stem, picture)


def draw_validated(prediction: Prediction, folder: Path, *, spec: ClassSpec) -> Path:
    """Draw image, target, prediction and errors of a validated case as <case>.png, with its headline score."""
    sample, labels = prediction.sample, prediction.labels
    headline, score = "", None
    if sample.target is not None:
        height, width = labels.shape[-2:]
        counts = count_case(sample.target, labels, spec)
        row = CaseRow(case_id=sample.case_id, height=height, width=width, counts=counts)
        board = build_scoreboard([row], spec, MetricsConfig())
        headline = board.headline
        score = float(board.values(headline)[0])
    maps = (sample.image, sample.target, labels, spec)
    picture = draw_overlay(*maps, title=sample.case_id, headline=headline, score=score, panel=CASE_PANEL)
    return write_overlay(folder, sample.case_id, picture)
