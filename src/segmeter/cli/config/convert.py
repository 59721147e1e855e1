"""composed values -> the checked configuration of a command, or one line per problem."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from pydantic import ValidationError

from segmeter.cli.config.compose import Composed
from segmeter.cli.config.groups import CONFIGS
from segmeter.cli.config.resumed import fill_resumed
from segmeter.cli.config.schema import EvalConfig
from segmeter.cli.config.trained_data import TRAINED, fill_data
from segmeter.cli.config.written import find_choice, find_written
from segmeter.errors import InputError
from segmeter.schema import REQUIRED, Config
from segmeter.schema.declared import name_of
from segmeter.schema.invalid import problems_by_key, required


def convert(
    root: type[Config], job: Composed, *, command: str, folders: Sequence[Path], problems: list[str]
) -> Config | None:
    """Check the values of a job, first completed by the run that it resumes, and by what a checkpoint says of its data.

    Parameters
    ----------
    root
        The schema of the command.
    command
        Named where a line says which help to look at.
    folders
        The user's own, with YAML files: lines name the file and the line in it.
    problems
        Takes a line per problem; the result is then None.
    """
    values, told = job.values, []
    try:
        values = fill_resumed(job)
        values = fill_data(values, job.overrides) if root is EvalConfig else values
    except InputError as error:
        told = [*error.problems]
    config, found = _checked(root, job, values, command=command, folders=folders, filled=not told)
    problems.extend([*told, *found])
    return None if told or found else config


def unknown_keys(root: type[Config], job: Composed, *, command: str) -> list[str]:
    """A line for each key that the command does not have; values are not looked at."""
    _, problems = _checked(root, job, job.values, command=command, folders=[], filled=True)
    return [line for line in problems if "unknown key" in line or "is not allowed" in line]


def _checked(
    root: type[Config], job: Composed, values: dict[str, Any], *, command: str, folders: Sequence[Path], filled: bool
) -> tuple[Config | None, list[str]]:
    unset: list[str] = []
    unknown = root is EvalConfig and name_of(values.get("data")) == TRAINED  # the checkpoint knows it, but is not given
    untold = set() if filled and not unknown else {"data"}
    values = _without_unset({key: value for key, value in values.items() if key not in untold}, "", unset)
    lines = [required(key) for key in unset]
    try:
        config = root.model_validate(values)
    except ValidationError as error:
        found = problems_by_key(
            error,
            root,
            values,
            written=lambda key: find_written(key, job.overrides, values, folders),
            advice=lambda key: _advice(root, job, key, command=command, folders=[CONFIGS, *folders]),
        )
        failed = {*found, *unset}
        told = {key: of for key, of in found.items() if key not in untold and not _follows(key, job, failed)}
        return None, [*lines, *(line for of in told.values() for line in of if line not in lines)]
    return config, lines


def _follows(key: str, job: Composed, failed: set[str]) -> bool:
    """Whether a key takes its value from one that failed: ${seed} of `seed`."""
    parent, _, last = key.rpartition(".")
    node = OmegaConf.select(job.config, parent) if job.config is not None and parent else job.config
    if not isinstance(node, DictConfig) or last not in node or not OmegaConf.is_interpolation(node, last):
        return False
    raw = OmegaConf.to_container(node, resolve=False)
    return isinstance(raw, dict) and str(raw[last]).strip("${}") in failed


def _without_unset(values: Any, path: str, unset: list[str]) -> Any:
    """Leave out what must still be given, and note its key."""
    if isinstance(values, dict):
        kept = {}
        for key, value in values.items():
            here = f"{path}.{key}" if path else str(key)
            if value == REQUIRED:
                unset.append(here)
            else:
                kept[key] = _without_unset(value, here, unset)
        return kept
    return values


def _advice(root: type[Config], job: Composed, key: str, *, command: str, folders: Sequence[Path]) -> str:
    """Say how to take out an unknown key that a chosen file sets, and which help lists the known ones."""
    chosen = find_choice(key, job.overrides, folders)
    remedy = f"{chosen} sets it: '~{key}' on the command line takes it out. " if chosen else ""
    return f"{remedy}See: segmeter {command} --help {_group(root, key)}".rstrip() + "."


def _group(root: type[Config], key: str) -> str:
    group = key.partition(".")[0]
    return group if "." in key and group in root.model_fields else ""
