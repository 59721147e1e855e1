"""The configuration groups with their options. Plugins add options by registering components."""

import re
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

from segmeter.cli.config.trained_data import TRAINED
from segmeter.data.config import DATA
from segmeter.distributed.config import LAUNCHES
from segmeter.errors import ConfigError
from segmeter.export.config import ExportConfig
from segmeter.inference.config import InferenceConfig
from segmeter.losses.config import LOSSES
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.models.config import MODELS
from segmeter.postprocess.config import PostprocessConfig
from segmeter.report.config import ReportConfig
from segmeter.schema import Config, Registry
from segmeter.training.config import LOGGERS, OPTIMIZERS, SCHEDULES, TrainingConfig
from segmeter.training.data.augment_config import AugmentConfig

# A wheel holds the configurations inside the package; a checkout keeps them in its top folder
_PACKAGE = Path(__file__).parents[2]
CONFIGS = next(path for path in (_PACKAGE / "configs", _PACKAGE.parents[1] / "configs") if path.is_dir())

GROUPS: dict[str, Registry | type[Config]] = {
    "data": DATA,
    "model": MODELS,
    "loss": LOSSES,
    "optimizer": OPTIMIZERS,
    "schedule": SCHEDULES,
    "training": TrainingConfig,
    "augment": AugmentConfig,
    "inference": InferenceConfig,
    "export": ExportConfig,
    "postprocess": PostprocessConfig,
    "metrics": MetricsConfig,
    "report": ReportConfig,
    "logger": LOGGERS,
    "launch": LAUNCHES,
}
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def schemas_of(group: str) -> dict[str, type[Config]]:
    """The options of a group that are defined by schemas alone, with the defaults as their values."""
    choice = GROUPS[group]
    if isinstance(choice, Registry):
        return {name: choice.schema(name) for name in choice.names()}
    return {"none" if group == "postprocess" else "default": choice}


def options(folders: Sequence[Path] = (CONFIGS,)) -> dict[str, list[str]]:
    """All options of each group: YAML files in the given folders, and schemas."""
    found: dict[str, set[str]] = {group: set(schemas_of(group)) for group in GROUPS}
    found["data"].add(TRAINED)
    for path in (path for folder in folders for path in folder.glob("*/*.yaml")):
        found.setdefault(path.parent.name, set()).add(path.stem)
    return {group: sorted(names) for group, names in found.items()}


def load_plugins(modules: Sequence[str]) -> None:
    """Import plugins: installed entry points `segmeter.*`, and modules named on the command line.

    Raises
    ------
    ConfigError
        A module can't be imported; the line says why.
    """
    installed = entry_points()
    for group in (group for group in installed.groups if group.startswith("segmeter.")):
        for point in installed.select(group=group):
            try:
                point.load()
            except Exception as error:
                raise ConfigError(_fails(f"entry point {point.value!r}", error)) from error
    if modules and str(Path.cwd()) not in sys.path:  # behind all others, so that it hides no installed module
        sys.path.append(str(Path.cwd()))
    for module in modules:
        if not _MODULE.fullmatch(module):
            rule = "to name modules, for example my_package.my_module"
            raise ConfigError(f"config: expected `plugins` {rule}, got {module!r}.")
        try:
            import_module(module)
        except Exception as error:
            raise ConfigError(_fails(f"plugin {module!r}", error)) from error


def _fails(what: str, error: Exception) -> str:
    if isinstance(error, ImportError):
        remedy = "Install it, put it into the working folder, or add its folder to PYTHONPATH."
        return f"config: can't import the {what}: {error}. {remedy} segmeter train --help plugins has an example."
    reason = error.problems[0] if isinstance(error, ConfigError) else f"{type(error).__name__}: {error}"
    return f"config: the {what} can't be loaded: {' '.join(reason.split())}"
