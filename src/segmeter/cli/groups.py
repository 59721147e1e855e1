"""The configuration groups and what may be chosen in each; plugins add to these registries and to nothing else."""

from importlib import import_module
from importlib.metadata import entry_points

from segmeter.data.config import DATA
from segmeter.errors import ConfigError
from segmeter.export.config import ExportConfig
from segmeter.inference.config import InferenceConfig
from segmeter.losses.config import LOSSES
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.models.config import MODELS
from segmeter.postprocess.config import PostprocessConfig
from segmeter.registry import Registry
from segmeter.report.config import ReportConfig
from segmeter.training.config import LOGGERS, OPTIMIZERS, SCHEDULES, TrainingConfig
from segmeter.training.data.augment_config import AugmentConfig

GROUPS: dict[str, Registry | type] = {
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
}


def load_plugins(modules: list[str]) -> None:
    """Import what adds to the registries: installed entry points `segmeter.*`, and modules named on the command line.

    Raises
    ------
    ConfigError
        A module can't be imported; the line says why.
    """
    installed = entry_points()
    for group in installed.groups:
        if group.startswith("segmeter."):
            for point in installed.select(group=group):
                point.load()
    for module in modules:
        try:
            import_module(module)
        except Exception as error:  # a plugin may raise anything
            reason = str(error) if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"
            raise ConfigError(f"config: can't import the plugin {module!r}: {reason}. Is it installed?") from error
