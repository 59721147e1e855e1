"""What a user's files and overrides may say to Hydra itself: values of sweeps, and nothing that runs code."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf

from segmeter.errors import ConfigError

MOST_BYTES = 256 * 1024  # of one YAML file
MOST_NODES = 100_000  # of one YAML file when its aliases are written out
PLUGINS = ("hydra/launcher", "hydra/sweeper")  # groups that choose among what is installed
LAUNCHERS = ("basic", "joblib", "submitit_local", "submitit_slurm")  # whose failing jobs are seen
SWEEPERS = ("basic", "optuna")
OPTUNA: dict[str, Any] = {  # options of hydra/sweeper=optuna, with their defaults
    "storage": None,  # null keeps nothing; sqlite:///FILE lets a search that was killed go on
    "study_name": "segmeter",
    "n_trials": 20,
    "n_jobs": 1,  # jobs that are chosen and launched together
    "direction": None,  # null is that of training.monitor or objective
    "seed": None,
    "params": {},
}

_DEPTH = 2  # a file of the folder, or of a group in it

_SETTABLE = ("sweep.dir", "sweep.subdir", "sweeper.", "launcher.", "mode", "verbose", "job.env_set", "job.env_copy")
_FILLED_IN = ("runtime.", "overrides.", "job.name", "job.config_name", "job.override_dirname")  # by Hydra
_PARAMS = "sweeper.params."
_SUBDIR = re.compile(r"([\w.=,+-]|\$\{hydra\.job\.num\})+")


def check_files(folder: Path) -> None:
    """Refuse a folder of YAML files that could name code to Hydra, or whose aliases would fill the memory.

    Raises
    ------
    ConfigError
        One line per file.
    """
    problems = []
    for path in sorted(folder.rglob("*.y*ml")):
        parts = path.relative_to(folder).parts
        if parts[0] == "hydra" and len(parts) > 1:
            problems.append(f"config: {path}: a folder named hydra is not allowed in --config-dir. Remove it.")
        elif path.suffix != ".yaml" and len(parts) <= _DEPTH:
            problems.append(f"config: {path}: is not read. Rename it to {path.with_suffix('.yaml').name}.")
        elif path.stat().st_size > MOST_BYTES:
            problems.append(f"config: {path}: expected at most {MOST_BYTES} bytes, got {path.stat().st_size}.")
        elif _written_out(path) > MOST_NODES:
            problems.append(f"config: {path}: its aliases (&name, *name) stand for more than {MOST_NODES} values.")
    if problems:
        raise ConfigError(problems)


def _written_out(path: Path) -> float:
    """How many values a YAML file holds when each alias is replaced by what it stands for."""
    try:
        root = yaml.compose(path.read_text("utf-8"), yaml.SafeLoader)
        return _count(root, {}) if root is not None else 0
    except RecursionError:
        return float("inf")
    except (yaml.YAMLError, UnicodeDecodeError):
        return 0  # said when the file is chosen


def _count(node: yaml.Node, known: dict[int, float]) -> float:
    if id(node) not in known:
        known[id(node)] = float("inf")  # what holds itself
        known[id(node)] = 1 + sum(_count(each, known) for each in _inner(node))
    return known[id(node)]


def _inner(node: yaml.Node) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.SequenceNode):
        yield from node.value
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from (key, value)


def hydra_problems(node: DictConfig, plain: DictConfig) -> list[str]:
    """What the composed `hydra` node has beyond sweeps, compared with one that has nothing of the user's.

    Comparing what was composed closes every way in at once: a file's own `hydra:`, its package header, the package of
    an override or of a defaults list.
    """
    before = dict(_leaves(OmegaConf.to_container(plain, resolve=False)))
    problems: list[str] = []
    for path, value in _leaves(OmegaConf.to_container(node, resolve=False)):
        if before.get(path, ...) != value and not path.startswith(_FILLED_IN):
            problems.extend(_problem(path, value))
    return problems


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, each in value.items():
            yield from _leaves(each, f"{path}.{key}" if path else str(key))
    else:
        yield path, value


def _problem(path: str, value: Any) -> Iterator[str]:
    names = path.removeprefix(_PARAMS).lstrip("+~")
    code = any(part.startswith("_") for part in path.split(".")) or names.startswith("hydra") or "@hydra" in names
    nested = any(isinstance(each, Mapping) for each in value) if isinstance(value, list) else "${" in str(value)
    if not path.startswith(_SETTABLE):
        yield (
            f"config: 'hydra.{path}' can't be set here. Outputs go where run.root and run.name say; of Hydra itself "
            "only sweeps and launchers can be set (hydra.sweep, hydra.sweeper, hydra.launcher)."
        )
    elif code or (nested and path.startswith(("launcher.", "sweeper."))):
        yield f"config: 'hydra.{path}' is not allowed: a configuration here holds values and never names code to run."
    elif path == "sweep.subdir" and not (_SUBDIR.fullmatch(str(value)) and set(str(value)) - {"."}):
        yield f"config: expected `hydra.sweep.subdir` to be a plain name, or ${{hydra.job.num}}, got {value!r}."
    elif path == "sweep.dir" and ".." in Path(str(value)).parts and not Path(str(value)).is_absolute():
        yield f"config: expected `hydra.sweep.dir` to lie below the working folder, or be absolute, got {value!r}."
