"""segmeter: trains U-Nets with focal loss and measures segmentations exactly.

Public names are loaded on first use, so that ``import segmeter`` imports no torch.
"""

import warnings
from importlib import import_module

from segmeter.threads import sleep_while_waiting

sleep_while_waiting()  # every command, worker process and program of yours imports this first

__version__ = "0.2.0"

_PUBLIC = {
    "SegmeterError": "segmeter.errors",
    "ClassSpec": "segmeter.classes",
    "evaluate": "segmeter.api.evaluation",
    "Evaluation": "segmeter.api.evaluation",
    "load": "segmeter.api.model",
    "Model": "segmeter.api.model",
    "Histogram": "segmeter.report.drawing",
    "confusion_matrix": "segmeter.metrics.pixels.confusion",
    "overlap_scores": "segmeter.metrics.pixels.overlap",
    "OverlapScores": "segmeter.metrics.pixels.overlap",
    "surface_metrics": "segmeter.metrics.surfaces.surface",
    "surface_metrics_by_class": "segmeter.metrics.surfaces.surface",
    "SurfaceMetrics": "segmeter.metrics.surfaces.surface",
    "boundary_iou": "segmeter.metrics.surfaces.shape",
    "BoundaryIoU": "segmeter.metrics.surfaces.shape",
    "match_instances": "segmeter.metrics.objects.scores",
    "InstanceMatch": "segmeter.metrics.objects.scores",
    "centreline_dice": "segmeter.metrics.surfaces.shape",
    "CentrelineDice": "segmeter.metrics.surfaces.shape",
    "calibration": "segmeter.metrics.probabilities.calibration",
    "Calibration": "segmeter.metrics.probabilities.calibration",
    "CalibrationScores": "segmeter.metrics.probabilities.calibration",
    "Reliability": "segmeter.metrics.probabilities.calibration",
    "PrecisionRecallCurve": "segmeter.metrics.probabilities.precision_recall",
    "bootstrap": "segmeter.metrics.statistics.bootstrap",
    "Resampled": "segmeter.metrics.statistics.bootstrap",
    "Influence": "segmeter.metrics.statistics.intervals",
    "mean_interval": "segmeter.metrics.statistics.bootstrap",
    "MeanInterval": "segmeter.metrics.statistics.bootstrap",
    "compare": "segmeter.api.comparison",
    "Comparison": "segmeter.api.comparison",
    "MetricsConfig": "segmeter.metrics.config.metrics",
    "CaseRow": "segmeter.metrics.cases.table",
    "MeasureColumn": "segmeter.metrics.cases.table",
    "read_cases": "segmeter.metrics.cases.stored",
    "read_spec": "segmeter.metrics.cases.stored",
    "focal_loss": "segmeter.losses.focal",
    "FocalLoss": "segmeter.losses.focal",
    "to_torch": "segmeter.bridge.arrays",
    "to_numpy": "segmeter.bridge.arrays",
    "labels_to_numpy": "segmeter.bridge.decode",
    "probs_to_numpy": "segmeter.bridge.decode",
    "HostCopier": "segmeter.bridge.host_copier",
    "PendingArray": "segmeter.bridge.host_copier",
    "Transport": "segmeter.bridge.host_copier",
}

_RENAMED = {"Exporter": "HostCopier"}  # until 1.0

__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> object:
    if name in _RENAMED:
        warnings.warn(f"segmeter.{name} is called {_RENAMED[name]} now", DeprecationWarning, stacklevel=2)
        name = _RENAMED[name]
    if name not in _PUBLIC:
        raise AttributeError(f"module 'segmeter' has no attribute {name!r}")
    module, _, other = _PUBLIC[name].partition(":")
    return getattr(import_module(module), other or name)


def __dir__() -> list[str]:
    return sorted(__all__)
