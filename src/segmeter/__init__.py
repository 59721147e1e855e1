"""segmeter: trains U-Nets with focal loss and tells the truth about segmentations.

Public names are loaded on first use, so that ``import segmeter`` imports no torch.
"""

from importlib import import_module

__version__ = "0.1.0"

_PUBLIC = {
    "SegmeterError": "segmeter.errors",
    "ClassSpec": "segmeter.vocabulary",
    "confusion_matrix": "segmeter.metrics.counts",
    "overlap_scores": "segmeter.metrics.overlap",
    "OverlapScores": "segmeter.metrics.overlap",
    "surface_metrics": "segmeter.metrics.surface",
    "surface_metrics_by_class": "segmeter.metrics.surface",
    "SurfaceMetrics": "segmeter.metrics.surface",
    "boundary_iou": "segmeter.metrics.boundary",
    "BoundaryIoU": "segmeter.metrics.boundary",
    "match_instances": "segmeter.metrics.instances",
    "InstanceMatch": "segmeter.metrics.instances",
    "centreline_dice": "segmeter.metrics.skeletons",
    "CentrelineDice": "segmeter.metrics.skeletons",
    "calibration": "segmeter.metrics.calibration",
    "Calibration": "segmeter.metrics.calibration",
    "CalibrationScores": "segmeter.metrics.calibration",
    "Reliability": "segmeter.metrics.calibration",
    "Sweep": "segmeter.metrics.sweeps",
    "bootstrap": "segmeter.metrics.bootstrap",
    "Resampled": "segmeter.metrics.bootstrap",
    "compare": "segmeter.metrics.compare:compare_runs",
    "MetricsConfig": "segmeter.metrics.config",
    "CaseRow": "segmeter.metrics.rows",
    "read_cases": "segmeter.metrics.rows",
    "read_spec": "segmeter.metrics.rows",
    "focal_loss": "segmeter.losses.focal",
    "FocalLoss": "segmeter.losses.focal",
    "to_torch": "segmeter.bridge.to_torch",
    "to_numpy": "segmeter.bridge.to_numpy",
    "labels_to_numpy": "segmeter.bridge.decode",
    "probs_to_numpy": "segmeter.bridge.decode",
    "Exporter": "segmeter.bridge.exporter",
    "Ticket": "segmeter.bridge.exporter",
    "Transport": "segmeter.bridge.transport",
}

__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> object:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'segmeter' has no attribute {name!r}")
    module, _, other = _PUBLIC[name].partition(":")
    return getattr(import_module(module), other or name)


def __dir__() -> list[str]:
    return sorted(__all__)
