"""What a user's files and overrides may say to Hydra, values of sweeps and nothing that runs code; what it answers."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import yaml
from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from segmeter.cli.config.groups import CONFIGS
from segmeter.errors import ConfigError

MOST_BYTES = 256 * 1024  # of one YAML file
MOST_NODES = 100_000  # of one YAML file when its aliases are written out
LAUNCHERS: dict[str, dict[str, Any]] = {  # aliases of `launch` for the jobs of a sweep, with the options that they take
    "basic": {},
    "joblib": {"n_jobs": None},
    "submitit_local": {"partition": None, "timeout_min": None},
    "submitit_slurm": {"partition": None, "timeout_min": None},
}
SWEEPERS = ("basic", "optuna")
PLUGINS = {"hydra/launcher": list(LAUNCHERS), "hydra/sweeper": list(SWEEPERS)}  # groups, and what may be chosen in each
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
_MERGE = "tag:yaml.org,2002:merge"
_REMEDIES = {"found character '\\t'": "Indent with spaces.", "found duplicate key": "Keep one of the two."}
_NO_GROUP = re.compile("Could not override '([^']+)'")  # what Hydra says of a group that the root file lacks
_SUBDIR = re.compile(r"([\w.=,+-]|\$\{hydra\.job\.num\})+")


class OwnFolders(SearchPathPlugin):
    """Lets Hydra find the user's files behind ours.

    An override of hydra.searchpath would come too late for a root file, and would hide that such a file sets it.
    """

    folders: ClassVar[Sequence[Path]] = ()

    @classmethod
    @contextmanager
    def found(cls, folders: Sequence[Path]) -> Iterator[None]:
        """Let what is begun in the block find these folders; Hydra's own command line has an option for them."""
        cls.folders = folders
        try:
            yield
        finally:
            cls.folders = ()

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        for folder in self.folders:
            search_path.append("--config-dir", f"file://{folder}")


def check_files(folder: Path) -> None:
    """Refuse a folder of YAML files that could name code to Hydra, fill the memory, or be passed over without a word.

    Raises
    ------
    ConfigError
        One line per file.
    """
    problems = [f"config: {path}: {fault}" for path in _yaml_files(folder) if (fault := _fault(path, folder))]
    if problems:
        raise ConfigError(problems)


def _yaml_files(folder: Path) -> list[Path]:
    """All below a folder, through links too, as Hydra reads them; a folder that links lead back to is seen once."""
    found, seen = [], set[str]()
    for place, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(place)
        folders[:] = [] if real in seen else folders
        found += [] if real in seen else [Path(place, name) for name in names if Path(name).suffix in (".yaml", ".yml")]
        seen.add(real)
    return sorted(found)


def _fault(path: Path, folder: Path) -> str | None:
    inner = path.relative_to(folder)
    if inner.parts[0] == "hydra" and len(inner.parts) > 1:
        return "a folder named hydra is not allowed in --config-dir. Remove it."
    if path.suffix != ".yaml" and len(inner.parts) <= _DEPTH:
        return f"is not read. Rename it to {path.with_suffix('.yaml').name}."
    if (CONFIGS / inner).is_file():
        return "segmeter's own file of this name is read instead. Rename it."
    if not path.is_file():
        return "expected a regular file."
    if path.stat().st_size > MOST_BYTES:
        return f"expected at most {MOST_BYTES} bytes, got {path.stat().st_size}."
    try:
        root = yaml.compose(path.read_text("utf-8"), yaml.SafeLoader)
        nodes = _count(root, {}) if root is not None else 0
    except RecursionError:
        nodes = float("inf")
    except (yaml.YAMLError, UnicodeDecodeError):
        return None  # said when the file is chosen
    if nodes > MOST_NODES:
        return f"its aliases (&name, *name) stand for more than {MOST_NODES} values."
    out = next((name for name in _defaults(root) if ".." in name or name.startswith("//")), None)
    return f"its defaults lead out of the folder ({out!r}). Name a file of the folder." if out else None


def _defaults(root: yaml.Node | None) -> Iterator[str]:
    """The groups and options of a file's defaults list, also where it is merged in from another mapping (<<)."""
    left = _values_of("defaults", root) if isinstance(root, yaml.MappingNode) else []
    while left:
        node = left.pop()
        if isinstance(node, yaml.ScalarNode):
            yield str(node.value)
        left.extend(_inner(node))


def _values_of(name: str, root: yaml.MappingNode) -> list[yaml.Node]:
    """All that a key of a mapping may be once what is merged into it is in its place."""
    found, merged = list[yaml.Node](), [root]
    while merged:
        for key, value in merged.pop().value:
            if key.value == name:
                found.append(value)
            elif key.tag == _MERGE:
                inner = value.value if isinstance(value, yaml.SequenceNode) else [value]
                merged += [each for each in inner if isinstance(each, yaml.MappingNode)]
    return found


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
    launcher = OmegaConf.select(node, "runtime.choices", default={}).get("hydra/launcher")
    problems: list[str] = []
    for path, value in _leaves(OmegaConf.to_container(node, resolve=False)):
        if before.get(path, ...) != value and not path.startswith(_FILLED_IN):
            problems.extend(_problem(path, value, launcher))
    return problems


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, each in value.items():
            yield from _leaves(each, f"{path}.{key}" if path else str(key))
    else:
        yield path, value


def _problem(path: str, value: Any, launcher: str) -> Iterator[str]:
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
    elif path.startswith("launcher.") and path.removeprefix("launcher.") not in LAUNCHERS.get(launcher, {}):
        known = " and ".join(LAUNCHERS.get(launcher, {})) or "nothing"
        yield f"config: 'hydra.{path}' can't be set here: hydra/launcher={launcher} takes {known}. launch= takes more."
    elif path == "sweep.subdir" and not (_SUBDIR.fullmatch(str(value)) and set(str(value)) - {"."}):
        yield f"config: expected `hydra.sweep.subdir` to be a plain name, or ${{hydra.job.num}}, got {value!r}."
    elif path == "sweep.dir" and ".." in Path(str(value)).parts and not Path(str(value)).is_absolute():
        yield f"config: expected `hydra.sweep.dir` to lie below the working folder, or be absolute, got {value!r}."


def one_line(error: Exception) -> str:
    """What Hydra says, on one line."""
    cause = error.__cause__ if isinstance(error.__cause__, OmegaConfBaseException) else None
    text = str(cause or error)
    if group := _NO_GROUP.match(text):
        return (
            f"config: this command has no group {group[1]!r} to choose an option of. --help lists its groups, and its "
            "keys, which are set as KEY=VALUE."
        )
    kept = [
        line.strip()
        for line in text.splitlines()
        if line.strip() and not line.strip().startswith(("full_key", "object_type", "reference_type"))
    ]
    line = f"config: {' '.join(kept)}"
    return line + next((f". {remedy}" for words, remedy in _REMEDIES.items() if words in line), "")
