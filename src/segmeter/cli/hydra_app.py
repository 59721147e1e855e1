"""What only Hydra can do: its own help, its view of the files, and the sweepers that plug into it."""

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from segmeter.cli.config.compose import Composed, forced, plain, store_schemas
from segmeter.cli.config.convert import convert
from segmeter.cli.config.groups import CONFIGS
from segmeter.cli.config.schema import ROOTS
from segmeter.cli.runs.job import Job, run_job, sweep_folder
from segmeter.cli.runs.masking import mask
from segmeter.cli.runs.sweep import job_name, settings, summarised
from segmeter.errors import ConfigError
from segmeter.files import write_bytes

# Hydra only composes and sweeps here: run folders, logs and records are ours.
_SETTINGS = ("hydra.output_subdir=null", "hydra.run.dir=.", "hydra/job_logging=none", "hydra/hydra_logging=none")


def run_by_hydra(command: str, args: argparse.Namespace, typed: tuple[str, ...], root: Path) -> None:
    """Hand a command line, which was typed so, to Hydra, whose parser reads it from the process's arguments."""
    before = sys.argv
    own = [] if args.hydra_help else [*_SETTINGS]
    given = [line.partition("=")[2].strip("'\"") for line in args.overrides if line.startswith("hydra.sweep.dir=")]
    folder = Path(given[-1]) if given else sweep_folder(root)
    if not given:
        own.append(f"hydra.sweep.dir='{folder}'")
    store_schemas()
    os.environ["HYDRA_FULL_ERROR"] = "1"  # let errors reach our own exit codes instead of Hydra's traceback
    folders = [CONFIGS, *([Path(args.config_dir)] if args.config_dir else [])]
    sys.argv = [sys.argv[0], *_flags(args), *forced(args.overrides, folders), *own]
    faults: list[BaseException] = []
    try:
        task = _task(command, typed, _swept(args.overrides), faults)
        with summarised(folder) if args.multirun else nullcontext():
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


def _swept(overrides: Sequence[str]) -> tuple[str, ...]:
    """The keys that were given several values."""
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    return tuple(override.key_or_group for override in parsed if override.is_sweep_override())


def _task(
    command: str, typed: tuple[str, ...], swept: tuple[str, ...], faults: list[BaseException]
) -> Callable[[DictConfig], Any]:
    """The function that Hydra runs per job; a fault is kept from Hydra, which would add lines of its own to it."""

    def task(config: DictConfig) -> Any:
        if faults:  # the first job of a sweep that fails ends the sweep
            return None
        try:
            return _run(command, typed, swept, config)
        except (Exception, KeyboardInterrupt) as error:
            faults.append(error)
            return None

    return task


def _run(command: str, typed: tuple[str, ...], swept: tuple[str, ...], config: DictConfig) -> Any:
    problems: list[str] = []
    hydra_config = HydraConfig.get()
    overrides = tuple(line.removeprefix("++") for line in hydra_config.overrides.task)
    job = Composed(overrides=overrides, values=plain(config, problems), config=config)
    checked = convert(ROOTS[command], job, command=command, folders=[], problems=problems)
    if problems:
        raise ConfigError(problems)
    if hydra_config.mode != RunMode.MULTIRUN:
        return run_job(command, checked, Job(command, job.overrides, None, typed))
    _mask_record(Path(hydra_config.sweep.dir) / "multirun.yaml")
    keys = (*swept, *(hydra_config.sweeper.get("params") or ()))
    values = {key: value for key, value in settings(overrides).items() if key in keys}
    return run_job(
        command, checked, Job(command, overrides, _named(Path(hydra_config.runtime.output_dir), values), typed)
    )


def _named(made: Path, values: Mapping[str, str]) -> Path:
    """The folder of a job, named by what varies, in place of the empty one that Hydra made and named by its number."""
    if not made.name.isdigit():  # the user's own hydra.sweep.subdir
        return made
    with suppress(OSError):
        made.rmdir()
    return made.with_name(job_name(int(made.name), values))


def _mask_record(path: Path) -> None:
    """Hydra writes down how a sweep was asked for, secrets included."""
    if path.is_file():
        values = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
        masked = mask(values)
        if masked != values:
            write_bytes(path, OmegaConf.to_yaml(OmegaConf.create(masked)).encode())
