"""overrides -> composed values, through Hydra; everything that is wrong with them is said at once, before any work."""

import itertools
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from hydra import compose, version
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from segmeter.checks import expected, nearest
from segmeter.cli.convert import UNSET, defaults, unknown_key
from segmeter.cli.groups import GROUPS
from segmeter.cli.hydra_rules import PLUGINS, check_files, hydra_problems
from segmeter.cli.trained_data import TRAINED, open_keys
from segmeter.errors import ConfigError
from segmeter.registry import Registry

CONFIGS = Path(__file__).parents[1] / "configs"
SWEEP_LIMIT = 1000  # combinations that are checked before the first job starts
_FAULTS = (HydraException, OmegaConfBaseException, YAMLError)

# What a user may set of Hydra itself: sweeps and launchers. The rest either names code to run
# (callbacks, logging classes, search paths) or moves outputs away from the run folder.
_HYDRA_KEYS = ("hydra.sweep.", "hydra.sweeper.", "hydra.launcher.", "hydra.mode", "hydra.verbose", "hydra.job.env_")
_HYDRA_GROUPS = ("hydra/launcher", "hydra/sweeper")


def store_schemas(roots: dict[str, type]) -> None:
    """Give Hydra the defaults of every schema, as `schema_<name>`; what has no YAML file can be chosen by its name."""
    store = ConfigStore.instance()
    for name, root in roots.items():
        store.store(name=f"schema_{name}", node=defaults(root))
    for group, choice in GROUPS.items():
        names = choice.names() if isinstance(choice, Registry) else ["default"]
        for name in names:
            schema = choice.schema(name) if isinstance(choice, Registry) else choice
            store.store(group=group, name=f"schema_{name}", node=defaults(schema))
            if not (CONFIGS / group / f"{name}.yaml").exists():
                store.store(group=group, name=name, node=defaults(schema))
    store.store(group="data", name=TRAINED, node=open_keys())
    OmegaConf.register_new_resolver("oc.env", _environment, replace=True)


def _environment(name: str, default: str | None = None) -> str | None:
    """Only SEGMETER_* variables can be read: whatever is read ends in files and reports."""
    if not name.startswith("SEGMETER_"):
        raise ValueError(f"only variables whose names start with SEGMETER_ can be read, not {name}")
    if name not in os.environ and default is None:
        raise ValueError(f"environment variable {name} is not set")
    return os.environ.get(name, default)


@dataclass(frozen=True)
class Request:
    """What was asked on the command line: the root configuration, its overrides and an extra folder of YAML files."""

    config_name: str
    overrides: Sequence[str] = ()
    config_dir: str | None = None
    sweep: bool = False


def check_overrides(request: Request, problems: list[str]) -> None:
    """Add a line to `problems` for each override that can't be parsed, and each unknown group, option or key."""
    with _hydra(request):
        _known_only(request, _parsed(request.overrides, problems), problems)


def check_launcher(request: Request, problems: list[str]) -> None:
    """Add a line to `problems` unless the jobs run in this process: a failure in another one would end with code 0."""
    with _hydra(request):
        fixed = [o.input_line or "" for o in _parsed(request.overrides, []) if not o.is_sweep_override()]
        try:
            chosen = compose(request.config_name, overrides=fixed, return_hydra_config=True).hydra.runtime.choices
        except _FAULTS:  # said by whoever composes the jobs
            return
    launcher = chosen.get("hydra/launcher")
    if launcher != "basic":
        remedy = "Leave it out: the jobs run one after another. On a cluster, submit one command per job."
        problems.append(expected("config", "hydra/launcher", "to be basic", launcher, remedy))


def compose_jobs(request: Request, problems: list[str]) -> list[dict[str, Any]]:
    """Compose the values of every job that a command line asks for: one, or one per combination of a sweep.

    What `check_overrides` finds, and interpolations that fail, are left out, and each adds a line to `problems`, so
    that what remains can be checked too.
    """
    with _hydra(request):
        overrides = _known_only(request, _parsed(request.overrides, problems), problems)
        jobs = _combinations(overrides, problems) if request.sweep else [[o.input_line or "" for o in overrides]]
        composed = [_composed(request.config_name, job, problems) for job in jobs]
    nodes = [config.pop("hydra") for config in composed if "hydra" in config]
    if request.config_dir or any("hydra" in line for line in request.overrides):
        for node in nodes:
            problems.extend(hydra_problems(node, _plain_hydra(node)))
    return [plain(config, problems) if config else {} for config in composed]


