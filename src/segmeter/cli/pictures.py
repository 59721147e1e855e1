"""Draws the pictures of a finished run of eval or predict."""

import logging
from importlib.util import find_spec
from pathlib import Path

from segmeter.cli.config.model_schema import EvalConfig, PredictConfig
from segmeter.data.dataset import Dataset
from segmeter.evaluation.predicted import PREDICTIONS
from segmeter.metrics.cases.stored import open_cases
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.summary.scoreboard import build_scoreboard
from segmeter.postprocess.config import INSTANCE_STEPS
from segmeter.report.pictures.chosen import Ranking
from segmeter.report.pictures.finished import EvaluatedCases, draw_run

_LOG = logging.getLogger(__name__)


def draw_predicted(
    folder: Path, dataset: Dataset, config: EvalConfig | PredictConfig, metrics: MetricsConfig | None = None
) -> None:
    """Draw the chosen cases from the label maps that the run wrote, or warn if it wrote none that can be read.

    Parameters
    ----------
    folder
        The run's folder.
    dataset
        The predicted cases.
    config
        The command's configuration, which says what was exported and which cases are drawn.
    metrics
        The measured metrics; None for `predict`, whose cases have no scores.

    Raises
    ------
    DataError
        One line for each problem of a file that can't be read.
    """
    report = config.report
    if not report.overlays and not (report.worst and metrics):
        return
    missing = _unreadable(config)
    if missing:
        _LOG.warning("pictures: none are drawn, as %s", missing)
        return
    if metrics is None:
        ranking, report = Ranking(case_ids=dataset.case_ids), report.replace(worst=0)
    else:
        ranking = Ranking.of(build_scoreboard(open_cases([folder]), dataset.spec, metrics))
    if _numbers_objects(config) and not config.export.instances:
        _LOG.warning("pictures: no objects are drawn, as export.instances=false keeps none of their numbers.")
        metrics = None
    read = EvaluatedCases(predictions=folder / PREDICTIONS, dataset=dataset, metrics=metrics)
    draw_run(folder, ranking, read, report, dataset.spec)


def _numbers_objects(config: EvalConfig | PredictConfig) -> bool:
    """Whether post-processing makes instances, which label maps alone don't show."""
    return any(step.name in INSTANCE_STEPS for step in config.postprocess.steps)


def _unreadable(config: EvalConfig | PredictConfig) -> str:
    """Why the run's label maps can't be read back; "" if they can."""
    if not config.export.labels:
        return "export.labels=false keeps no label maps."
    if config.export.labels_format in ("mha", "nrrd") and find_spec("SimpleITK") is None:
        return f"reading {config.export.labels_format} files needs: pip install 'segmeter[itk]'."
    return ""
