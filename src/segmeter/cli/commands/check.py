"""`segmeter check`: verifies a data set before training, and shows what it holds."""

import logging

import numpy as np
from rich.console import Console
from rich.table import Column, Table

from segmeter.checks import expected
from segmeter.cli.commands._folds import advise
from segmeter.cli.config.model_schema import CheckConfig
from segmeter.cli.folders import Job
from segmeter.data.config import DataConfig, channel_label
from segmeter.data.dataset import Dataset
from segmeter.data.verification.intensity import SHOWN, scale_warnings
from segmeter.data.verification.report import DataReport, describe_report, open_splits
from segmeter.errors import ConfigError
from segmeter.files import write_json

_LOG = logging.getLogger(__name__)


def run_check(config: CheckConfig, job: Job) -> None:
    """Print the contents of every split, and write them as JSON if `output` is set.

    Raises
    ------
    ConfigError
        `output` is not a file, for example a folder or a device. Nothing was read.
    DataError
        Every bad file of every split, and every case that two splits share, one line each.
    """
    if config.output is not None and config.output.exists() and not config.output.is_file():
        raise ConfigError(expected("config", "output", "to be a file", config.output))
    datasets, reports = open_splits(config.data, config.splits)
    console = Console(markup=False, highlight=False)
    console.print(_classes(config.data.spec().names, datasets, reports))
    console.print(_values(reports, config.data))
    if config.checkpoint is not None:
        from segmeter.cli.commands._foreign import check_model  # imports torch

        check_model(config, datasets[0], reports[0], console)
        return
    opened = {dataset.split: dataset for dataset in datasets}
    both = {"train", "val"} <= opened.keys()
    hints = advise(config.data, opened["train"], opened["val"]) if both else {}
    if config.output is not None:
        splits = {report.split: describe_report(report, config.data) for report in reports}
        config.output.parent.mkdir(parents=True, exist_ok=True)
        write_json(config.output, {"schema": 1, "splits": splits, "hints": hints})
    intensities = {report.split: report.intensities for report in reports}
    warnings = [line for report in reports for line in report.warnings]
    for warning in dict.fromkeys([*warnings, *scale_warnings(config.data, intensities)]):
        _LOG.warning("%s", warning)


def _classes(names: tuple[str, ...], datasets: tuple[Dataset, ...], reports: tuple[DataReport, ...]) -> Table:
    columns = [Column(report.split, justify="right") for report in reports]
    table = Table("class", *columns, title="share of pixels in % (without ignored ones), and cases with the class")
    shares = [100 * (report.class_pixels / np.maximum(1, report.counted_pixels)) for report in reports]
    for index, name in enumerate(names):
        both = zip(shares, reports, strict=True)
        row = (f"{share[index]:.2f} ({report.class_cases[index]})" for share, report in both)
        table.add_row(name, *row, end_section=index == len(names) - 1)
    table.add_row("cases", *(str(report.n_cases) for report in reports))
    table.add_row("unchanged, not read again", *(str(report.n_known) for report in reports))
    table.add_row("ignored, %", *(f"{100 * report.ignored_pixels / report.total_pixels:.2f}" for report in reports))
    if any(report.n_planes > report.n_cases for report in reports):
        table.add_row("planes of volumes", *(str(report.n_planes) for report in reports))
    sizes = [[f"{height} x {width}" for height, width in report.sizes] for report in reports]
    more = [f"\n and {len(each) - 3} more" if len(each) > 3 else "" for each in sizes]
    table.add_row("height x width", *("\n".join(each[:3]) + rest for each, rest in zip(sizes, more, strict=True)))
    table.add_row("content", *(report.content_sha256[:12] for report in reports))
    table.add_row("from", *(dataset.source for dataset in datasets))
    return table


def _values(reports: tuple[DataReport, ...], config: DataConfig) -> Table:
    numbers = ["min", *("median" if level == 50 else f"{level} %" for level in SHOWN), "max", "mean", "std"]
    columns = [Column(name, justify="right", overflow="fold") for name in numbers]  # fold, so that no digits are cut
    table = Table("split", "dtype", "channel", *columns, title="stored values of the images", pad_edge=False)
    for report in reports:
        for intensity in report.intensities:
            for c in range(len(intensity.mean)):
                values = (intensity.low[c], *intensity.percentiles[:, c], intensity.high[c])
                moments = (intensity.mean[c], intensity.std[c])
                cells = [f"{value:.5g}" for value in values]
                cells += [np.format_float_positional(each, 4, fractional=False, trim="-") for each in moments]
                table.add_row(report.split, intensity.dtype, channel_label(config, c), *cells)
    return table
