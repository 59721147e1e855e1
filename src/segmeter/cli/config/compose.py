"""Composes the values of every job of a command line with Hydra, and lists all problems before any work starts."""

import itertools
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel
from yaml import YAMLError

from segmeter.checks import close_name, expected, nearest
from segmeter.cli.config.groups import CONFIGS, GROUPS, ROOTS, TRAINED, groups_of, options, schemas_of
from segmeter.cli.config.hydra_rules import (
    NO_GROUP,
    OUTPUTS,
    PACKAGE,
    PLUGINS,
    TEXTS,
    SearchConfig,
    check_files,
    one_line,
    parse_overrides,
    quoted,
    read_search,
    setting_fault,
)
from segmeter.errors import ConfigError
from segmeter.schema import REQUIRED, defaults

SWEEP_LIMIT = 1000  # a sweep has at most this many jobs, as all are checked before the first one starts
_RESOLVER_PREFIX = "ValueError raised while resolving interpolation: "
Choices = dict[str, list[str]]  # the options of each group; [] for a group that the command lacks
# AttributeError is raised if a mapping replaces a null of Hydra's own, ValueError if a defaults list is not a list.
_FAULTS = (HydraException, OmegaConfBaseException, YAMLError, AttributeError, ValueError)


@dataclass(frozen=True)
class Request:
    """A request from the command line: the root configuration, its overrides, and a folder of the user's YAML files."""

    config_name: str
    overrides: Sequence[str] = ()
    config_dir: str | None = None
    sweep: bool = False

    @cached_property
    def folders(self) -> list[Path]:
        """The folders of YAML files, ours and the user's. The one that holds the root file comes first."""
        folders = [CONFIGS, *([Path(self.config_dir).absolute()] if self.config_dir else [])]
        return sorted(folders, key=lambda folder: not (folder / f"{self.config_name}.yaml").is_file())


@dataclass(frozen=True, kw_only=True)
class Composed:
    """One job as Hydra composed it.

    Parameters
    ----------
    overrides
        As written.
    values, raw
        The plain values, after and before each ${...} is resolved.
    hydra
        The settings of Hydra itself.
    own_files
        Whether a folder of the user's YAML files was given.
    """

    overrides: tuple[str, ...]
    values: dict[str, Any]
    raw: dict[str, Any]
    hydra: dict[str, Any]
    own_files: bool


def compose_jobs(request: Request, problems: list[str]) -> list[Composed]:
    """Compose every job that a command line asks for: one, or one per combination of a sweep.

    Overrides that can't be parsed, unknown groups and options, failing interpolations, and jobs that can't be composed
    are left out. Each adds a line to `problems`, so that the rest can be checked too.
    """
    if request.config_dir:
        folder = Path(request.config_dir).absolute()
        if not folder.is_dir():
            raise ConfigError(f"config: --config-dir: {folder} is not a folder.")
        check_files(folder)
    name = request.config_name
    known = sorted(path.stem for folder in request.folders for path in folder.glob("*.yaml"))
    if name not in known:
        raise ConfigError(f"config: no configuration is named {name!r}. {nearest(name, known)}")
    roots = [name] if name in ROOTS else [*ROOTS]  # a root file of the user's may start from any
    groups = [group for group in GROUPS if any(group in groups_of(root) for root in roots)]
    choices: Choices = {group: [] for group in GROUPS} | options(request.folders, groups)
    parsed = parse_overrides(request.overrides, problems)
    overrides = list[Override]()
    for override in parsed:
        faults = [*_faults(override, choices | PLUGINS, sweep=request.sweep)]
        problems.extend(faults)
        overrides += [] if faults else [override]
    for key in TEXTS:  # Hydra takes the last value of a key, and a gate would lose the first one
        count = [override.key_or_group for override in parsed].count(key)
        if count > 1:
            remedy = f"Write a list: '{key}=[A,B]'."
            problems.append(f"config: `{key}` is given {count} times, and only the last would count. {remedy}")
    OmegaConf.register_new_resolver("oc.env", _environment, replace=True)
    stored: list[tuple[Any, str, Any]] = [(None, f"schema_{root}", ROOTS[root]) for root in roots]
    stored += [(group, option, schema) for group in groups for option, schema in schemas_of(group).items()]
    for group, option, schema in (*stored, ("hydra/sweeper", "optuna", SearchConfig)):
        _store(group, option, schema)
    ConfigStore.instance().store(group="data", name=TRAINED, node={"name": TRAINED})
    with initialize_config_dir(str(request.folders[0]), job_name=name, version_base="1.3"):
        single_job = tuple(override.input_line or "" for override in overrides)
        combinations = _combinations(overrides, problems) if request.sweep else [single_job]
        jobs = [_compose_job(request, choices, lines, problems) for lines in combinations[:1]]
        if len(combinations) > 1 and not (jobs[0] and is_searched(jobs[0])):
            if len(combinations) > SWEEP_LIMIT:
                problems.append(
                    f"config: expected a sweep to be of at most {SWEEP_LIMIT} jobs, got more. Split it, or let "
                    "hydra/sweeper=optuna choose among its values."
                )
            jobs += [_compose_job(request, choices, lines, problems) for lines in combinations[1:SWEEP_LIMIT]]
    try:
        if jobs and jobs[0]:
            read_search(jobs[0].hydra)
    except ConfigError as error:
        problems.extend(error.problems)
    return [job for job in jobs if job]


