"""Rows of the history -> other people's tools."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from segmeter.errors import ConfigError
from segmeter.files import make_folder
from segmeter.training.config import LOGGERS, LoggerConfig, NoLoggerConfig, TensorBoardConfig
from segmeter.training.run.trackers import CsvLogger, numbers


class Logger(Protocol):
    """Takes each row that history.jsonl takes."""

    def write(self, row: Mapping[str, Any]) -> None: ...

    def close(self) -> None: ...


class Loggers:
    """All loggers of a run.

    Parameters
    ----------
    config
        The one that was chosen, and whether there are CSV files too.
    folder
        The run's.
    step
        The one that the run goes on from; 0 for a new run.
    settings
        The run's configuration by flat names, without secrets.
    """

    def __init__(self, config: LoggerConfig, *, folder: Path, step: int, settings: Mapping[str, Any]) -> None:
        chosen: Logger | None = LOGGERS.build(config, folder=folder, step=step, settings=settings)
        csv = CsvLogger(folder, step=step) if config.csv else None
        self._loggers: list[Logger] = [logger for logger in (chosen, csv) if logger is not None]

    def write(self, row: Mapping[str, Any]) -> None:
        for logger in self._loggers:
            logger.write(row)

    def close(self) -> None:
        for logger in self._loggers:
            logger.close()


def build_none(config: NoLoggerConfig, *, folder: Path, step: int, settings: Mapping[str, Any]) -> None:
    """history.jsonl alone."""


def build_tensorboard(
    config: TensorBoardConfig, *, folder: Path, step: int, settings: Mapping[str, Any]
) -> "TensorBoardLogger":
    """Write event files under `folder`; what an earlier process wrote for `step` and later is hidden.

    Raises
    ------
    ConfigError
        TensorBoard is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        remedy = 'Run `pip install "segmeter[tensorboard]"` or set logger=none.'
        raise ConfigError(f"logger: tensorboard is not installed. {remedy}") from error
    make_folder(folder / "tensorboard")
    writer = SummaryWriter(folder / "tensorboard", purge_step=step or None, flush_secs=config.flush_seconds)
    return TensorBoardLogger(writer)


class TensorBoardLogger:
    """Writes one curve per metric, those of a validation under "val/"."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def write(self, row: Mapping[str, Any]) -> None:
        for name, value in numbers(row).items():
            self._writer.add_scalar(name, value, row["step"])

    def close(self) -> None:
        self._writer.close()
