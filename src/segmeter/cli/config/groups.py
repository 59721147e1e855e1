"""Finds the configuration of each command and group, the options of groups, and plugins that add options."""

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from importlib import import_module
from importlib.metadata import distribution, distributions
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from segmeter.checks import expected
from segmeter.errors import ConfigError
from segmeter.schema import Registry

# A wheel holds the configurations inside the package; a checkout keeps them in its top folder
_PACKAGE = Path(__file__).parents[2]
_CANDIDATES = (_PACKAGE / "configs", _PACKAGE.parents[1] / "configs")
CONFIGS = next((path for path in _CANDIDATES if path.is_dir()), _CANDIDATES[0])


class Declared(dict[str, Any]):
    """Configurations by name. Each is imported when it is looked up, so that a command loads only those it uses."""

    def __getitem__(self, name: str) -> Any:
        module, _, attribute = super().__getitem__(name).partition(":")
        return getattr(import_module(f"segmeter.{module}"), attribute)


ROOTS = Declared(
    train="cli.config.model_command_configs:TrainConfig",
    eval="cli.config.model_command_configs:EvalConfig",
    predict="cli.config.model_command_configs:PredictConfig",
    export="cli.config.model_command_configs:DeployConfig",
    check="cli.config.model_command_configs:CheckConfig",
    score="cli.config.command_configs:ScoreConfig",
    compare="cli.config.command_configs:CompareConfig",
    merge="cli.config.command_configs:MergeConfig",
    agree="cli.config.model_command_configs:AgreeConfig",
    suspects="cli.config.model_command_configs:SuspectsConfig",
    plan="cli.config.model_command_configs:PlanConfig",
    tune="cli.config.model_command_configs:TuneConfig",
)
GROUPS = Declared(
    data="data.config:DATA",
    model="models.config:MODELS",
    loss="losses.config:LOSSES",
    optimizer="training.config:OPTIMIZERS",
    schedule="training.config:SCHEDULES",
    training="training.config:TrainingConfig",
    augment="training.data.augment_config:AugmentConfig",
    inference="inference.config:InferenceConfig",
    export="export.config:ExportConfig",
    postprocess="postprocess.config:PostprocessConfig",
    metrics="metrics.config.metrics:MetricsConfig",
    report="report.config:ReportConfig",
    logger="training.config:LOGGERS",
    launch="distributed.config:LAUNCHES",
)
PRESETS = ("experiment", "debug")  # groups of training whose options set keys of several groups
TRAINED = "checkpoint"  # the option of data that stands for the set that the checkpoint was trained on
WITH_TRAINED_DATA = ("eval", "tune")  # the commands that have this option
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


@cache
def groups_of(command: str) -> dict[str, str]:
    """Return the groups, presets included, that a command's file lists, each with its default option or ""."""
    listed = yaml.safe_load((CONFIGS / f"{command}.yaml").read_text("utf-8"))["defaults"]
    return {group: name or "" for item in listed if isinstance(item, dict) for group, name in item.items()}


def schemas_of(group: str) -> dict[str, type[BaseModel]]:
    """Return the options of a group that need no YAML file: each is a schema with its defaults."""
    choice = GROUPS[group]
    if isinstance(choice, Registry):
        return {name: choice.schema(name) for name in choice.names()}
    return {"none" if group == "postprocess" else "default": choice}


def options(folders: Sequence[Path] = (CONFIGS,), groups: Iterable[str] = tuple(GROUPS)) -> dict[str, list[str]]:
    """Return the options of groups: YAML files in the given folders, and schemas."""
    by_group = {group: set(schemas_of(group)) if group in GROUPS else set[str]() for group in groups}
    if "data" in by_group:
        by_group["data"].add(TRAINED)
    for path in (path for folder in folders for path in folder.glob("*/*.yaml")):
        if path.parent.name not in GROUPS or path.parent.name in by_group:
            by_group.setdefault(path.parent.name, set()).add(path.stem)
    return {group: sorted(names) for group, names in by_group.items()}


def load_plugins(modules: Sequence[str]) -> None:
    """Import plugins: installed entry points `segmeter.*`, and modules named on the command line.

    Raises
    ------
    ConfigError
        A module can't be imported; the line says why.
    """
    # Most packages have no plugins, so reading the text first saves 20 ms. Of a package that is installed twice, the
    # first one counts.
    names = {
        package.name: None
        for package in distributions()
        if "[segmeter." in (package.read_text("entry_points.txt") or "")
    }
    for point in (point for name in names for point in distribution(name).entry_points):
        if point.group.startswith("segmeter."):
            _load(f"entry point {point.value!r}", point.load)
    if modules and str(Path.cwd()) not in sys.path:  # appended last, so that it hides no installed module
        sys.path.append(str(Path.cwd()))
    for module in modules:
        if not _MODULE.fullmatch(module):
            rule = "to name modules, for example my_package.my_module"
            raise ConfigError(expected("config", "plugins", rule, repr(module)))
        _load(f"plugin {module!r}", partial(import_module, module))


def _load(what: str, load: Callable[[], object]) -> None:
    try:
        load()
    except ImportError as error:
        remedy = "Install it, put it into the working folder, or add its folder to PYTHONPATH."
        example = "segmeter train --help plugins has an example."
        raise ConfigError(f"config: can't import the {what}: {error}. {remedy} {example}") from error
    except Exception as error:
        reason = error.problems[0] if isinstance(error, ConfigError) else f"{type(error).__name__}: {error}"
        raise ConfigError(f"config: the {what} can't be loaded: {' '.join(reason.split())}") from error
