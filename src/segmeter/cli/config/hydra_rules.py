"""The rules for what a user's files and overrides may say to Hydra: how jobs are swept and launched, and nothing else.

Hydra only composes values here, so most of its own settings would do nothing. A search path in a root file, however,
would import the package that it names, so the user's files are read before Hydra sees them.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from glob import escape as glob_escape
from glob import glob
from pathlib import Path
from typing import Any, ClassVar

import yaml
from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from segmeter.checks import expected
from segmeter.cli.config.groups import CONFIGS
from segmeter.errors import ConfigError

LAUNCHERS: dict[str, dict[str, Any]] = {  # aliases of `launch` for the jobs of a sweep, with the options that they take
    "basic": {},
    "joblib": {"n_jobs": None},
    "submitit_local": {"partition": None, "timeout_min": None},
    "submitit_slurm": {"partition": None, "timeout_min": None},
}
SWEEPERS = ("basic", "optuna")
PLUGINS = {"hydra/launcher": list(LAUNCHERS), "hydra/sweeper": list(SWEEPERS)}  # groups, and what may be chosen in each
MOST_NODES = 100_000  # of one YAML file when its aliases are written out
OPTUNA: dict[str, Any] = {  # options of hydra/sweeper=optuna, with their defaults
    "storage": None,  # null keeps nothing; sqlite:///FILE lets a search that was killed go on
    "study_name": "segmeter",
    "n_trials": 20,
    "n_jobs": 1,  # jobs that are chosen and launched together
    "direction": None,  # null is that of training.monitor or objective
    "seed": None,
    "params": {},
}

_SETTABLE = ("sweep.dir", "sweep.subdir", "sweeper.", "launcher.", "mode")
_PACKAGE = re.compile(r"@(package\s+)?(_global_\.)?hydra\b")  # by which keys would get into Hydra's own node
_REMEDIES = {
    "found character '\\t'": "Indent with spaces.",
    "found duplicate key": "Keep one of the two.",
    "Could not delete from config": "--cfg job shows all keys.",
}
_NO_GROUP = re.compile("Could not override '([^']+)'")  # what Hydra says of a group that the root file lacks
NO_GROUP = (
    "this command has no group {!r} to choose an option of. --help lists its groups, and its keys, which are set as "
    "KEY=VALUE."
)
_SUBDIR = re.compile(r"([\w.=,+-]|\$\{hydra\.job\.num\})+")


class OwnFolders(SearchPathPlugin):
    """Lets Hydra find the user's files behind ours.

    An override of hydra.searchpath would come too late for a root file, and would hide that such a file sets it.
    """

    folders: ClassVar[Sequence[Path]] = ()

    @classmethod
    @contextmanager
    def found(cls, folders: Sequence[Path]) -> Iterator[None]:
        """Let Hydra find these folders if it is initialised in the block."""
        cls.folders = folders
        try:
            yield
        finally:
            cls.folders = ()

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        for folder in self.folders:
            search_path.append("--config-dir", f"file://{folder}")


def check_files(folder: Path) -> None:
    """Refuse YAML files that could name code to Hydra, fill the memory, or be skipped silently.

    Raises
    ------
    ConfigError
        One line per file.
    """
    pattern = f"{glob_escape(str(folder))}/**/*.y*ml"
    found = sorted(map(Path, glob(pattern, recursive=True, include_hidden=True)))  # noqa: PTH207 - follows links
    problems = [f"config: {path}: {fault}" for path in found if (fault := _fault(path, path.relative_to(folder)))]
    if problems:
        raise ConfigError(problems)


def _fault(path: Path, inner: Path) -> str | None:
    if inner.parts[0] == "hydra" and len(inner.parts) > 1:
        return "a folder named hydra is not allowed in --config-dir. Remove it."
    if path.suffix != ".yaml":
        return f"is not read. Rename it to {path.with_suffix('.yaml').name}."
    if (CONFIGS / inner).is_file():
        return "segmeter's own file of this name is read instead. Rename it."
    if not path.is_file():
        return "expected a regular file."  # a pipe would be waited for
    try:
        text = path.read_text("utf-8")
        node = yaml.compose(text, yaml.SafeLoader)
        if node is not None and _count(node, {}) > MOST_NODES:
            return f"its aliases (&name, *name) stand for more than {MOST_NODES} values."
        values = yaml.safe_load(text)
    except RecursionError:
        return "it is nested too deep."
    except (OSError, yaml.YAMLError, ValueError):
        return None  # Hydra reads it in the same way, and says so when the file is chosen
    return _content_fault(text, values) if isinstance(values, Mapping) else None


def _count(node: yaml.Node, known: dict[int, float]) -> float:
    """Count the values of a YAML node with its aliases written out, by which a short file could fill the memory."""
    if id(node) not in known:
        known[id(node)] = float("inf")  # what holds itself
        values = node.value if isinstance(node, yaml.CollectionNode) else []
        inner = [each for pair in values for each in pair] if isinstance(node, yaml.MappingNode) else values
        known[id(node)] = 1 + sum(_count(each, known) for each in inner)
    return known[id(node)]


def _content_fault(text: str, values: Mapping[Any, Any]) -> str | None:
    if _PACKAGE.search(text):
        return "its package is 'hydra', which can't be set here. " + _OUTPUTS
    out = next((name for name in _texts(values.get("defaults")) if ".." in name or name.startswith("//")), None)
    if out:
        return f"its defaults lead out of the folder ({out!r}). Name a file of the folder."
    faults = (setting_fault(path) for path in _paths(values["hydra"])) if "hydra" in values else ()
    return next(filter(None, faults), None)


_OUTPUTS = (
    "Outputs go where run.root and run.name say; of Hydra itself only sweeps and launchers can be set (hydra.sweep, "
    "hydra.sweeper, hydra.launcher)."
)


def setting_fault(path: str) -> str | None:
    """Why hydra.PATH can't be set; None if it can."""
    if not path.startswith(_SETTABLE):
        return f"'hydra.{path}' can't be set here. {_OUTPUTS}"
    if any(part.startswith("_") for part in path.split(".")):
        return f"'hydra.{path}' is not allowed: a configuration here holds values and never names code to run."
    return None


