"""What tests of predictions share."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from segmeter.bridge.decode import labels_to_numpy
from segmeter.classes import Task
from segmeter.inference.config import InferenceConfig
from segmeter.inference.predictor import Predictor
from segmeter.models.segmenter import Segmenter
from tests.models.parts import Stub, make_card, make_pointwise, make_spec


def predictor(segmenter: Segmenter | None = None, **values: Any) -> Predictor:
    config = InferenceConfig(**{"precision": "float32", **values})
    return Predictor(segmenter or make_pointwise(), config, torch.device("cpu"))


def stub(
    function: Callable[[Tensor], Tensor], task: Task = "multiclass", num_classes: int = 3, **more: Any
) -> Segmenter:
    return Segmenter(Stub(function), make_card(make_spec(num_classes, task).replace(**more)))


def labels_of(predictor: Predictor, logits: Tensor) -> np.ndarray:
    """Decode logits in one synchronous call."""
    spec, threshold = predictor.segmenter.card.spec, predictor.config.threshold
    return labels_to_numpy(
        logits, task=spec.task, num_classes=spec.num_classes, ignore_index=spec.ignore_index, threshold=threshold
    )
