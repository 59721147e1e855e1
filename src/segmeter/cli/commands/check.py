"""`segmeter check`: verifies a data set before training, shows what it holds, and suggests settings."""

import logging
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Column, Table

from segmeter.checks import expected
from segmeter.cli.commands._folds import advise
from segmeter.cli.config.model_command_configs import CheckConfig
from segmeter.cli.folders import Job
from segmeter.data.config import DATA, DataConfig, channel_label
from segmeter.data.dataset import Dataset
from segmeter.data.verification.intensity import SHOWN, scale_warnings, unit_moments
from segmeter.data.verification.splits import DataReport, describe_report, open_splits
from segmeter.errors import ConfigError
from segmeter.files import write_json
from segmeter.losses.config import class_weights
from segmeter.training.config import TrainingConfig
from segmeter.training.data.augment_config import AugmentConfig
from segmeter.training.plan import plan_training

_LOG = logging.getLogger(__name__)
_DEVICES = {"cpu": "a CPU", "cuda": "a GPU"}


def run_check(config: CheckConfig, job: Job) -> None:
    """Print the contents of every split and suggestions for training, and write both as JSON if `output` is set.

    With a checkpoint, check that model instead of suggesting how to train one.

    Raises
    ------
    ConfigError
        `output` is not a file, for example a folder or a device. Nothing was read.
    DataError
        One line for every bad file of every split, and for every case that two splits share.
    """
    if config.output is not None and config.output.exists() and not config.output.is_file():
        raise ConfigError(expected("config", "output", "to be a file", config.output))
    datasets, reports = open_splits(config.data, config.splits)
    console = Console(markup=False, highlight=False)
    console.print(_classes(config.data.spec().names, datasets, reports))
    console.print(_values(reports, config.data))
    will_train = config.checkpoint is None
    by_split = {dataset.split: dataset for dataset in datasets}
    can_train = will_train and {"train", "val"} <= by_split.keys()
    folds = _count_folds(config.data, datasets, reports) if can_train and getattr(config.data, "fold", None) else []
    if folds:
        console.print(_folds(folds))
    suggested = _suggest(config.data, reports[0]) if will_train and reports and reports[0].n_cases else {}
    if suggested:
        console.print(_suggestions(suggested, reports[0].split))
    hints = advise(config.data, by_split["train"], by_split["val"]) if can_train else {}
    if config.output is not None:
        splits = {report.split: describe_report(report, config.data) for report in reports}
        config.output.parent.mkdir(parents=True, exist_ok=True)
        content = {"schema": 1, "splits": splits, "suggested": suggested, "hints": hints}
        write_json(config.output, content | ({"folds": folds} if folds else {}))
    intensities = {report.split: report.intensities for report in reports}
    warnings = [line for report in reports for line in report.warnings]
    for warning in dict.fromkeys([*warnings, *scale_warnings(config.data, intensities)]):
        _LOG.warning("%s", warning)
    if config.checkpoint is not None:
        from segmeter.cli.commands._foreign import check_model  # imports torch

        check_model(config, datasets[0], reports[0], console)


def _count_folds(data: Any, datasets: tuple[Dataset, ...], reports: tuple[DataReport, ...]) -> list[dict[str, Any]]:
    """Count the cases of each fold, in total and per class."""
    n_folds = int(data.fold.partition("/")[2])
    presence = {
        case_id: has_class
        for dataset, report in zip(datasets, reports, strict=True)
        for case_id, has_class in zip(dataset.case_ids, report.presence, strict=True)
    }
    folds: list[dict[str, Any]] = []
    for number in range(1, n_folds + 1):
        case_ids = DATA.build(data.replace(fold=f"{number}/{n_folds}"), split="val").case_ids
        counts = np.sum([presence[case_id] for case_id in case_ids], axis=0).tolist()
        classes = dict(zip(data.spec().names, counts, strict=True))
        folds.append({"fold": number, "cases": len(case_ids), "classes": classes})
    return folds


