"""Rows of the history -> Weights & Biases, MLflow, CSV. Nothing is sent but to the server that the user named."""

import hashlib
import importlib
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from segmeter.errors import ConfigError
from segmeter.files import csv_bytes
from segmeter.open_files import Lines
from segmeter.provenance import flatten
from segmeter.training.config import MlflowConfig, WandbConfig

_UNNAMED = re.compile(r"[^\w./: -]")  # what MLflow takes in no name
Row = Mapping[str, Any]


def numbers(row: Row) -> dict[str, float]:
    """The numbers of a row by flat names, such as "val/mean_iou", without its step."""
    flat = flatten(row, separator="/").items()
    kept = {name: value for name, value in flat if isinstance(value, int | float) and not isinstance(value, bool)}
    return {name: value for name, value in kept.items() if name != "step"}


def build_wandb(config: WandbConfig, *, folder: Path, step: int, settings: Mapping[str, Any]) -> "WandbLogger":
    """Open a run of Weights & Biases in the run's folder, or go on with it.

    Raises
    ------
    ConfigError
        It is not installed, or does not start.
    """
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # read when it is imported
    wandb = _imported("wandb")
    try:
        run = wandb.init(
            project=config.project,
            entity=config.entity,
            mode=config.mode,
            dir=folder,
            name=folder.name,
            id=_identifier(folder),
            resume="allow",
            config=dict(settings),
            # what it collects by itself holds the command line and the environment, secrets included
            settings=wandb.Settings(
                console="off",
                disable_code=True,
                disable_git=True,
                silent=True,
                x_disable_meta=True,
                x_disable_stats=True,
                x_disable_machine_info=True,
                x_save_requirements=False,
            ),
        )
    except (wandb.Error, OSError) as error:
        raise ConfigError(f"logger: wandb did not start: {' '.join(str(error).split())}") from error
    return WandbLogger(run, wandb.teardown)


class WandbLogger:
    """Sends rows to a run of Weights & Biases; those of steps that it has already are left out by it."""

    def __init__(self, run: Any, teardown: Callable[[], None]) -> None:
        self._run = run
        self._teardown = teardown
        run.define_metric("step")
        run.define_metric("*", step_metric="step")  # rows of one step come twice: from training and from validation

    def write(self, row: Row) -> None:
        self._run.log({**numbers(row), "step": row["step"]})

    def close(self) -> None:
        self._run.finish()
        self._teardown()  # its own process has all on the disk only when it has ended


def build_mlflow(config: MlflowConfig, *, folder: Path, step: int, settings: Mapping[str, Any]) -> "MlflowLogger":
    """Open a run in an MLflow store, or go on with it: it is found again by the name of the run's folder.

    Raises
    ------
    ConfigError
        It is not installed, or its store can't be opened.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read when it is imported
    mlflow = _imported("mlflow")
    uri = config.uri or os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{(folder / 'mlflow.db').absolute()}"
    try:
        client = mlflow.MlflowClient(tracking_uri=uri)
        found = client.get_experiment_by_name(config.experiment)
        artifacts = None if config.uri or os.environ.get("MLFLOW_TRACKING_URI") else (folder / "mlflow").as_uri()
        place = found.experiment_id if found else client.create_experiment(config.experiment, artifacts)
        earlier = client.search_runs([place], f"tags.segmeter_run = '{_identifier(folder)}'", max_results=1)
        tags = {"segmeter_run": _identifier(folder)}
        run = earlier[0] if earlier else client.create_run(place, run_name=folder.name, tags=tags)
        if not earlier:
            for name, value in flatten(settings).items():
                client.log_param(run.info.run_id, _UNNAMED.sub("_", name), str(value)[:500])
    except Exception as error:  # of MLflow, its database or its client of HTTP
        raise ConfigError(f"logger: mlflow can't use its store: {' '.join(str(error).split())}") from error
    return MlflowLogger(client, run.info.run_id)


class MlflowLogger:
    """Writes rows to a run of an MLflow store."""

    def __init__(self, client: Any, run_id: str) -> None:
        self._client = client
        self._run_id = run_id

    def write(self, row: Row) -> None:
        for name, value in numbers(row).items():
            self._client.log_metric(self._run_id, _UNNAMED.sub("_", name), value, step=row["step"])

    def close(self) -> None:
        self._client.set_terminated(self._run_id)


class CsvLogger:
    """Appends the rows of training to train.csv and those of validation to val.csv.

    Parameters
    ----------
    folder
        The run's.
    step
        Rows of later steps, which a stopped run wrote after its last checkpoint, are cut off.
    """

    def __init__(self, folder: Path, *, step: int) -> None:
        self._folder = folder
        self._step = step
        self._files: dict[str, tuple[list[str], Lines]] = {}

    def write(self, row: Row) -> None:
        flat = {"step": row["step"], **numbers(row)}
        name = "val.csv" if "val" in row else "train.csv"
        if name not in self._files:
            self._files[name] = self._open(self._folder / name, list(flat))
        columns, lines = self._files[name]
        lines.write(csv_bytes([[flat.get(column) for column in columns]]))

    def close(self) -> None:
        for _, lines in self._files.values():
            lines.close()

    def _open(self, path: Path, columns: list[str]) -> tuple[list[str], Lines]:
        """Keep the rows up to the step that is gone on from; a number that was undefined at first gets no column."""
        header = csv_bytes([columns])
        found = path.read_bytes().splitlines(keepends=True) if path.is_file() else []
        kept = [line for line in found[1:] if line.endswith(b"\n") and int(line.split(b",")[0]) <= self._step]
        whole = header + b"".join(kept) if found[:1] == [header] and self._step else b""
        lines = Lines(path, keep=len(whole) if found and b"".join(found).startswith(whole) else 0)
        if not lines.size:
            lines.write(header)
        return columns, lines


def _identifier(folder: Path) -> str:
    """The same for a run however often it is resumed, and another for every other run."""
    place = f"{os.uname().nodename}:{folder.absolute()}"
    return hashlib.sha256(place.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        remedy = f'Run `pip install "segmeter[{name}]"` or set logger=none.'
        raise ConfigError(f"logger: {name} is not installed. {remedy}") from error