def _plain_hydra(node: DictConfig) -> DictConfig:
    """The `hydra` node with the same installed plugins, and nothing else of the user's."""
    choices = {group: name for group, name in node.runtime.choices.items() if group.startswith(PLUGINS)}
    with _hydra(Request("score")):
        config = compose("score", [f"{group}={name}" for group, name in choices.items()], return_hydra_config=True)
    return cast(DictConfig, config.hydra)


@contextmanager
def _hydra(request: Request) -> Iterator[None]:
    roots = sorted(path.stem for path in CONFIGS.glob("*.yaml"))
    extra = Path(request.config_dir).absolute() if request.config_dir else None
    if extra and not extra.is_dir():
        raise ConfigError(f"config: expected --config-dir to be a folder, got {extra}, which is none.")
    if extra:
        check_files(extra)
    known = roots + (sorted(path.stem for path in extra.glob("*.yaml")) if extra else [])
    if request.config_name not in known:
        raise ConfigError(
            f"config: no configuration is named {request.config_name!r}. {nearest(request.config_name, known)}"
        )
    path = create_config_search_path(str(CONFIGS))
    if extra:
        path.prepend("command-line", f"file://{extra}", anchor=SearchPathQuery(provider="schema"))
    version.setbase("1.3")
    Hydra.create_main_hydra2(task_name=request.config_name, config_search_path=path)
    try:
        yield
    finally:
        GlobalHydra.instance().clear()


def _parsed(lines: Sequence[str], problems: list[str]) -> list[Override]:
    parser = OverridesParser.create()
    overrides = []
    for line in lines:
        try:
            overrides.extend(parser.parse_overrides([line]))
        except HydraException as error:
            reason = " ".join(str(error).split("\n")[0].split())
            problems.append(
                f"config: can't read the override {line!r} ({reason}). Write key=value, and quote [ ] {{ }} , "
                f"and spaces for the shell: 'key=[1,2]'."
            )
    return overrides


def _known_only(request: Request, overrides: list[Override], problems: list[str]) -> list[Override]:
    """Drop, with a line each, the overrides of groups, options and keys that do not exist."""
    options = _group_options([CONFIGS, *([Path(request.config_dir)] if request.config_dir else [])])
    choices = [o for o in overrides if o.key_or_group in options or "/" in o.key_or_group]
    sound = [o for o in choices if _known_choice(o, options, problems)]
    keys = [o for o in overrides if o not in choices]
    tree = _tree(request.config_name, [o for o in sound if not o.is_sweep_override()], problems) if keys else {}
    sound += [o for o in keys if _known_key(o, tree, problems)]
    return [o for o in overrides if o in sound]


def _group_options(folders: Sequence[Path]) -> dict[str, list[str]]:
    """What can be chosen in each group: the YAML files, and what is registered without one."""
    found: dict[str, set[str]] = {group: set() for group in GROUPS}
    for group, choice in GROUPS.items():
        found[group].update(choice.names() if isinstance(choice, Registry) else [])
    for path in (path for folder in folders for path in folder.glob("*/*.yaml")):
        found.setdefault(path.parent.name, set()).add(path.stem)
    return {group: sorted(names) for group, names in found.items()}


def _known_choice(override: Override, options: dict[str, list[str]], problems: list[str]) -> bool:
    group = override.key_or_group
    if group.startswith("hydra/"):
        if group not in _HYDRA_GROUPS:
            problems.append(f"config: {group!r} can't be set here. Allowed: {', '.join(_HYDRA_GROUPS)}.")
        return group in _HYDRA_GROUPS
    if group not in options:
        problems.append(f"config: unknown group {group!r}. {nearest(group, options)}")
        return False
    if override.is_sweep_override() or override.is_delete():
        return True
    value = override.value()
    for name in value if isinstance(value, list) else [value]:
        if name is not None and str(name) not in options[group]:
            known = ", ".join(options[group])
            close = nearest(str(name), options[group]) if "Did" in nearest(str(name), options[group]) else ""
            problems.append(f"config: expected `{group}` to be one of {known}, got {name!r}. {close}".rstrip())
            return False
    return True


