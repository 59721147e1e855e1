"""`segmeter check`: verify a data set before the first step."""

import sys

from rich.console import Console
from rich.table import Table

from segmeter.cli.app import Job
from segmeter.cli.build import open_splits
from segmeter.cli.config.schema import CheckConfig
from segmeter.data.check import DataReport


def run(config: CheckConfig, job: Job) -> None:
    """Print what every split holds.

    Raises
    ------
    DataError
        Every bad file of every split, and every case that two splits share, one line each.
    """
    _, reports = open_splits(config.data, config.splits)
    Console(markup=False, highlight=False).print(_table(config.data.spec().names, reports))
    for report in reports:
        for warning in report.warnings:
            sys.stderr.write(f"warning: {warning}\n")


def _table(names: tuple[str, ...], reports: tuple[DataReport, ...]) -> Table:
    table = Table(title="share of the counted pixels, %, and cases that have the class")
    table.add_column("class")
    for report in reports:
        table.add_column(report.split, justify="right")
    for index, name in enumerate(names):
        table.add_row(name, *(_share(report, index) for report in reports), end_section=index == len(names) - 1)
    table.add_row("cases", *(str(report.n_cases) for report in reports))
    table.add_row("ignored, %", *(f"{100 * report.ignored_pixels / report.total_pixels:.2f}" for report in reports))
    table.add_row("height x width", *(_sizes(report) for report in reports))
    table.add_row("content", *(report.content_sha256[:12] for report in reports))
    return table


def _share(report: DataReport, index: int) -> str:
    counted = max(1, int(report.class_pixels.sum()))
    return f"{100 * report.class_pixels[index] / counted:.2f} ({report.class_cases[index]})"


def _sizes(report: DataReport) -> str:
    shown = [f"{height} x {width}" for height, width in report.sizes]
    return "\n".join(shown[:3]) + (f"\n and {len(shown) - 3} more" if len(shown) > 3 else "")
