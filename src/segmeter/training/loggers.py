"""Writes the metrics of a run: always to history.jsonl, and if asked to TensorBoard, Weights & Biases or MLflow.

Nothing is sent anywhere but to the server that the user named.
"""

import json
import logging
import math
import os
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from segmeter.errors import ConfigError
from segmeter.files import make_folder, write_bytes
from segmeter.records import flatten
from segmeter.training.config import LOGGERS, LoggerConfig, MlflowConfig, TensorBoardConfig, WandbConfig

IDENTIFIER = "logger_id.txt"  # in the run's folder: what W&B and MLflow know the run by
_LOG = logging.getLogger(__name__)
Row = Mapping[str, Any]
EndState = Literal["finished", "interrupted", "failed"]


def json_line(row: Row) -> bytes:
    """Write a row of history.jsonl, with null for NaN and infinity."""
    return (json.dumps(_plain(row), allow_nan=False) + "\n").encode()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def numbers(row: Row) -> dict[str, float]:
    """Return the numbers of a row by flat names, such as "val/mean_iou", without its step."""
    flat = flatten({name: value for name, value in row.items() if name != "step"}, separator="/").items()
    return {name: value for name, value in flat if isinstance(value, int | float) and not isinstance(value, bool)}


class Loggers:
    """All loggers of a run. If one fails, a warning names it; the training and the others go on.

    Each has write(row), which takes a row of history.jsonl; show(step, pictures), which takes PNG files by case id; and
    close(end_state).

    Parameters
    ----------
    configs
        The loggers that were chosen.
    folder
        The run's folder.
    step
        The step that the run continues from; 0 for a new run.
    settings
        The run's configuration as plain values, without secrets.
    """

    def __init__(
        self, configs: Sequence[LoggerConfig], *, folder: Path, step: int, settings: Mapping[str, Any]
    ) -> None:
        self._loggers: dict[str, Any] = {}
        self._warned: set[str] = set()
        try:
            for config in configs:
                logger = LOGGERS.build(config, folder=folder, step=step, settings=settings)
                if logger is not None:
                    self._loggers[config.name] = logger
        except BaseException:
            self.close("failed")  # those that have started
            raise

    def write(self, row: Row) -> None:
        """Pass a row to each logger. One that failed is tried again, as its server may come back."""
        self._call_each(row["step"], lambda logger: logger.write(row))

    def show(self, step: int, pictures: Mapping[str, Path]) -> None:
        """Pass the pictures of a validation to each logger."""
        if pictures:
            self._call_each(step, lambda logger: logger.show(step, pictures))

    def _call_each(self, step: int, action: Callable[[Any], None]) -> None:
        for name, logger in self._loggers.items():
            try:
                action(logger)
            except Exception as error:  # from a network, a disk or the logger's library
                if name not in self._warned:
                    text = "logger: %s failed at step %d (%s), so it lacks rows; training continues"
                    _LOG.warning(text, name, step, one_line(error))
                    self._warned.add(name)

    def close(self, end_state: EndState) -> None:
        """Close each logger."""
        for name, logger in self._loggers.items():
            try:
                logger.close(end_state)
            except Exception as error:
                _LOG.warning("logger: %s could not be closed (%s)", name, one_line(error))


class TensorBoardLogger:
    """Writes one curve per metric into `tensorboard/`; rows that an earlier process wrote from `step` on are hidden."""

    def __init__(
        self, config: TensorBoardConfig, *, folder: Path, step: int, settings: Mapping[str, Any] | None = None
    ) -> None:
        _import("tensorboard")
        from torch.utils.tensorboard import SummaryWriter

        make_folder(folder / "tensorboard")
        self._writer: Any = SummaryWriter(str(folder / "tensorboard"), purge_step=step or None)

    def write(self, row: Row) -> None:
        for name, value in numbers(row).items():
            self._writer.add_scalar(name, value, row["step"])
        self._writer.flush()

    def show(self, step: int, pictures: Mapping[str, Path]) -> None:
        for name, path in pictures.items():
            self._writer.add_image(f"validation/{name}", _read_picture(path), step, dataformats="HWC")

    def close(self, end_state: EndState) -> None:
        self._writer.close()


