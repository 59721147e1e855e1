"""Composes the values of every job of a command line with Hydra, and lists all problems before any work starts."""

import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from segmeter.checks import close_name, expected, nearest
from segmeter.cli.config.groups import CONFIGS, GROUPS, ROOTS, TRAINED, groups_of_all, options, schemas_of
from segmeter.cli.config.hydra_rules import (
    NO_GROUP,
    PLUGINS,
    SearchConfig,
    check_files,
    one_line,
    package_fault,
    read_search,
    setting_fault,
)
from segmeter.cli.config.overrides import TEXTS, parse_overrides, quoted
from segmeter.errors import ConfigError
from segmeter.schema import REQUIRED, defaults

SWEEP_LIMIT = 1000  # jobs of a sweep; all are checked before the first one starts
_OF_A_RESOLVER = "ValueError raised while resolving interpolation: "
# AttributeError if a mapping replaces a null of Hydra's own; ValueError if a defaults list is none
_FAULTS = (HydraException, OmegaConfBaseException, YAMLError, AttributeError, ValueError)


@dataclass(frozen=True)
class Request:
    """A request from the command line: the root configuration, its overrides, and a folder of the user's YAML files."""

    config_name: str
    overrides: Sequence[str] = ()
    config_dir: str | None = None
    sweep: bool = False

    @property
    def folders(self) -> list[Path]:
        """All folders of YAML files: ours, then the user's own."""
        return [CONFIGS, *([Path(self.config_dir).absolute()] if self.config_dir else [])]

    @property
    def roots(self) -> list[str]:
        """The commands whose configuration this may be: a root file of the user's may start from any."""
        return [self.config_name] if self.config_name in ROOTS else [*ROOTS]

    @cached_property
    def options(self) -> dict[str, list[str]]:
        """The options of each group that the command has; none of the other groups."""
        return {group: [] for group in GROUPS} | options(self.folders, groups_of_all(self.roots))


@dataclass(frozen=True, kw_only=True)
class Composed:
    """One job: its overrides as written, its plain values, and the composed nodes before resolving.

    `own_files` tells whether the user's YAML files were among those that it was composed from.
    """

    overrides: tuple[str, ...]
    values: dict[str, Any] = field(default_factory=dict)
    config: DictConfig | None = None
    hydra: DictConfig | None = None
    own_files: bool = False

    def container(self, *, resolve: bool = False) -> dict[str, Any]:
        """Give the composed values as the files and overrides have them; `resolve` replaces each ``${...}``.

        Raises
        ------
        ConfigError
            One can't be resolved.
        """
        try:
            found: Any = OmegaConf.to_container(self.config, resolve=resolve) if self.config is not None else {}
        except OmegaConfBaseException as error:
            raise ConfigError(one_line(error)) from error
        return {str(key): value for key, value in found.items()}


def compose_jobs(request: Request, problems: list[str]) -> list[Composed]:
    """Compose every job that a command line asks for: one, or one per combination of a sweep.

    Overrides that can't be parsed, unknown groups and options, and failing interpolations are left out. Each adds a
    line to `problems`, so that the rest can be checked too.
    """
    _check_names(request)
    overrides = _sound(request, parse_overrides(request.overrides, problems), problems)
    store_schemas(request.roots)
    with initialize_config_dir(str(_folder_of_root(request)), job_name=request.config_name, version_base="1.3"):
        alone = tuple(override.input_line or "" for override in overrides)
        jobs = _combinations(overrides, problems) if request.sweep else [alone]
        found = [_composed(request, job, problems) for job in jobs[:1]]
        if len(jobs) > 1 and not is_searched(found[0]):
            if len(jobs) > SWEEP_LIMIT:
                problems.append(
                    f"config: expected a sweep to be of at most {SWEEP_LIMIT} jobs, got more. Split it, or let "
                    "hydra/sweeper=optuna choose among its values."
                )
            found += [_composed(request, job, problems) for job in jobs[1:SWEEP_LIMIT]]
    if found and found[0].hydra is not None:
        try:
            read_search(found[0].hydra)
        except ConfigError as error:
            problems.extend(error.problems)
    return found