def package_fault(line: str) -> str | None:
    """Why an override can't be: it would put a group's values into Hydra's own node."""
    return f"{line!r} can't be set here: its package is 'hydra'. {_OUTPUTS}" if _PACKAGE.search(line) else None


def _paths(value: Any, path: str = "") -> Iterator[str]:
    """The paths of all leaves."""
    if isinstance(value, Mapping) and value:
        for key, each in value.items():
            yield from _paths(each, f"{path}.{key}" if path else str(key))
    else:
        yield path


def _texts(value: Any) -> Iterator[str]:
    """The groups and options of a defaults list."""
    if isinstance(value, Mapping):
        yield from (text for pair in value.items() for each in pair for text in _texts(each))
    elif isinstance(value, list):
        yield from (text for each in value for text in _texts(each))
    elif value is not None:
        yield str(value)


def hydra_problems(node: DictConfig) -> list[str]:
    """List what is wrong with the settings of a sweep in a composed `hydra` node."""
    raw: Any = OmegaConf.to_container(node, resolve=False)
    choices, problems = raw["runtime"]["choices"], []
    for group, known in PLUGINS.items():
        if choices.get(group) not in (None, *known):
            problems.append(expected("config", group, f"to be one of {', '.join(known)}", choices[group]))
    launcher = choices.get("hydra/launcher") or "basic"
    takes = LAUNCHERS.get(launcher, {})
    for key in (key for key in raw["launcher"] or {} if key != "_target_" and key not in takes and not problems):
        known_keys = " and ".join(takes) or "nothing"
        problems.append(
            f"config: 'hydra.launcher.{key}' can't be set here: hydra/launcher={launcher} takes {known_keys}. "
            "launch= takes more."
        )
    for key, value in (raw["sweeper"] or {}).items():
        if key not in ("_target_", "max_batch_size", *OPTUNA):
            known_keys = ", ".join(OPTUNA)
            problems.append(f"config: 'hydra.sweeper.{key}' can't be set here. Known: {known_keys}.")
        elif key == "params" and not isinstance(value, Mapping | None):
            problems.append(
                expected("config", "hydra.sweeper.params", "to be a mapping of keys to values", repr(value))
            )
    name = str(raw["sweep"]["subdir"])
    if not (_SUBDIR.fullmatch(name) and set(name) - {"."}):
        rule = "to be a plain name, or ${hydra.job.num}"
        problems.append(expected("config", "hydra.sweep.subdir", rule, repr(name)))
    return problems


def one_line(error: Exception) -> str:
    """Hydra's message on one line."""
    cause = error.__cause__ if isinstance(error.__cause__, OmegaConfBaseException) else None
    text = str(cause or error)
    if group := _NO_GROUP.match(text):
        return f"config: {NO_GROUP.format(group[1])}"
    kept = [
        line.strip()
        for line in text.splitlines()
        if line.strip() and not line.strip().startswith(("full_key", "object_type", "reference_type"))
    ]
    line = f"config: {' '.join(kept)}"
    return line.rstrip(".") + next((f". {remedy}" for words, remedy in _REMEDIES.items() if words in line), "")