class WandbLogger:
    """Sends rows to a run of Weights & Biases in the run's folder, which a resume continues."""

    def __init__(self, config: WandbConfig, *, folder: Path, step: int, settings: Mapping[str, Any]) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # wandb reads it on import
        self._wandb = wandb = _import("wandb")
        make_folder(folder / "wandb")
        # By default wandb collects the command line and the environment, which may hold secrets
        off = ("disable_code", "disable_git", "silent", "x_disable_meta", "x_disable_stats", "x_disable_machine_info")
        try:
            self._run = wandb.init(
                project=config.project,
                entity=config.entity,
                mode=config.mode,
                dir=folder,
                name=folder.name,
                id=_identifier(folder),
                resume="allow",
                config=dict(settings),
                settings=wandb.Settings(console="off", x_save_requirements=False, **dict.fromkeys(off, True)),
            )
        except (wandb.Error, OSError) as error:
            raise ConfigError(f"logger: wandb did not start: {one_line(error)}") from error
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")  # training and validation both have a row of one step

    def write(self, row: Row) -> None:
        self._run.log({**numbers(row), "step": row["step"]})

    def show(self, step: int, pictures: Mapping[str, Path]) -> None:
        images = {f"validation/{name}": self._wandb.Image(str(path)) for name, path in pictures.items()}
        self._run.log({**images, "step": step})

    def close(self, end_state: EndState) -> None:
        try:
            self._run.finish(exit_code=0 if end_state == "finished" else 1)
        finally:
            self._wandb.teardown()  # waits for wandb's own process, which may still be writing


class MlflowLogger:
    """Writes rows to a run in an MLflow store; a resume finds it by the identifier in the run's folder."""

    def __init__(self, config: MlflowConfig, *, folder: Path, step: int, settings: Mapping[str, Any]) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # mlflow reads it on import
        mlflow = _import("mlflow")
        chosen_uri = config.uri or os.environ.get("MLFLOW_TRACKING_URI")
        uri = chosen_uri or f"sqlite:///{(folder / 'mlflow.db').absolute()}"
        artifacts = None if chosen_uri else (folder / "mlflow").absolute().as_uri()
        tags = {"segmeter_run": _identifier(folder)}
        try:
            self._client = client = mlflow.MlflowClient(tracking_uri=uri)
            experiment = client.get_experiment_by_name(config.experiment)
            number = experiment.experiment_id if experiment else client.create_experiment(config.experiment, artifacts)
            earlier = client.search_runs([number], f"tags.segmeter_run = '{_identifier(folder)}'", max_results=1)
            run = earlier[0] if earlier else client.create_run(number, run_name=folder.name, tags=tags)
            self._run_id = run.info.run_id
            if earlier:
                client.update_run(self._run_id, status="RUNNING")
            for name, value in {} if earlier else flatten(settings).items():
                client.log_param(self._run_id, _mlflow_name(name), str(value)[:500])
        except Exception as error:  # from MLflow, its database or its HTTP client
            raise ConfigError(f"logger: mlflow can't use its store: {one_line(error)}") from error

    def write(self, row: Row) -> None:
        for name, value in numbers(row).items():
            self._client.log_metric(self._run_id, _mlflow_name(name), value, step=row["step"])

    def show(self, step: int, pictures: Mapping[str, Path]) -> None:
        for name, path in pictures.items():
            key = f"validation/{_mlflow_name(name)}"
            self._client.log_image(self._run_id, _read_picture(path), key=key, step=step)

    def close(self, end_state: EndState) -> None:
        status = {"finished": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}[end_state]
        self._client.set_terminated(self._run_id, status=status)


def _mlflow_name(name: str) -> str:
    """Replace every character that MLflow refuses in a name by "_"."""
    return re.sub(r"[^\w./: -]", "_", name)


def _identifier(folder: Path) -> str:
    """Return the run's identifier. It is kept in the folder, so a resume finds it on another machine or path too."""
    path = folder / IDENTIFIER
    if not path.is_file():
        write_bytes(path, f"{secrets.token_hex(8)}\n".encode())
    return path.read_text("utf-8").strip()


def check_installed(configs: Sequence[LoggerConfig]) -> None:
    """Refuse loggers whose library is missing, without importing it."""
    for config in configs:
        if isinstance(config, TensorBoardConfig | WandbConfig | MlflowConfig) and find_spec(config.name) is None:
            raise _missing(config.name)


def _import(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise _missing(name) from error


def _missing(name: str) -> ConfigError:
    remedy = f'Run `pip install "segmeter[{name}]"` or set logger=none.'
    return ConfigError(f"logger: {name} is not installed. {remedy}")


def _read_picture(path: Path) -> NDArray[np.uint8]:
    """Read a PNG as (H, W, 3)."""
    with Image.open(path, formats=["PNG"]) as stored:
        return np.asarray(stored.convert("RGB"))


def one_line(error: Exception) -> str:
    """Return an error's message on one line, or its type if there is none."""
    return " ".join(str(error).split()) or type(error).__name__
