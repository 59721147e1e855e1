"""What tests of predictions share."""

import numpy as np
from torch import Tensor

from segmeter.bridge.decode import labels_to_numpy
from segmeter.inference.predictor import Predictor


def labels_of(predictor: Predictor, logits: Tensor) -> np.ndarray:
    """Decode logits in one synchronous call."""
    spec, threshold = predictor.segmenter.card.spec, predictor.config.threshold
    return labels_to_numpy(
        logits, task=spec.task, num_classes=spec.num_classes, ignore_index=spec.ignore_index, threshold=threshold
    )
