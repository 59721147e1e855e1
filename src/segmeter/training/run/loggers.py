"""Rows of the history -> other people's tools."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from segmeter.errors import ConfigError
from segmeter.files import make_folder
from segmeter.provenance import flatten
from segmeter.training.config import NoLoggerConfig, TensorBoardConfig


class Logger(Protocol):
    """Takes each row that history.jsonl takes."""

    def write(self, row: Mapping[str, Any]) -> None: ...

    def close(self) -> None: ...


def build_none(config: NoLoggerConfig, *, folder: Path, step: int) -> None:
    """history.jsonl alone."""


def build_tensorboard(config: TensorBoardConfig, *, folder: Path, step: int) -> "TensorBoardLogger":
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
        for name, value in flatten(row, separator="/").items():
            if name != "step" and isinstance(value, int | float) and not isinstance(value, bool):
                self._writer.add_scalar(name, value, row["step"])

    def close(self) -> None:
        self._writer.close()
