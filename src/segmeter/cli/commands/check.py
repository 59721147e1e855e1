"""`segmeter check`: verify a data set before the first step."""

import logging
from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from segmeter.cli.config.schema import CheckConfig
from segmeter.cli.runs.job import Job
from segmeter.data.build import open_splits
from segmeter.data.dataset import Dataset
from segmeter.data.verification.intensity import SHOWN, Intensity, scale_warnings
from segmeter.data.verification.report import DataReport

_LOG = logging.getLogger(__name__)


def run(config: CheckConfig, job: Job) -> None:
    """Print what every split holds.

    Raises
    ------
    DataError
        Every bad file of every split, and every case that two splits share, one line each.
    """
    datasets, reports = open_splits(config.data, config.splits)
    console = Console(markup=False, highlight=False)
    console.print(_classes(config.data.spec().names, datasets, reports))
    console.print(_values(reports))
    intensities = [each for report in reports for each in report.intensities]
    warnings = [line for report in reports for line in report.warnings]
    for warning in dict.fromkeys([*warnings, *scale_warnings(config.data, intensities)]):
        _LOG.warning("%s", warning)


def _classes(names: tuple[str, ...], datasets: tuple[Dataset, ...], reports: tuple[DataReport, ...]) -> Table:
    table = Table(title="share of the pixels that are not ignored, %, and cases that have the class")
    table.add_column("class")
    for report in reports:
        table.add_column(report.split, justify="right")
    for index, name in enumerate(names):
        table.add_row(name, *(_share(report, index) for report in reports), end_section=index == len(names) - 1)
    table.add_row("cases", *(str(report.n_cases) for report in reports))
    table.add_row("unchanged, not read again", *(str(report.n_known) for report in reports))
    table.add_row("ignored, %", *(f"{100 * report.ignored_pixels / report.total_pixels:.2f}" for report in reports))
    table.add_row("height x width", *(_sizes(report) for report in reports))
    table.add_row("content", *(report.content_sha256[:12] for report in reports))
    table.add_row("from", *(dataset.source for dataset in datasets))
    return table


def _share(report: DataReport, index: int) -> str:
    counted = max(1, int(report.counted_pixels[index]))
    return f"{100 * report.class_pixels[index] / counted:.2f} ({report.class_cases[index]})"


def _sizes(report: DataReport) -> str:
    shown = [f"{height} x {width}" for height, width in report.sizes]
    return "\n".join(shown[:3]) + (f"\n and {len(shown) - 3} more" if len(shown) > 3 else "")


def _values(reports: tuple[DataReport, ...]) -> Table:
    table = Table(title="stored values of the images; the last two on the scale of data.mean and data.std")
    percentiles = ["median" if level == 50 else f"{level} %" for level in SHOWN]
    for column in (
        "split",
        "dtype",
        "channel",
        "least",
        *percentiles,
        "largest",
        "mean",
        "std",
        "mean, 0-1",
        "std, 0-1",
    ):
        table.add_column(column, justify="left" if column in ("split", "dtype") else "right")
    for report in reports:
        for intensity in report.intensities:
            for row in _channels(intensity):
                table.add_row(report.split, intensity.dtype, *row)
    return table


def _channels(found: Intensity) -> Iterator[tuple[str, ...]]:
    for c in range(len(found.mean)):
        stored = (found.low[c], *found.percentiles[:, c], found.high[c], found.mean[c], found.std[c])
        scaled = (found.mean[c] / found.full_scale, found.std[c] / found.full_scale)
        yield str(c), *(f"{value:.6g}" for value in stored), *(f"{value:.4f}" for value in scaled)
