"""What only Hydra can do: its own help, its view of the files, and the sweepers that plug into it."""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from segmeter.cli.config.compose import Composed, forced, plain, store_schemas
from segmeter.cli.config.convert import convert
from segmeter.cli.config.groups import CONFIGS
from segmeter.cli.config.schema import ROOTS
from segmeter.cli.runs.job import Job, run_job, sweep_folder
from segmeter.cli.runs.masking import mask
from segmeter.errors import ConfigError
from segmeter.files import write_bytes

# Hydra only composes and sweeps here: run folders, logs and records are ours.
_SETTINGS = ("hydra.output_subdir=null", "hydra.run.dir=.", "hydra/job_logging=none", "hydra/hydra_logging=none")


def run_by_hydra(command: str, args: argparse.Namespace, typed: tuple[str, ...]) -> None:
    """Hand a command line, which was typed so, to Hydra, whose parser reads it from the process's arguments."""
    before = sys.argv
    settings = [] if args.hydra_help else [*_SETTINGS]
    if not any(line.startswith("hydra.sweep.dir=") for line in args.overrides):
        settings.append(f"hydra.sweep.dir={sweep_folder('${run.root}')}")
    store_schemas()
    os.environ["HYDRA_FULL_ERROR"] = "1"  # let errors reach our own exit codes instead of Hydra's traceback
    folders = [CONFIGS, *([Path(args.config_dir)] if args.config_dir else [])]
    sys.argv = [sys.argv[0], *_flags(args), *forced(args.overrides, folders), *settings]
    faults: list[BaseException] = []
    try:
        task = _task(command, typed, faults)
        hydra.main(config_path=str(CONFIGS), config_name=command, version_base="1.3")(task)()
    finally:
        sys.argv = before
        if faults:
            raise faults[0]


def _flags(args: argparse.Namespace) -> list[str]:
    """Hydra's flags before the overrides: its parser takes no overrides on both sides of a flag."""
    switches = [name for name in ("resolve", "run", "multirun", "hydra_help") if getattr(args, name)]
    valued = ("cfg", "package", "config_name", "config_dir", "info")
    given = {name: getattr(args, name) for name in valued if getattr(args, name) is not None}
    named = {f"--{name.replace('_', '-')}": value for name, value in given.items()}
    return [*(f"--{name.replace('_', '-')}" for name in switches), *(f"{flag}={v}" for flag, v in named.items())]


def _task(command: str, typed: tuple[str, ...], faults: list[BaseException]) -> Callable[[DictConfig], Any]:
    """The function that Hydra runs per job; a fault is kept from Hydra, which would add lines of its own to it."""

    def task(config: DictConfig) -> Any:
        if faults:  # the first job of a sweep that fails ends the sweep
            return None
        try:
            return _run(command, typed, config)
        except (Exception, KeyboardInterrupt) as error:
            faults.append(error)
            return None

    return task


def _run(command: str, typed: tuple[str, ...], config: DictConfig) -> Any:
    problems: list[str] = []
    settings = HydraConfig.get()
    overrides = tuple(line.removeprefix("++") for line in settings.overrides.task)
    job = Composed(overrides=overrides, values=plain(config, problems), config=config)
    checked = convert(ROOTS[command], job, command=command, folders=[], problems=problems)
    if problems:
        raise ConfigError(problems)
    folder = Path(settings.runtime.output_dir) if settings.mode == RunMode.MULTIRUN else None
    if folder is not None:
        _mask_record(Path(settings.sweep.dir) / "multirun.yaml")
    return run_job(command, checked, Job(command, job.overrides, folder, typed))


def _mask_record(path: Path) -> None:
    """Hydra writes down how a sweep was asked for, secrets included."""
    if path.is_file():
        values = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
        masked = mask(values)
        if masked != values:
            write_bytes(path, OmegaConf.to_yaml(OmegaConf.create(masked)).encode())
