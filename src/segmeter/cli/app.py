"""Runs one command: reads its arguments, checks its configuration, and runs the job, or each job of a sweep.

`segmeter demo` runs several commands as a user would type them.
"""

import argparse
import json
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from segmeter.checks import expected
from segmeter.cli.commands import read_arguments
from segmeter.cli.config.compose import Composed, Request, compose_jobs
from segmeter.cli.config.convert import convert, fill_recipe
from segmeter.cli.config.groups import ROOTS, load_plugins
from segmeter.cli.config.hydra_rules import LAUNCHERS, written
from segmeter.cli.folders import Job, new_root
from segmeter.cli.launch import run_job
from segmeter.errors import ConfigError, InputError
from segmeter.records import read_yaml


def run_command(command: str, argv: Sequence[str]) -> None:
    """Run one command with its overrides and flags.

    Raises
    ------
    ConfigError
        With every problem of the configuration, before any work starts.
    """
    args = read_arguments(command, argv)
    if command == "plan":  # run=RUN names its pilot, as in `report run=RUN`
        args.overrides = [f"runs={line[4:]}" if line.startswith("run=") else line for line in args.overrides]
    args.overrides = written_out(args.overrides)
    load_plugins(plugins_of(args.overrides))
    sweep = args.multirun or "hydra.mode=MULTIRUN" in args.overrides
    request = Request(args.config_name or command, args.overrides, args.config_dir, sweep)
    if args.cfg:
        return _show(command, request, args)
    jobs = compose_and_validate(command, request)
    typed_argv = (sys.argv[0], command, *argv)
    if sweep:
        return _sweep(command, request, jobs, typed_argv)
    composed, config = jobs[0]
    try:
        run_job(config, Job(command, composed.overrides, None, typed_argv))
    except InputError as error:  # `plan` and others read runs by the functions of `compare`, whose errors name it
        error.problems = tuple(
            f"{command}:{line.removeprefix('compare:')}" if line.startswith("compare:") else line
            for line in error.problems
        )
        raise
    return None


def written_out(overrides: Sequence[str]) -> list[str]:
    """Expand shorthand overrides.

    Three are known: `logger=[wandb,tensorboard]`, Hydra's spellings of `launch`, and `postprocess=FILE.yaml` with a
    file that `segmeter tune` wrote. The values of the file come first, so that the other overrides win.

    Raises
    ------
    ConfigError
        The file is missing, or holds other groups.
    """
    from_files = list[str]()
    expanded = list[str]()
    for line in overrides:
        key, _, value = line.partition("=")
        if key == "postprocess" and value.endswith(".yaml"):
            from_files += _tuned(Path(value))
        elif key == "logger" and value.startswith("["):
            first, *others = [name.strip() for name in value.strip("[]").split(",")]
            expanded += [f"logger={first}", f"logger.also=[{','.join(others)}]"]
        elif key.startswith("hydra.launcher."):
            every_core = value == "-1"  # joblib's spelling
            expanded.append(f"launch.{key.removeprefix('hydra.launcher.')}={'null' if every_core else value}")
        else:
            expanded += LAUNCHERS[value] if key == "hydra/launcher" and value in LAUNCHERS else (line,)
    return [*from_files, *expanded]


def _tuned(path: Path) -> list[str]:
    """Return the values in a file of `segmeter tune` as overrides."""
    try:
        values = read_yaml(path)
    except OSError as error:
        rule = "to be a file that segmeter tune wrote, or an option"
        raise ConfigError(expected("config", "postprocess", rule, f"{path} ({error.strerror})")) from error
    if set(values) - {"inference", "postprocess"} or not all(isinstance(keys, dict) for keys in values.values()):
        rule = f"to hold inference and postprocess, in {path}"
        raise ConfigError(expected("config", "postprocess", rule, ", ".join(values)))
    return [f"{group}.{key}={written(value)}" for group, keys in values.items() for key, value in keys.items()]


def _sweep(command: str, request: Request, jobs: list[tuple[Composed, Any]], argv: tuple[str, ...]) -> None:
    """Run the jobs of a sweep, or let Optuna choose them."""
    from segmeter.cli.sweep import Sweep, run_sweep

    composed, config = jobs[0]
    plan = Sweep(command, composed, root=config.run.root, argv=argv)
    params = [f"{key}={value}" for key, value in plan.options.params.items()]
    if params:  # from a file; the command line overrides them
        request = replace(request, overrides=[*params, *request.overrides])
        jobs = jobs if plan.searched else compose_and_validate(command, request)
    folds = [job_config.folds for _, job_config in jobs if getattr(job_config, "folds", None) is not None]
    if folds:
        raise ConfigError(expected("config", "folds", "to be null with --multirun", folds[0]))
    if not plan.searched:
        return run_sweep(plan, jobs)
    from segmeter.cli.optuna_search import search

    single = replace(request, sweep=False)

    def validate(overrides: Sequence[str]) -> Any:
        return compose_and_validate(command, replace(single, overrides=overrides))[0][1]

    return search(plan, config, request.overrides, validate)


