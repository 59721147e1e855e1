"""Rows of the history, and pictures -> other people's tools."""

import logging
import os
import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from segmeter.errors import ConfigError
from segmeter.files import Lines, make_folder
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
    """Write an event file under `folder`; what an earlier process wrote for `step` and later is hidden.

    Raises
    ------
    ConfigError
        TensorBoard is not installed.
    """
    try:
        return TensorBoardLogger(folder / "tensorboard", step=step)
    except ImportError as error:
        remedy = 'Run `pip install "segmeter[tensorboard]"` or set logger=none.'
        raise ConfigError(f"logger: tensorboard is not installed. {remedy}") from error


class TensorBoardLogger:
    """Writes one curve per metric, those of a validation under "val/", into a file of its own.

    TensorBoard's own writer opens the file by its path, and so would follow a link; this one takes its format alone.
    """

    def __init__(self, folder: Path, *, step: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.summary.writer.record_writer import RecordWriter

        make_folder(folder)
        name = f"events.out.tfevents.{int(time.time()):010d}.{platform.node()}.{os.getpid()}.{time.monotonic_ns()}"
        self._event, self._file = Event, Lines(folder / name)
        self._records = RecordWriter(self._file)
        self._add(file_version="brain.Event:2")
        if step:
            self._add(step=step, session_log=SessionLog(status=SessionLog.START))

    def write(self, row: Mapping[str, Any]) -> None:
        values = [{"tag": name, "simple_value": value} for name, value in numbers(row).items()]
        self._add(step=row["step"], summary={"value": values})

    def show(self, step: int, pictures: Mapping[str, Path]) -> None:
        from torch.utils.tensorboard import summary

        image: Any = summary.image
        for name, path in pictures.items():
            self._add(step=step, summary=image(f"validation/{name}", read_picture(path), dataformats="HWC"))

    def close(self, outcome: Outcome) -> None:
        self._file.close()

    def _add(self, **content: Any) -> None:
        self._records.write(self._event(wall_time=time.time(), **content).SerializeToString())