def _folds(folds: list[dict[str, Any]]) -> Table:
    columns = [Column(f"fold {fold['fold']}", justify="right") for fold in folds]
    table = Table("class", *columns, title="cases per fold, and cases with each class")
    for name in folds[0]["classes"]:
        table.add_row(name, *(str(fold["classes"][name]) for fold in folds))
    table.add_section()
    table.add_row("cases", *(str(fold["cases"]) for fold in folds))
    return table


def _suggest(data: DataConfig, report: DataReport) -> dict[str, Any]:
    """Suggest the plan of training=auto for each device, and values for keys outside that plan."""
    training = TrainingConfig(plan=True, batch_size="auto")
    augment = AugmentConfig()
    plans = {device: plan_training(training, data, augment, train_report=report, device=device) for device in _DEVICES}
    mean, std = unit_moments(report.intensities)
    suggested: dict[str, Any] = {device: plan.overrides for device, plan in plans.items()}
    suggested |= {"data.mean": mean.tolist(), "data.std": std.tolist()}
    if data.task == "multiclass" and report.class_pixels.any():
        suggested["loss.class_weights"] = class_weights(report.class_pixels, "log").tolist()
    return suggested


def _suggestions(suggested: dict[str, Any], split: str) -> Table:
    title = f"suggestions from {split}; training=auto uses the line of its device"
    table = Table("", Column(overflow="fold"), title=title, show_header=False)
    for key, values in suggested.items():
        if key in _DEVICES:
            table.add_row(f"on {_DEVICES[key]}", " ".join(values))
        else:
            table.add_row(key, f"[{','.join(f'{value:.4g}' for value in values)}]")
    return table


def _classes(names: tuple[str, ...], datasets: tuple[Dataset, ...], reports: tuple[DataReport, ...]) -> Table:
    columns = [Column(report.split, justify="right") for report in reports]
    table = Table("class", *columns, title="share of pixels in % (without ignored ones), and cases with the class")
    shares = [100 * (report.class_pixels / np.maximum(1, report.counted_pixels)) for report in reports]
    for index, name in enumerate(names):
        pairs = zip(shares, reports, strict=True)
        row = (f"{share[index]:.2f} ({report.class_cases[index]})" for share, report in pairs)
        table.add_row(name, *row, end_section=index == len(names) - 1)
    table.add_row("cases", *(str(report.n_cases) for report in reports))
    table.add_row("unchanged, not read again", *(str(report.n_known) for report in reports))
    table.add_row("ignored, %", *(f"{100 * report.ignored_pixels / report.total_pixels:.2f}" for report in reports))
    if any(report.n_planes > report.n_cases for report in reports):
        table.add_row("planes of volumes", *(str(report.n_planes) for report in reports))
    sizes = [[f"{height} x {width}" for height, width in report.sizes] for report in reports]
    cells = ["\n".join(texts[:3]) + (f"\n and {len(texts) - 3} more" if len(texts) > 3 else "") for texts in sizes]
    table.add_row("height x width", *cells)
    table.add_row("content", *(report.content_sha256[:12] for report in reports))
    table.add_row("from", *(dataset.source for dataset in datasets))
    return table


def _values(reports: tuple[DataReport, ...], config: DataConfig) -> Table:
    names = ["min", *("median" if level == 50 else f"{level} %" for level in SHOWN), "max", "mean", "std"]
    columns = [Column(name, justify="right", overflow="fold") for name in names]  # fold, so that no digits are cut
    table = Table("split", "dtype", "channel", *columns, title="stored values of the images", pad_edge=False)
    for report in reports:
        for intensity in report.intensities:
            for c in range(len(intensity.mean)):
                values = (intensity.low[c], *intensity.percentiles[:, c], intensity.high[c])
                moments = (intensity.mean[c], intensity.std[c])
                cells = [f"{value:.5g}" for value in values]
                cells += [np.format_float_positional(moment, 4, fractional=False, trim="-") for moment in moments]
                table.add_row(report.split, intensity.dtype, channel_label(config, c), *cells)
    return table
