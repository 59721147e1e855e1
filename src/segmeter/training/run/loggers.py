"""Rows of the history, and pictures -> other people's tools."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from segmeter.errors import ConfigError
from segmeter.files import make_folder
from segmeter.training.config import LOGGERS, LoggerConfig, NoLoggerConfig, TensorBoardConfig
from segmeter.training.run.trackers import CsvLogger, Outcome, numbers, read_picture

_LOG = logging.getLogger(__name__)


class Logger(Protocol):
    """Takes each row that history.jsonl takes, and pictures."""

    def write(self, row: Mapping[str, Any]) -> None: ...

    def show(self, step: int, pictures: Mapping[str, Path]) -> None: ...

    def close(self, outcome: Outcome) -> None: ...


class Loggers:
    """All loggers of a run. One that fails is named in a warning and does not stop the training or the others.

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
        named = {config.name: chosen, "csv": csv}
        self._loggers: dict[str, Logger] = {name: logger for name, logger in named.items() if logger is not None}
        self._missed = dict.fromkeys(self._loggers, 0)

    def write(self, row: Mapping[str, Any]) -> None:
        """Give a row to each; the next one is tried again where this one failed, as a server may come back."""
        self._each(row["step"], lambda logger: logger.write(row))

    def show(self, step: int, pictures: Mapping[str, Path]) -> None:
        """Give each the pictures of a validation, PNG files by case id."""
        if pictures:
            self._each(step, lambda logger: logger.show(step, pictures))

    def _each(self, step: int, give: Callable[[Logger], None]) -> None:
        for name, logger in self._loggers.items():
            try:
                give(logger)
            except Exception as error:  # of a network, a disk, or another's library
                if not self._missed[name]:
                    _LOG.warning("logger: %s failed at step %d (%s); training goes on", name, step, _line(error))
                self._missed[name] += 1

    def close(self, outcome: Outcome) -> None:
        """Close each, and say how much it lacks."""
        for name, logger in self._loggers.items():
            try:
                logger.close(outcome)
            except Exception as error:
                _LOG.warning("logger: %s could not be closed (%s)", name, _line(error))
            if self._missed[name]:
                _LOG.warning("logger: %s lacks %d rows; the run's folder has them all", name, self._missed[name])


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


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

    def show(self, step: int, pictures: Mapping[str, Path]) -> None:
        for name, path in pictures.items():
            self._writer.add_image(f"validation/{name}", read_picture(path), step, dataformats="HWC")

    def close(self, outcome: Outcome) -> None:
        self._writer.close()
