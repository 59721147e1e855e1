from segmeter.api.comparison import Comparison as Comparison
from segmeter.api.comparison import compare as compare
from segmeter.api.evaluation import Evaluation as Evaluation
from segmeter.api.evaluation import evaluate as evaluate
from segmeter.api.model import Model as Model
from segmeter.api.model import load as load
from segmeter.bridge.arrays import to_numpy as to_numpy
from segmeter.bridge.arrays import to_torch as to_torch
from segmeter.bridge.decode import labels_to_numpy as labels_to_numpy
from segmeter.bridge.decode import probs_to_numpy as probs_to_numpy
from segmeter.bridge.host_copier import HostCopier as HostCopier
from segmeter.bridge.host_copier import PendingArray as PendingArray
from segmeter.bridge.host_copier import Transport as Transport
from segmeter.classes import ClassSpec as ClassSpec
from segmeter.errors import SegmeterError as SegmeterError
from segmeter.losses.focal import FocalLoss as FocalLoss
from segmeter.losses.focal import focal_loss as focal_loss
from segmeter.metrics.cases.stored import read_cases as read_cases
from segmeter.metrics.cases.stored import read_spec as read_spec
from segmeter.metrics.cases.table import CaseRow as CaseRow
from segmeter.metrics.cases.table import MeasureColumn as MeasureColumn
from segmeter.metrics.config.metrics import MetricsConfig as MetricsConfig
from segmeter.metrics.objects.scores import InstanceMatch as InstanceMatch
from segmeter.metrics.objects.scores import match_instances as match_instances
from segmeter.metrics.pixels.confusion import confusion_matrix as confusion_matrix
from segmeter.metrics.pixels.overlap import OverlapScores as OverlapScores
from segmeter.metrics.pixels.overlap import overlap_scores as overlap_scores
from segmeter.metrics.probabilities.calibration import Calibration as Calibration
from segmeter.metrics.probabilities.calibration import CalibrationScores as CalibrationScores
from segmeter.metrics.probabilities.calibration import Reliability as Reliability
from segmeter.metrics.probabilities.calibration import calibration as calibration
from segmeter.metrics.probabilities.precision_recall import PrecisionRecallCurve as PrecisionRecallCurve
from segmeter.metrics.statistics.bootstrap import MeanInterval as MeanInterval
from segmeter.metrics.statistics.bootstrap import Resampled as Resampled
from segmeter.metrics.statistics.bootstrap import bootstrap as bootstrap
from segmeter.metrics.statistics.bootstrap import mean_interval as mean_interval
from segmeter.metrics.statistics.intervals import Influence as Influence
from segmeter.metrics.surfaces.shape import BoundaryIoU as BoundaryIoU
from segmeter.metrics.surfaces.shape import CentrelineDice as CentrelineDice
from segmeter.metrics.surfaces.shape import boundary_iou as boundary_iou
from segmeter.metrics.surfaces.shape import centreline_dice as centreline_dice
from segmeter.metrics.surfaces.surface import SurfaceMetrics as SurfaceMetrics
from segmeter.metrics.surfaces.surface import surface_metrics as surface_metrics
from segmeter.metrics.surfaces.surface import surface_metrics_by_class as surface_metrics_by_class
from segmeter.report.drawing import Histogram as Histogram

__version__: str

__all__ = [
    "BoundaryIoU",
    "Calibration",
    "CalibrationScores",
    "CaseRow",
    "CentrelineDice",
    "ClassSpec",
    "Comparison",
    "Evaluation",
    "FocalLoss",
    "Histogram",
    "HostCopier",
    "Influence",
    "InstanceMatch",
    "MeanInterval",
    "MeasureColumn",
    "MetricsConfig",
    "Model",
    "OverlapScores",
    "PendingArray",
    "PrecisionRecallCurve",
    "Reliability",
    "Resampled",
    "SegmeterError",
    "SurfaceMetrics",
    "Transport",
    "__version__",
    "bootstrap",
    "boundary_iou",
    "calibration",
    "centreline_dice",
    "compare",
    "confusion_matrix",
    "evaluate",
    "focal_loss",
    "labels_to_numpy",
    "load",
    "match_instances",
    "mean_interval",
    "overlap_scores",
    "probs_to_numpy",
    "read_cases",
    "read_spec",
    "surface_metrics",
    "surface_metrics_by_class",
    "to_numpy",
    "to_torch",
]