def _check_names(request: Request) -> None:
    if not CONFIGS.is_dir():
        raise ConfigError(f"config: segmeter's own configurations are missing from {CONFIGS}. Install it again.")
    for folder in request.folders[1:]:
        if not folder.is_dir():
            raise ConfigError(f"config: --config-dir: {folder} is not a folder.")
        check_files(folder)
    known = sorted(path.stem for folder in request.folders for path in folder.glob("*.yaml"))
    if request.config_name not in known:
        raise ConfigError(
            f"config: no configuration is named {request.config_name!r}. {nearest(request.config_name, known)}"
        )


def _folder_of_root(request: Request) -> Path:
    return next(folder for folder in request.folders if (folder / f"{request.config_name}.yaml").is_file())


def store_schemas(roots: Sequence[str]) -> None:
    """Give Hydra the defaults of the schemas that these commands can choose: they need no YAML files."""
    OmegaConf.register_new_resolver("oc.env", _environment, replace=True)
    schemas = {("", f"schema_{name}"): ROOTS[name] for name in roots}
    schemas |= {(group, name): schema for group in groups_of_all(roots) for name, schema in schemas_of(group).items()}
    store = ConfigStore.instance()
    for (group, name), schema in schemas.items():
        store.store(group=group or None, name=name, node=defaults(schema))
    store.store(group="data", name=TRAINED, node={"name": TRAINED})
    store.store(group="hydra/sweeper", name="optuna", node=defaults(SearchConfig))


def _environment(name: str, default: str | None = None) -> str | None:
    """Read an environment variable. Only SEGMETER_* can be read, as values end up in files and reports."""
    if not name.startswith("SEGMETER_"):
        raise ValueError(f"only variables whose names start with SEGMETER_ can be read, not {name}")
    if name not in os.environ and default is None:
        raise ValueError(f"environment variable {name} is not set")
    return os.environ.get(name, default)


def _sound(request: Request, overrides: list[Override], problems: list[str]) -> list[Override]:
    """Drop overrides that can't be composed, with a line each: unknown groups or options, stray commas.

    A second `require` is refused too: Hydra takes the last value of a key, and a gate would lose the first one.
    """
    known = {**request.options, **PLUGINS}
    keys = [override.key_or_group for override in overrides]
    problems.extend(
        f"config: `{key}` is given {keys.count(key)} times, and only the last would count. Write a list: '{key}=[A,B]'."
        for key in TEXTS
        if keys.count(key) > 1
    )
    return [o for o in overrides if not _problem(o, known, request.sweep, problems)]


def _problem(override: Override, known: dict[str, list[str]], sweep: bool, problems: list[str]) -> bool:
    before = len(problems)
    key, line = override.key_or_group, override.input_line
    fault = setting_fault(key.removeprefix("hydra.")) if key.startswith("hydra.") else package_fault(line or "")
    if fault or key == "hydra":
        problems.append(f"config: {fault or setting_fault('')}")
    elif key.startswith("hydra/") and key not in PLUGINS:
        problems.append(f"config: {key!r} can't be set here. Allowed: {', '.join(PLUGINS)}.")
    elif "/" in key and not key.startswith("hydra/") and key not in known:
        problems.append(f"config: unknown group {key!r}. {nearest(key, known)}")
    elif key in known and not known[key]:
        problems.append(f"config: {NO_GROUP.format(key)}")
    elif override.is_sweep_override() and not sweep:
        problems.append(
            f"config: {line!r} gives several values. Add --multirun to run each; write a list as '{key}=[1,2]', "
            f"and quote text that holds commas: \"{key}='a,b'\"."
        )
    elif key in known and not override.is_delete():
        problems += _unknown_options(override, known[key])
    return len(problems) > before


def _unknown_options(override: Override, known: list[str]) -> list[str]:
    group = override.key_or_group
    if override.is_sweep_override():
        chosen: list[Any] = list(override.sweep_string_iterator()) if override.is_discrete_sweep() else []
    else:
        value = override.value()
        chosen = value if isinstance(value, list) else ["null" if value is None else value]
    rule = f"to be one of {', '.join(known)}"
    wrong = (name for name in map(str, chosen) if name not in known)
    return [expected("config", group, rule, repr(name), close_name(name, known)) for name in wrong]