def plugins_of(overrides: Sequence[str]) -> list[str]:
    """Read the names of plugins from the text of a command line, as plugins are imported before composing."""
    values = [line.partition("=")[2] for line in overrides if line.lstrip("+").startswith("plugins=")]
    return [name.strip(" '\"") for value in values for name in value.strip("[]").split(",") if name.strip()]


def compose_and_validate(command: str, request: Request) -> list[tuple[Composed, Any]]:
    """Compose every job of a request and validate its configuration.

    Raises
    ------
    ConfigError
        With every problem, each once.
    """
    problems: list[str] = []
    jobs = compose_jobs(request, problems)
    validated = [(job, convert(ROOTS[command], job, command=command, problems=problems)) for job in jobs]
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
    return validated


def print_schema(arguments: Sequence[str]) -> None:
    """Print the JSON Schema of a command or a group, with the components of plugins.

    Raises
    ------
    ConfigError
        There is not exactly one name, or no such command or group.
    """
    from segmeter.cli.config.reference import json_schema, names

    load_plugins(plugins_of(arguments))
    wanted = [argument for argument in arguments if not argument.startswith("plugins=")]
    if len(wanted) != 1:
        raise ConfigError(f"schema: expected one name, got {len(wanted)}. Known: {', '.join(names())}.")
    sys.stdout.write(json.dumps(json_schema(wanted[0]), indent=1, ensure_ascii=False) + "\n")


def _show(command: str, request: Request, args: argparse.Namespace) -> None:
    """Print the configuration, or that of a sweep's last job. Required keys may still be unset."""
    from segmeter.cli.config.reference import yaml_text
    from segmeter.schema.json_schema import node_of

    problems: list[str] = []
    jobs = compose_jobs(request, problems)
    invalid: list[str] = []
    for job in jobs:
        convert(ROOTS[command], job, command=command, problems=invalid, fill=False)
    problems += [line for line in invalid if "unknown key" in line or "is not allowed" in line]
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
    job = jobs[-1]
    filled = fill_recipe(job.values, job) if command == "train" else {}  # a run would fill them in
    chosen = {key: value for key, value in filled.items() if value != job.values[key]}
    shown = (job.values if args.resolve else job.raw) | chosen
    sys.stdout.write(yaml_text(node_of(ROOTS[command]), shown, part=args.package))


def run_demo(arguments: Sequence[str]) -> None:
    """Check, train, evaluate and predict on built-in data, in a new folder.

    Raises
    ------
    ConfigError
        There is more than one argument, or the folder can't be made.
    """
    if len(arguments) > 1 or any("=" in argument for argument in arguments):
        given = " ".join(arguments)
        raise ConfigError(f"demo: expected at most a folder, got {given!r}. Use train and eval to set values.")
    if find_spec("torch") is None:  # checked now, as the first step needs no torch
        raise ModuleNotFoundError("No module named 'torch'", name="torch")
    from segmeter.data.config import CellsConfig
    from segmeter.data.verification.splits import build_dataset

    start = time.monotonic()
    root = new_root(Path(arguments[0] if arguments else "runs"), f"demo-{datetime.now():%Y-%m-%d_%H%M%S}")
    _step("check", "data=cells")
    _step("train", "experiment=demo", f"run.root={root}")
    checkpoint = f"checkpoint={_newest(root / 'train')}"
    _step("eval", checkpoint, "postprocess=cells", "export.probs=true", "export.instances=true",
          f"run.root={root}")  # fmt: skip
    evaluated = _newest(root / "eval")
    images = build_dataset(CellsConfig(), split="test").pairs[0].image.parent
    _step("predict", checkpoint, f"input={images}", f"run.root={root}")
    sys.stdout.write(
        f"\nAll of it took {time.monotonic() - start:.0f} s.\n"
        f"  metrics   {evaluated / 'metrics.json'}\n"
        f"  overlays  {evaluated / 'overlays'}\n"
        f"  report    {evaluated / 'report.html'}\n"
    )


def _step(command: str, *overrides: str) -> None:
    sys.stdout.write(f"\n$ segmeter {command} {shlex.join(overrides)}\n")
    sys.stdout.flush()
    run_command(command, overrides)


def _newest(folder: Path) -> Path:
    return max(folder.iterdir())
