from .api.comparison import Comparison as Comparison
from .api.comparison import compare as compare
from .api.evaluation import evaluate as evaluate
from .api.model import Model as Model
from .api.model import load as load
from .api.results import Evaluation as Evaluation
from .bridge.arrays import to_numpy as to_numpy
from .bridge.arrays import to_torch as to_torch
from .bridge.decode import labels_to_numpy as labels_to_numpy
from .bridge.decode import probs_to_numpy as probs_to_numpy
from .bridge.host_copier import HostCopier as HostCopier
from .bridge.host_copier import PendingArray as PendingArray
from .bridge.host_copier import Transport as Transport
from .classes import ClassSpec as ClassSpec
from .errors import SegmeterError as SegmeterError
from .losses.focal import FocalLoss as FocalLoss
from .losses.focal import focal_loss as focal_loss
from .metrics.cases.stored import read_cases as read_cases
from .metrics.cases.stored import read_spec as read_spec
from .metrics.cases.table import CaseRow as CaseRow
from .metrics.cases.table import MeasureColumn as MeasureColumn
from .metrics.config.metrics import MetricsConfig as MetricsConfig
from .metrics.objects.scores import InstanceMatch as InstanceMatch
from .metrics.objects.scores import match_instances as match_instances
from .metrics.pixels.confusion import confusion_matrix as confusion_matrix
from .metrics.pixels.overlap import OverlapScores as OverlapScores
from .metrics.pixels.overlap import overlap_scores as overlap_scores
from .metrics.precision_recall import PrecisionRecallCurve as PrecisionRecallCurve
from .metrics.probabilities import Calibration as Calibration
from .metrics.probabilities import CalibrationScores as CalibrationScores
from .metrics.probabilities import Reliability as Reliability
from .metrics.probabilities import calibration as calibration
from .metrics.shapes import BoundaryIoU as BoundaryIoU
from .metrics.shapes import CentrelineDice as CentrelineDice
from .metrics.shapes import boundary_iou as boundary_iou
from .metrics.shapes import centreline_dice as centreline_dice
from .metrics.statistics.bootstrap import MeanInterval as MeanInterval
from .metrics.statistics.bootstrap import Resampled as Resampled
from .metrics.statistics.bootstrap import bootstrap as bootstrap
from .metrics.statistics.bootstrap import mean_interval as mean_interval
from .metrics.statistics.intervals import Influence as Influence
from .metrics.surfaces import SurfaceMetrics as SurfaceMetrics
from .metrics.surfaces import surface_metrics as surface_metrics
from .metrics.surfaces import surface_metrics_by_class as surface_metrics_by_class
from .report.drawing import Histogram as Histogram

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