def _combinations(overrides: list[Override], problems: list[str]) -> list[tuple[str, ...]]:
    """Return the overrides of every job of a sweep over listed values, up to one job above the limit.

    Ranges for an optimiser are left out: the values are checked once it has chosen them.
    """
    axes = []
    for override in overrides:
        if not override.is_sweep_override():
            axes.append([override.input_line or ""])
        elif override.is_discrete_sweep():
            axes.append(_axis(override, problems))
    return list(itertools.islice(itertools.product(*axes), SWEEP_LIMIT + 1))


def _axis(override: Override, problems: list[str]) -> list[str]:
    """Return the values of one key, enough of them that no combination below the limit is lost."""
    key, line = override.get_key_element(), override.input_line
    try:
        values = list(itertools.islice(override.sweep_string_iterator(), SWEEP_LIMIT + 1))
    except (ValueError, HydraException) as error:  # a step of 0
        problems.append(f"config: can't read the sweep {line!r} ({error}). List its values: {key}=1,2.")
        return []
    if not values:
        problems.append(f"config: the sweep {line!r} is empty. List its values: {key}=1,2.")
    return [f"{key}={value}" for value in values]


def is_searched(job: Composed) -> bool:
    """Tell whether an optimiser chooses the jobs; then only the first combination is checked beforehand."""
    return job.hydra is not None and job.hydra.runtime.choices.get("hydra/sweeper") == "optuna"


def _composed(request: Request, overrides: tuple[str, ...], problems: list[str]) -> Composed:
    lines = [line if _as_it_is(line, request.options) else f"++{line}" for line in overrides]  # Hydra accepts any key
    try:
        config = _compose(request, lines)
    except _FAULTS as error:
        problems.extend(_each_fault(request, lines) or [one_line(error)])
        return Composed(overrides=overrides)
    OmegaConf.set_readonly(config, False)
    OmegaConf.set_struct(config, False)
    node = config.pop("hydra")
    values = {str(key): _plain(config, key, str(key), problems) for key in config}
    own = request.config_dir is not None
    return Composed(overrides=overrides, values=values, config=config, hydra=node, own_files=own)


def _compose(request: Request, overrides: Sequence[str]) -> DictConfig:
    others = [quoted(f"file://{folder}") for folder in request.folders if folder != _folder_of_root(request)]
    found = [f"hydra.searchpath=[{','.join(others)}]"] if others else []
    try:
        return compose(request.config_name, overrides=[*overrides, *found], return_hydra_config=True)
    except RecursionError:
        raise HydraException(f"the defaults of a file in {request.config_dir} lead back to that file") from None


def _as_it_is(line: str, known: dict[str, list[str]]) -> bool:
    """Tell whether an override chooses a group, has its own +, ++ or ~, or sets a Hydra key that is not a mapping."""
    key, _, value = line.partition("=")
    own = key.startswith("hydra.") and not value.startswith("{")
    return key.partition("@")[0] in known or "/" in key or key.startswith(("+", "~")) or own


def _each_fault(request: Request, overrides: Sequence[str]) -> list[str]:
    """Return the problem of each override composed alone, as Hydra stops at the first one."""
    lines = []
    for override in overrides:
        try:
            _compose(request, [override])
        except _FAULTS as error:
            lines.append(one_line(error))
    return lines


def _plain(parent: DictConfig | ListConfig, key: Any, path: str, problems: list[str]) -> Any:
    """Resolve a value into plain ones; a failing interpolation adds a line to `problems`."""
    if OmegaConf.is_missing(parent, key):
        return REQUIRED
    try:
        value = parent[key]
    except OmegaConfBaseException as error:
        reason = one_line(error).removeprefix("config: ").removeprefix(_OF_A_RESOLVER)
        problems.append(f"config: can't resolve `{path}`: {reason}. Write a value, or the path of another key.")
        return None
    if isinstance(value, DictConfig):
        return {k: _plain(value, k, f"{path}.{k!s}", problems) for k in value}
    if isinstance(value, ListConfig):
        return [_plain(value, i, f"{path}[{i}]", problems) for i in range(len(value))]
    return value