@cache
def _store(group: str | None, name: str, schema: type[BaseModel]) -> None:
    """Store one schema, once per process, as this takes longer than composing a small configuration."""
    ConfigStore.instance().store(group=group, name=name, node=defaults(schema))


def _environment(name: str, default: str | None = None) -> str | None:
    """Read an environment variable. Only SEGMETER_* can be read, as values end up in files and reports."""
    if not name.startswith("SEGMETER_"):
        raise ValueError(f"only variables whose names start with SEGMETER_ can be read, not {name}")
    if name not in os.environ and default is None:
        raise ValueError(f"environment variable {name} is not set")
    return os.environ.get(name, default)


def _faults(override: Override, known: Choices, *, sweep: bool) -> Iterator[str]:
    """Say why an override can't be composed: an unknown group or option, a stray comma, or a setting of Hydra's own."""
    key = override.key_or_group
    line = override.input_line or ""
    if PACKAGE.search(line) and not key.startswith("hydra."):
        yield f"config: {line!r} can't be set here: its package is 'hydra'. {OUTPUTS}"
    elif key.partition(".")[0] == "hydra" and (fault := setting_fault(key)):
        yield f"config: {fault}"
    elif key.startswith("hydra/") and (key not in PLUGINS or override.is_delete()):
        yield f"config: {line!r} can't be set here. Allowed: {', '.join(PLUGINS)}."
    elif "/" in key and key not in known:
        yield f"config: unknown group {key!r}. {nearest(key, known)}"
    elif key in known and not known[key]:
        yield f"config: {NO_GROUP.format(key)}"
    elif override.is_sweep_override() and not sweep:
        remedy = f"write a list as '{key}=[1,2]', and quote text that holds commas: \"{key}='a,b'\"."
        yield f"config: {line!r} gives several values. Add --multirun to run each; {remedy}"
    elif key in known and not override.is_delete():
        rule = f"to be one of {', '.join(known[key])}"
        for name in _chosen(override):
            if name not in known[key]:
                yield expected("config", key, rule, repr(name), close_name(name, known[key]))


def _chosen(override: Override) -> list[str]:
    """Return the options of a group that an override names."""
    if override.is_sweep_override():
        return [str(name) for name in override.sweep_string_iterator()] if override.is_discrete_sweep() else []
    value = override.value()
    return [str(name) for name in value] if isinstance(value, list) else ["null" if value is None else str(value)]


