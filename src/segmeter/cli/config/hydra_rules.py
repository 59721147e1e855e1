"""Restricts the settings of Hydra that a user's files and overrides can change: how jobs are swept and launched.

Hydra only composes values here, so most of its own settings would do nothing. A search path in a root file, however,
would import the package that it names, so the user's files are read before Hydra sees them. Overrides are read and
written in Hydra's grammar, and missing quotes are added where people are likely to leave them out.
"""

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from glob import escape as glob_escape
from glob import glob
from pathlib import Path
from typing import Any, Literal

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException
from pydantic import Field

from segmeter.checks import expected
from segmeter.cli.config.groups import CONFIGS
from segmeter.errors import ConfigError
from segmeter.schema import Config

LAUNCHERS = {  # Hydra's spellings of `launch` for the jobs of a sweep
    "basic": (),
    "joblib": ("launch=joblib",),
    "submitit_local": ("launch=slurm", "launch.cluster=local"),
    "submitit_slurm": ("launch=slurm",),
}
# The groups of Hydra's own that can be chosen from, with their options.
PLUGINS = {"hydra/launcher": [*LAUNCHERS], "hydra/sweeper": ["basic", "optuna"]}
MOST_NODES = 100_000  # one YAML file has at most this many nodes when its aliases are written out
OUTPUTS = (
    "Outputs go where run.root and run.name say; of Hydra itself only sweeps can be set (hydra.sweep.dir, "
    "hydra.sweeper). launch says where jobs run."
)
_SETTABLE = ("hydra.sweep.dir", "hydra.sweeper.", "hydra.mode")
PACKAGE = re.compile(r"@(package\s+)?(_global_\.)?hydra\b")  # a package that puts keys into Hydra's own node
_REMEDIES = {
    "found character '\\t'": "Indent with spaces.",
    "found duplicate key": "Keep one of the two.",
    "Could not delete from config": "--cfg job shows all keys.",
    "lead back to that file": "Give the file another name than the option that it starts from.",
}
_NO_GROUP = re.compile("Could not override '([^']+)'")  # Hydra's error for a group that the root file lacks
NO_GROUP = (
    "this command has no group {!r} to choose an option of. --help lists its groups, and its keys, which are set as "
    "KEY=VALUE."
)

TEXTS = ("require", "over")  # the values of these keys contain characters that Hydra wants quoted
_TEXT = r"""\"(?:[^"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'"""  # matches a text in quotes
_KEY = rf"(?P<key>{_TEXT})(?=\s*:)"  # matches a key in quotes, which Hydra allows only for values
_SWEEPS = ("choice(", "range(", "interval(")
_PARTS = re.compile(f"{_KEY}|{_TEXT}")


def parse_overrides(lines: Sequence[str], problems: list[str]) -> list[Override]:
    """Read overrides. A line that can't be read adds a problem, which shows missing quotes if they are the cause."""
    parser = OverridesParser.create()
    overrides = []
    for line in lines:
        key, equals, value = line.partition("=")
        parsable = _PARTS.sub(lambda part: _escaped(part["key"][1:-1]) if part["key"] else part[0], line)
        # add the quotes that Hydra wants around a text such as "a >= b"
        if key.lstrip("+") in TEXTS and value.strip("[] ") and not value.lstrip("[ ").startswith(("'", '"')):
            is_list = value.startswith("[") and value.endswith("]")
            items = ",".join(quoted(item.strip()) for item in (value[1:-1].split(",") if is_list else [value]))
            parsable = f"{key}=[{items}]" if is_list else f"{key}={items}"
        try:
            overrides.extend(parser.parse_overrides([parsable]))
        except HydraException as error:
            reason = " ".join(str(error).split("\n")[0].split())
            remedy = "Write key=value, and quote [ ] { } , and spaces for the shell: 'key=[1,2]'."
            if equals and (not line.isascii() or ("(" in value and not value.startswith(_SWEEPS))):
                remedy = _advise_quotes(key, value)
            problems.append(f"config: can't read the override {line!r} ({reason}). {remedy}")
    return overrides


def _advise_quotes(key: str, value: str) -> str:
    """Advise how to quote an override. No quotes help a key beyond ASCII."""
    if not key.isascii() or value.startswith("{"):
        remedy = "A key beyond ASCII needs a YAML file, see --config-dir."
        return f"Each text beyond ASCII or with ( ) in a mapping needs quotes: 'key={{a: \"\u00e4\"}}'. {remedy}"
    items = value[1:-1].split(",") if value.startswith("[") else [value]
    texts = ",".join(quoted(item.strip().strip("'\"")) for item in items)
    override = shlex.quote(f"{key}=[{texts}]" if value.startswith("[") else f"{key}={texts}")
    return f"Text beyond ASCII or with ( ) needs quotes that reach the program: {override}."


def quoted(text: str) -> str:
    r"""Quote a text as Hydra's overrides do, where a backslash is doubled only before a quote.

    Examples
    --------
    >>> print(quoted('größe'), quoted(r'C:\data'), quoted('a "b"'))
    "größe" "C:\data" "a \"b\""
    """
    return '"' + re.sub(r'(\\*)("|$)', lambda match: 2 * match[1] + ('\\"' if match[2] else ""), text) + '"'