def _tree(config_name: str, choices: list[Override], problems: list[str]) -> dict[str, Any]:
    """The keys that the chosen components have."""
    try:
        config = compose(config_name, overrides=[choice.input_line or "" for choice in choices])
    except _FAULTS as error:
        problems.append(_one_line(error))
        return {}
    return cast(dict[str, Any], OmegaConf.to_container(config, resolve=False))


def _known_key(override: Override, tree: dict[str, Any], problems: list[str]) -> bool:
    key = override.key_or_group
    if key.startswith("hydra."):
        if not key.startswith(_HYDRA_KEYS):
            problems.append(
                f"config: {key!r} can't be set here. Outputs go where run.root and run.name say; of Hydra itself "
                f"only sweeps and launchers can be set ({', '.join(k.rstrip('.') for k in _HYDRA_KEYS[:3])})."
            )
        return key.startswith(_HYDRA_KEYS)
    node: Any = tree
    for part in key.split("."):
        if isinstance(node, dict) and part in node:
            node = node[part]
        elif isinstance(node, dict) and node and not _free(node):
            problems.append(unknown_key(key, list(_paths(tree))))
            return False
        else:  # a list, an empty mapping or a null: what may stand there is for the schema to say
            return True
    return True


def _free(node: dict[Any, Any]) -> bool:
    """A mapping whose keys are the user's own, such as a label map."""
    return all(not isinstance(key, str) for key in node)


def _paths(node: Any, prefix: str = "") -> Iterator[str]:
    for key, value in node.items() if isinstance(node, dict) else ():
        yield f"{prefix}{key}"
        yield from _paths(value, f"{prefix}{key}.")


def _combinations(overrides: list[Override], problems: list[str]) -> list[list[str]]:
    """Every job of a sweep over listed values; what an optimiser will choose is checked when it has chosen."""
    axes = []
    for override in overrides:
        if override.is_sweep_override():
            if not override.is_discrete_sweep():
                continue
            key = override.get_key_element()
            axes.append([f"{key}={value}" for value in override.sweep_string_iterator()])
            if not axes[-1]:
                problems.append(f"config: the sweep {override.input_line!r} is empty. List its values: {key}=1,2.")
        else:
            axes.append([override.input_line or ""])
    return [list(job) for job in itertools.islice(itertools.product(*axes), SWEEP_LIMIT)]


def _composed(config_name: str, overrides: list[str], problems: list[str]) -> DictConfig:
    """With its `hydra` node; empty where it can't be composed."""
    try:
        config = compose(config_name, overrides=overrides, return_hydra_config=True)
    except (*_FAULTS, AttributeError) as error:  # the last one where a mapping replaces a null of Hydra's own
        problems.append(_one_line(error))
        return OmegaConf.create()
    OmegaConf.set_readonly(config, False)
    OmegaConf.set_struct(config, False)
    return config


def plain(config: DictConfig, problems: list[str]) -> dict[str, Any]:
    """Resolve a composed configuration into plain values; an interpolation that fails is a line, not the end."""
    return {str(key): _plain(config, key, str(key), problems) for key in config}


def _plain(parent: DictConfig | ListConfig, key: Any, path: str, problems: list[str]) -> Any:
    if OmegaConf.is_missing(parent, key):
        return UNSET
    try:
        value = parent[key]
    except OmegaConfBaseException as error:
        problems.append(f"config: can't resolve `{path}`: {_one_line(error).removeprefix('config: ')}")
        return None
    if isinstance(value, DictConfig):
        return {k: _plain(value, k, f"{path}.{k!s}", problems) for k in value}
    if isinstance(value, ListConfig):
        return [_plain(value, i, f"{path}[{i}]", problems) for i in range(len(value))]
    return value


def _one_line(error: Exception) -> str:
    cause = error.__cause__ if isinstance(error.__cause__, OmegaConfBaseException) else None
    text = str(cause or error)
    kept = [
        line.strip()
        for line in text.splitlines()
        if line.strip() and not line.strip().startswith(("full_key", "object_type", "reference_type"))
    ]
    return f"config: {' '.join(kept)}"