def _combinations(overrides: list[Override], problems: list[str]) -> list[tuple[str, ...]]:
    """Return the overrides of every job of a sweep over listed values, up to one job above the limit.

    Ranges for an optimiser are left out, as values are checked once the optimiser has chosen them.
    """
    axes = []
    for override in overrides:
        key = override.get_key_element()
        line = override.input_line or ""
        if not override.is_sweep_override():
            axes.append([line])
        elif override.is_discrete_sweep():
            values = list[str]()
            with suppress(ValueError, HydraException):  # a step of 0
                values = list(itertools.islice(override.sweep_string_iterator(), SWEEP_LIMIT + 1))
            if not values:
                problems.append(f"config: the sweep {line!r} is empty. List its values: {key}=1,2.")
            axes.append([f"{key}={value}" for value in values])
    return list(itertools.islice(itertools.product(*axes), SWEEP_LIMIT + 1))


def is_searched(job: Composed) -> bool:
    """Tell whether an optimiser chooses the jobs. If so, only the first combination is checked beforehand."""
    return bool(job.hydra["runtime"]["choices"].get("hydra/sweeper") == "optuna")


def _compose_job(
    request: Request, choices: Choices, overrides: tuple[str, ...], problems: list[str]
) -> Composed | None:
    lines = []
    for line in overrides:
        key, _, value = line.partition("=")
        is_kept = key.startswith(("+", "~")) or (key.startswith("hydra.") and not value.startswith("{"))
        is_group = "/" in key or key.partition("@")[0] in choices
        # ++ sets even a key that the YAML files lack, and the schema refuses an unknown one later
        lines.append(line if is_kept or is_group else f"++{line}")
    config = _compose(request, lines)
    if isinstance(config, str):  # Hydra stops at the first problem, so each override is also composed by itself
        faults = [(line, fault) for line in lines if isinstance(fault := _compose(request, [line]), str)]
        problems.extend(f"config: {line.lstrip('+')}: {fault.removeprefix('config: ')}" for line, fault in faults)
        problems.extend([] if faults else [config])
        return None
    OmegaConf.set_readonly(config, False)
    OmegaConf.set_struct(config, False)
    node = config.pop("hydra")
    raw: Any = OmegaConf.to_container(config)
    return Composed(
        overrides=overrides,
        values={str(key): _plain(config, key, str(key), problems) for key in config},
        raw={str(key): value for key, value in raw.items()},
        hydra={key: OmegaConf.to_container(node[key]) for key in ("runtime", "sweep", "sweeper")},
        own_files=request.config_dir is not None,
    )


def _compose(request: Request, overrides: Sequence[str]) -> DictConfig | str:
    """Return the configuration that Hydra composes, or Hydra's error message on one line."""
    folders = [quoted(f"file://{folder}") for folder in request.folders[1:]]
    searchpath = [f"hydra.searchpath=[{','.join(folders)}]"] if folders else []
    try:
        return compose(request.config_name, overrides=[*overrides, *searchpath], return_hydra_config=True)
    except RecursionError:
        return one_line(HydraException(f"the defaults of a file in {request.config_dir} lead back to that file"))
    except _FAULTS as error:
        return one_line(error)


def _plain(parent: DictConfig | ListConfig, key: Any, path: str, problems: list[str]) -> Any:
    """Resolve a value into plain values. An interpolation that fails adds a line to `problems`."""
    if OmegaConf.is_missing(parent, key):
        return REQUIRED
    try:
        value = parent[key]
    except OmegaConfBaseException as error:
        reason = one_line(error).removeprefix("config: ").removeprefix(_RESOLVER_PREFIX)
        problems.append(f"config: can't resolve `{path}`: {reason}. Write a value, or the path of another key.")
        return None
    if isinstance(value, DictConfig):
        return {k: _plain(value, k, f"{path}.{k!s}", problems) for k in value}
    if isinstance(value, ListConfig):
        return [_plain(value, i, f"{path}[{i}]", problems) for i in range(len(value))]
    return value