def written(value: Any) -> str:
    r"""Write a plain value as Hydra's overrides do. Keys of mappings get no quotes.

    Examples
    --------
    >>> print(written({"steps": ["größe", None, True], "0,0,0": 0.5}))
    {steps:["größe",null,true],0\,0\,0:0.5}
    """
    if isinstance(value, dict):
        return "{" + ",".join(f"{_escaped(str(key))}:{written(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return f"[{','.join(map(written, value))}]"
    return quoted(value) if isinstance(value, str) else json.dumps(value)


def _escaped(key: str) -> str:
    return re.sub(r"([\\()\[\]{}:=,\s])", r"\\\1", key)


class SearchConfig(Config, title="config"):
    """Options of a sweep in `hydra.sweeper`: those of Optuna, and values to search or to run."""

    storage: str | None = None
    """Where Optuna keeps its trials, so that a search that was killed goes on: sqlite:///FILE. null keeps none."""
    study_name: str = "segmeter"
    """Name of the search in the storage."""
    n_trials: int = Field(20, ge=1)
    """Number of jobs."""
    n_jobs: int = Field(1, ge=1)
    """Jobs that are chosen and launched together."""
    direction: Literal["maximize", "minimize"] | None = None
    """null takes that of `training.monitor` or `objective`."""
    seed: int | None = Field(None, ge=0)
    """Seed of Optuna's choices."""
    params: dict[str, Any] = Field(default_factory=dict)
    """Keys with the values to search or to run, where a file names them."""


class _Sweeper(Config, title="config"):
    sweeper: SearchConfig


class _Hydra(Config, title="config"):
    hydra: _Sweeper


def check_files(folder: Path) -> None:
    """Refuse YAML files that could name code to Hydra, fill the memory, or be skipped silently.

    Raises
    ------
    ConfigError
        One line per file.
    """
    pattern = f"{glob_escape(str(folder))}/**/*.y*ml"
    paths = sorted(map(Path, glob(pattern, recursive=True, include_hidden=True)))  # noqa: PTH207 - follows links
    problems = [f"config: {path}: {fault}" for path in paths if (fault := _fault(path, path.relative_to(folder)))]
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
    except (OSError, yaml.YAMLError, ValueError, RecursionError):
        return None  # Hydra reads it in the same way, and says so when the file is chosen
    return _content_fault(text, values) if isinstance(values, Mapping) else None


def _count(node: yaml.Node, counts: dict[int, float]) -> float:
    """Count the nodes in a YAML node with all aliases written out. With aliases a short file could fill the memory."""
    if id(node) not in counts:
        counts[id(node)] = float("inf")  # the count of an alias that contains itself
        values = node.value if isinstance(node, yaml.CollectionNode) else []
        children = [child for pair in values for child in pair] if isinstance(node, yaml.MappingNode) else values
        counts[id(node)] = 1 + sum(_count(child, counts) for child in children)
    return counts[id(node)]


def _content_fault(text: str, values: Mapping[Any, Any]) -> str | None:
    chosen = str(values.get("defaults"))
    if PACKAGE.search(text):
        return f"its package is 'hydra', which can't be set here. {OUTPUTS}"
    if "hydra/launcher" in chosen:
        return "its defaults choose hydra/launcher. Choose launch instead: `override /launch: joblib`."
    if ".." in chosen or "//" in chosen:
        return f"its defaults lead out of the folder: {chosen}. Name files of the folder."
    return next(filter(None, map(setting_fault, _keys(values.get("hydra", {}), "hydra"))), None)


def _keys(node: Any, key: str) -> Iterator[str]:
    if not isinstance(node, Mapping):
        yield key
    else:
        for name, value in node.items():
            yield from _keys(value, f"{key}.{name}")


def setting_fault(key: str) -> str | None:
    """Explain why a key of Hydra's own can't be set; None if it can."""
    if not key.startswith(_SETTABLE):
        return f"{key!r} can't be set here. {OUTPUTS}"
    if any(part.startswith("_") for part in key.split(".")):
        return f"{key!r} is not allowed: a configuration here holds values and never names code to run."
    return None


def read_search(node: Mapping[str, Any]) -> SearchConfig:
    """Check what a composed `hydra` node says about sweeps.

    Raises
    ------
    ConfigError
        One line per key that is wrong.
    """
    chosen = node["runtime"]["choices"].get("hydra/sweeper") or "basic"
    known = PLUGINS["hydra/sweeper"]
    if chosen not in known:
        raise ConfigError(expected("config", "hydra/sweeper", f"to be one of {', '.join(known)}", repr(chosen)))
    basic_keys = ("_target_", "max_batch_size")  # keys of Hydra's basic sweeper, whose `params` may also be null
    search: dict[str, Any] = {key: value for key, value in node["sweeper"].items() if key not in basic_keys}
    return _Hydra(hydra={"sweeper": search | {"params": search.get("params") or {}}}).hydra.sweeper  # type: ignore[arg-type]


def one_line(error: Exception) -> str:
    """Put Hydra's message on one line."""
    cause = error.__cause__ if isinstance(error.__cause__, OmegaConfBaseException) else None
    text = str(cause or error)
    if group := _NO_GROUP.match(text):
        return f"config: {NO_GROUP.format(group[1])}"
    lines = (line.strip() for line in text.splitlines())
    shown = [line for line in lines if line and not line.startswith(("full_key", "object_type", "reference_type"))]
    message = f"config: {' '.join(shown)}"
    return message.rstrip(".") + next((f". {remedy}" for words, remedy in _REMEDIES.items() if words in message), "")
