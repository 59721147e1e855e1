"""What only Hydra can do: its own help, its view of the files, and its settings of one job."""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from segmeter.cli.config.compose import Composed, forced, plain, store_schemas
from segmeter.cli.config.convert import convert
from segmeter.cli.config.groups import CONFIGS
from segmeter.cli.config.schema import ROOTS
from segmeter.cli.launch import run_job
from segmeter.cli.runs.run_folder import Job
from segmeter.errors import ConfigError

# Hydra only composes here: run folders, logs and records are ours.
_SETTINGS = ("hydra.output_subdir=null", "hydra.run.dir=.", "hydra/job_logging=none", "hydra/hydra_logging=none")


def run_by_hydra(command: str, args: argparse.Namespace, typed: tuple[str, ...]) -> None:
    """Hand a command line, which was typed so, to Hydra, whose parser reads it from the process's arguments."""
    before = sys.argv
    own = [] if args.hydra_help else [*_SETTINGS]
    store_schemas()
    os.environ["HYDRA_FULL_ERROR"] = "1"  # let errors reach our own exit codes instead of Hydra's traceback
    folders = [CONFIGS, *([Path(args.config_dir)] if args.config_dir else [])]
    sys.argv = [sys.argv[0], *_flags(args), *forced(args.overrides, folders), *own]
    faults: list[BaseException] = []
    try:
        hydra.main(config_path=str(CONFIGS), config_name=command, version_base="1.3")(_task(command, typed, faults))()
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


def _task(command: str, typed: tuple[str, ...], faults: list[BaseException]) -> Callable[[DictConfig], None]:
    """The function that Hydra runs; a fault is kept from Hydra, which would add lines of its own to it."""

    def task(config: DictConfig) -> None:
        try:
            _run(command, typed, config)
        except (Exception, KeyboardInterrupt) as error:
            faults.append(error)

    return task


def _run(command: str, typed: tuple[str, ...], config: DictConfig) -> None:
    problems: list[str] = []
    overrides = tuple(line.removeprefix("++") for line in HydraConfig.get().overrides.task)
    job = Composed(overrides=overrides, values=plain(config, problems), config=config)
    checked = convert(ROOTS[command], job, command=command, folders=[], problems=problems)
    if problems:
        raise ConfigError(problems)
    run_job(checked, Job(command, overrides, None, typed))
