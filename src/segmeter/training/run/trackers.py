"""Rows of the history, and pictures -> Weights & Biases, MLflow, CSV.

Nothing is sent but to the server that the user named.
"""

import csv
import hashlib
import importlib
import os
import platform
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from segmeter.errors import ConfigError, DataError
from segmeter.files import Lines, csv_bytes, link_error, make_folder, write_bytes
from segmeter.provenance import flatten
from segmeter.training.config import MlflowConfig, WandbConfig

_UNNAMED = re.compile(r"[^\w./: -]")  # what MLflow takes in no name
Row = Mapping[str, Any]
Outcome = Literal["finished", "interrupted", "failed"]
_STATUS = {"finished": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}  # as MLflow has them


def numbers(row: Row) -> dict[str, float]:
    """The numbers of a row by flat names, such as "val/mean_iou", without its step."""
    flat = flatten(row, separator="/").items()
    kept = {name: value for name, value in flat if isinstance(value, int | float) and not isinstance(value, bool)}
    return {name: value for name, value in kept.items() if name != "step"}


def read_picture(path: Path) -> NDArray[np.uint8]:
    """Read a PNG as (H, W, 3)."""
    with Image.open(path, formats=["PNG"]) as stored:
        return np.asarray(stored.convert("RGB"))


def build_wandb(config: WandbConfig, *, folder: Path, step: int, settings: Mapping[str, Any]) -> "WandbLogger":
    """Open a run of Weights & Biases in the run's folder, or go on with it.

    Raises
    ------
    ConfigError
        It is not installed, or does not start.
    """
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # read when it is imported
    wandb = _imported("wandb")
    make_folder(folder / "wandb")
    _refuse_links(folder / "wandb")
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
    return WandbLogger(run, wandb.teardown, wandb.Image)


class WandbLogger:
    """Sends rows to a run of Weights & Biases; those of steps that it has already are left out by it."""

    def __init__(self, run: Any, teardown: Callable[[], None], picture: Callable[[str], Any]) -> None:
        self._run = run
        self._teardown = teardown
        self._picture = picture
        run.define_metric("step")
        run.define_metric("*", step_metric="step")  # rows of one step come twice: from training and from validation

    def write(self, row: Row) -> None:
        self._run.log({**numbers(row), "step": row["step"]})

    def show(self, step: int, pictures: Mapping[str, Path]) -> None:
        named = {f"validation/{name}": self._picture(str(path)) for name, path in pictures.items()}
        self._run.log({**named, "step": step})

    def close(self, outcome: Outcome) -> None:
        try:
            self._run.finish(exit_code=0 if outcome == "finished" else 1)
        finally:
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
    for own in ("mlflow", *(f"mlflow.db{end}" for end in ("", "-journal", "-wal", "-shm"))):  # as SQLite names them
        _refuse_links(folder / own)
    uri = config.uri or os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{(folder / 'mlflow.db').absolute()}"
    try:
        client = mlflow.MlflowClient(tracking_uri=uri)
        found = client.get_experiment_by_name(config.experiment)
        artifacts = (
            None if config.uri or os.environ.get("MLFLOW_TRACKING_URI") else (folder / "mlflow").absolute().as_uri()
        )
        place = found.experiment_id if found else client.create_experiment(config.experiment, artifacts)
        earlier = client.search_runs([place], f"tags.segmeter_run = '{_identifier(folder)}'", max_results=1)
        tags = {"segmeter_run": _identifier(folder)}
        run = earlier[0] if earlier else client.create_run(place, run_name=folder.name, tags=tags)
        if earlier:
            client.update_run(run.info.run_id, status="RUNNING")
        else:
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

    def show(self, step: int, pictures: Mapping[str, Path]) -> None:
        for name, path in pictures.items():
            key = f"validation/{_UNNAMED.sub('_', name)}"
            self._client.log_image(self._run_id, read_picture(path), key=key, step=step)

    def close(self, outcome: Outcome) -> None:
        self._client.set_terminated(self._run_id, status=_STATUS[outcome])


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
        self._tables: dict[str, _Table] = {}

    def write(self, row: Row) -> None:
        name = "val.csv" if "val" in row else "train.csv"
        if name not in self._tables:
            # a validation that a signal cut short is repeated at the step of the checkpoint
            self._tables[name] = _Table(self._folder / name, before=min(self._step + 1, row["step"]))
        self._tables[name].write({"step": row["step"], **numbers(row)})

    def show(self, step: int, pictures: Mapping[str, Path]) -> None:
        """A table takes none."""

    def close(self, outcome: Outcome) -> None:
        for table in self._tables.values():
            table.close()


class _Table:
    """A CSV file that grows by rows, and by columns where a row has new ones, which are empty in the rows before.

    Parameters
    ----------
    path
        Its first column is the step.
    before
        Rows of this step and later ones are cut off.
    """

    def __init__(self, path: Path, *, before: int) -> None:
        self._path = path
        found = path.read_bytes() if path.is_file() else b""
        header, *rows = [line for line in found.splitlines(keepends=True) if line.endswith(b"\n")] or [b""]
        try:
            kept = header + b"".join(row for row in rows if int(row.split(b",")[0]) < before)
        except ValueError:
            raise DataError(f"{path}: a line does not begin with a step. Restore or remove the file.") from None
        self._columns = next(csv.reader([header.decode()]), [])
        if not found.startswith(kept):
            write_bytes(path, kept)
        self._lines = Lines(path, keep=len(kept))

    def write(self, row: Row) -> None:
        new = [name for name in row if name not in self._columns]
        if new:
            self._widen(new)
        self._lines.write(csv_bytes([[row.get(column) for column in self._columns]]))

    def close(self) -> None:
        self._lines.close()

    def _widen(self, names: list[str]) -> None:
        columns = self._columns + names
        rows = self._path.read_bytes().splitlines()[1:]
        write_bytes(self._path, csv_bytes([columns]) + b"".join(row + b"," * len(names) + b"\n" for row in rows))
        self._lines.close()
        self._lines, self._columns = Lines(self._path), columns


def _refuse_links(path: Path) -> None:
    """Raise InputError where a library that writes here by itself would follow a link; its own ones stay inside."""
    inside = os.path.realpath(path) + os.sep
    for each in (path, *path.rglob("*")):
        if each.is_symlink() and (each == path or not os.path.realpath(each).startswith(inside)):
            raise link_error(each)


def _identifier(folder: Path) -> str:
    """The same for a run however often it is resumed, and another for every other run."""
    place = f"{platform.node()}:{folder.absolute()}"
    return hashlib.sha256(place.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        remedy = f'Run `pip install "segmeter[{name}]"` or set logger=none.'
        raise ConfigError(f"logger: {name} is not installed. {remedy}") from error
