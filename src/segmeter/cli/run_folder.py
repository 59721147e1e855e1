"""A run's folder: never shared, written to before work starts, and telling afterwards what happened in it."""

import fcntl
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from segmeter.checks import expected
from segmeter.cli.app import Job
from segmeter.cli.config.schema import Common
from segmeter.errors import ConfigError, SegmeterError
from segmeter.files import safe_id, write_bytes, write_json
from segmeter.provenance import hardware, source, versions
from segmeter.schema import as_plain

MASK = "[REDACTED]"
_SECRET = re.compile(
    r"(^|_)(password|passwd|secret|token|credentials?|api_?key|access_?key|private_?key)s?$", re.IGNORECASE
)


@contextmanager
def open_run(config: Common, job: Job, *, resumed: Path | None = None, facts: dict[str, Any]) -> Iterator[Path]:
    """Make the run's folder (or lock the one that is resumed), keep its records, and note how it ended.

    Parameters
    ----------
    config
        The checked configuration.
    job
        How the run was asked for.
    resumed
        The folder of the run to continue.
    facts
        What else run.json says: data fingerprint, checkpoint hash.

    Raises
    ------
    ConfigError
        The folder can't be made or written, or another process runs in it.
    """
    refuse_masked(as_plain(config))
    folder = resumed or job.folder or _name(config, job)
    folder = folder if resumed else _make(folder)
    with _locked(folder), _logged(folder):
        record = _start(folder, config, job, facts)
        state = "failed"
        try:
            yield folder
            state = "done"
        except KeyboardInterrupt:
            state = "interrupted"
            raise
        except SegmeterError as error:
            state = f"stopped: {error.problems[0]}"
            logging.getLogger("segmeter").error("%s", error)
            raise
        finally:
            write_json(folder / "run.json", {**record, "end": _now(), "state": state})


def run_name(config: Common, job: Job) -> str:
    """The last part of a new folder's name."""
    return safe_id(config.run.name or str(getattr(getattr(config, "data", None), "name", job.command)))


def _name(config: Common, job: Job) -> Path:
    return config.run.root / job.command / f"{datetime.now():%Y-%m-%d_%H%M%S}_{run_name(config, job)}"


def _make(wanted: Path) -> Path:
    """Make a folder that nobody else has: processes that start in the same second get different ones."""
    try:
        wanted.parent.mkdir(parents=True, exist_ok=True)
        for attempt in range(1, 1000):
            folder = wanted if attempt == 1 else wanted.with_name(f"{wanted.name}-{attempt}")
            try:
                folder.mkdir()
            except FileExistsError:
                if not folder.is_dir() or any(folder.iterdir()):
                    continue
            return folder
    except OSError as error:
        reason = f"{wanted} ({error.strerror})"
        raise ConfigError(expected("config", "run.root", "to be a folder that can be written", reason)) from error
    raise ConfigError(expected("config", "run.root", "to have room for a new run", str(wanted)))


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder; the system frees the lock of a killed process, so none is ever stale."""
    with (folder / ".lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.seek(0)
            raise ConfigError(f"run: {folder} is in use by {lock.read().strip() or 'another process'}.") from error
        lock.truncate(0)
        lock.write(f"process {os.getpid()} on {os.uname().nodename}\n")
        lock.flush()
        yield


@contextmanager
def _logged(folder: Path) -> Iterator[None]:
    logger = logging.getLogger("segmeter")
    logger.setLevel(logging.INFO)
    handler = logging.FileHandler(folder / "log.txt", encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()


def _start(folder: Path, config: Common, job: Job, facts: dict[str, Any]) -> dict[str, Any]:
    write_bytes(folder / "config.yaml", OmegaConf.to_yaml(mask(as_plain(config))).encode())
    overrides = [mask_override(line) for line in job.overrides]
    write_bytes(folder / "overrides.yaml", OmegaConf.to_yaml(overrides).encode())
    record = {
        "command": job.command,
        "argv": [mask_override(argument) for argument in job.argv],
        "overrides": overrides,
        "start": _now(),
        "seed": config.seed,
        **facts,
        "versions": versions(),
        "hardware": hardware(),
        "source": source(),
        "process": os.getpid(),
    }
    write_json(folder / "run.json", {**record, "state": "running"})
    return record


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def mask(values: Any, key: str = "") -> Any:
    """Replace the values of keys that look like secrets, at any depth."""
    if isinstance(values, dict):
        return {name: mask(value, str(name)) for name, value in values.items()}
    if isinstance(values, list):
        return [mask(value, key) for value in values]
    return MASK if values is not None and _SECRET.search(key) else values


def mask_override(line: str) -> str:
    """Replace the value of an override whose key looks like a secret.

    Examples
    --------
    >>> mask_override("+logger.api_key=abc"), mask_override("loss.gamma=2")
    ('+logger.api_key=[REDACTED]', 'loss.gamma=2')
    """
    key, equals, _ = line.partition("=")
    return f"{key}={MASK}" if equals and _SECRET.search(key.rpartition(".")[2].lstrip("+")) else line


def refuse_masked(values: Any, path: str = "") -> None:
    """Refuse a configuration that was copied from a run folder with its secrets masked."""
    if isinstance(values, dict):
        for key, value in values.items():
            refuse_masked(value, f"{path}.{key}" if path else str(key))
    elif values == MASK:
        raise ConfigError(f"config: `{path}` is {MASK}, as run folders keep no secrets. Set it again.")
