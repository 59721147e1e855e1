"""One command: its arguments -> checked configuration -> Hydra, which runs the job, or each job of a sweep."""

import argparse
import os
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from segmeter.cli.compose import CONFIGS, Request, check_launcher, check_overrides, compose_jobs, plain, store_schemas
from segmeter.cli.convert import convert
from segmeter.cli.groups import load_plugins
from segmeter.cli.masking import mask
from segmeter.cli.schema import ROOTS, EvalConfig
from segmeter.cli.trained_data import fill_data
from segmeter.errors import ConfigError, InputError
from segmeter.files import write_bytes

# Hydra only composes and sweeps here: run folders, logs and records are ours.
_SETTINGS = ("hydra.output_subdir=null", "hydra.run.dir=.", "hydra/job_logging=none", "hydra/hydra_logging=none")
_MAPPING = re.compile(r"[\w.]+=\{")


@dataclass(frozen=True)
class Job:
    """How a job was asked for.

    Parameters
    ----------
    command
        "train", "eval" and so on.
    overrides
        As they were written on the command line.
    folder
        Where Hydra wants this job of a sweep; None for a single job.
    """

    command: str
    overrides: tuple[str, ...]
    folder: Path | None


def run_command(command: str, argv: Sequence[str]) -> None:
    """Run one command with Hydra's command line: overrides, ``--cfg``, ``--info``, ``--multirun``, completion.

    Raises
    ------
    ConfigError
        With every problem of the configuration, before any work starts.
    """
    args = _arguments(command, argv)
    load_plugins(_plugins(args.overrides))
    store_schemas(ROOTS)
    if not (args.shell_completion or args.hydra_help):
        request = Request(args.config_name or command, args.overrides, args.config_dir, args.multirun)
        _check(request, ROOTS[command], shown_only=bool(args.cfg or args.info))
    _hand_over(command, args)


def _arguments(command: str, argv: Sequence[str]) -> argparse.Namespace:
    parser = get_args_parser()
    parser.prog = f"segmeter {command}"
    args = parser.parse_intermixed_args(list(argv))
    if args.experimental_rerun:
        raise ConfigError("config: --experimental-rerun is not allowed: it would run whatever a pickle file holds.")
    if args.config_path:
        raise ConfigError("config: --config-path is not allowed. Add your own folder of YAML files with --config-dir.")
    # Hydra takes a mapping with keys of the user's own (a label map) only where it is told that keys may be new
    args.overrides = [f"++{line}" if _MAPPING.match(line) else line for line in args.overrides]
    return args


def _plugins(overrides: Sequence[str]) -> list[str]:
    """Plugins are imported before anything is composed, so they are read from the command line itself."""
    given = [line.partition("=")[2] for line in overrides if line.lstrip("+").startswith("plugins=")]
    return [name.strip() for value in given for name in value.strip("[]").split(",") if name.strip()]


def _check(request: Request, root: type, *, shown_only: bool) -> None:
    problems: list[str] = []
    if request.sweep:
        check_launcher(request, problems)
    if shown_only:
        check_overrides(request, problems)
    for values in () if shown_only else compose_jobs(request, problems):
        try:
            if values:
                convert(root, _complete(root, values, request.overrides))
        except InputError as error:
            problems.extend(error.problems)
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))


def _complete(root: type, values: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """The composed values, and for eval what its checkpoint says of the data."""
    return fill_data(values, overrides) if root is EvalConfig else values


def _hand_over(command: str, args: argparse.Namespace) -> None:
    sys.argv = [sys.argv[0], *_flags(args), *args.overrides]
    if not (args.shell_completion or args.hydra_help):
        sweep = f"${{run.root}}/multirun/{time.strftime('%Y-%m-%d_%H%M%S')}_{os.getpid()}"
        chosen = any(line.startswith("hydra.sweep.dir=") for line in args.overrides)
        sys.argv += [*_SETTINGS, *([] if chosen else [f"hydra.sweep.dir={sweep}"])]
    os.environ["HYDRA_FULL_ERROR"] = "1"  # let errors reach our own exit codes instead of Hydra's traceback
    faults: list[BaseException] = []
    try:
        hydra.main(config_path=str(CONFIGS), config_name=command, version_base="1.3")(_task(command, faults))()
    finally:
        if faults:
            raise faults[0]


def _flags(args: argparse.Namespace) -> list[str]:
    """Hydra's flags before the overrides: its parser takes no overrides on both sides of a flag."""
    switches = ("resolve", "run", "multirun", "shell_completion", "hydra_help")
    valued = ("cfg", "package", "config_name", "config_dir", "info")
    flags = [f"--{name.replace('_', '-')}" for name in switches if getattr(args, name)]
    given = {name: getattr(args, name) for name in valued if getattr(args, name) is not None}
    return [*flags, *(f"--{name.replace('_', '-')}={value}" for name, value in given.items())]


def _task(command: str, faults: list[BaseException]) -> Any:
    """The function that Hydra runs per job; a fault is kept from Hydra, which would add lines of its own to it."""

    def task(config: DictConfig) -> Any:
        if faults:  # the first job of a sweep that fails ends the sweep
            return None
        try:
            return _run_job(command, config)
        except (Exception, KeyboardInterrupt) as error:
            faults.append(error)
            return None

    return task


def _run_job(command: str, config: DictConfig) -> Any:
    problems: list[str] = []
    values = plain(config, problems)
    if problems:
        raise ConfigError(problems)
    settings = HydraConfig.get()
    folder = Path(settings.runtime.output_dir) if settings.mode == RunMode.MULTIRUN else None
    if folder is not None:
        _mask_record(Path(settings.sweep.dir) / "multirun.yaml")
    job = Job(command, tuple(settings.overrides.task), folder)
    values = _complete(ROOTS[command], values, job.overrides)
    return import_module(f"segmeter.cli.{command}").run(convert(ROOTS[command], values), job)


def _mask_record(path: Path) -> None:
    """Hydra writes down how a sweep was asked for, secrets included."""
    if path.is_file():
        values = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
        masked = mask(values)
        if masked != values:
            write_bytes(path, OmegaConf.to_yaml(OmegaConf.create(masked)).encode())
