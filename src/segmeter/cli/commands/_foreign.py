"""`segmeter check checkpoint=...`: shows the card of a model that others trained, tries it, and writes it."""

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import yaml
from rich.console import Console

from segmeter.classes import ClassSpec
from segmeter.cli.config.model_command_configs import CheckConfig
from segmeter.data.dataset import Dataset
from segmeter.data.verification.intensity import mismatch_warnings
from segmeter.data.verification.splits import DataReport
from segmeter.errors import ConfigError
from segmeter.files import make_folder, write_bytes
from segmeter.inference.config import InferenceConfig
from segmeter.inference.predictor import Predictor
from segmeter.inference.results import Prediction
from segmeter.metrics.pixels.confusion import count_case
from segmeter.metrics.pixels.overlap import overlap_scores
from segmeter.metrics.statistics.bootstrap import mean_interval
from segmeter.models.checkpoint import find_checkpoint
from segmeter.models.foreign import opened
from segmeter.report.pictures.flatten import draw_overlay, write_overlay

_LOG = logging.getLogger(__name__)
_CASES = 8  # this many cases are also predicted with their channels swapped; an interval needs 5


def check_model(config: CheckConfig, dataset: Dataset, report: DataReport, console: Console) -> None:
    """Show a model's card, which pairs its classes with those of the data, write the card, and draw one case.

    Raises
    ------
    ConfigError
        It is a checkpoint of ours, or a class of either side has no partner. In the second case the card is written
        anyway.
    CheckpointError
        It is not a model that can be read, or reading it would run code.
    """
    source = opened.find_source(config.checkpoint or "")
    if source is None:
        find_checkpoint(Path(config.checkpoint or ""))
        raise ConfigError("check: checkpoint names models that others trained; a checkpoint of ours needs no check.")
    described = opened.describe(source, config.model)
    spec = dataset.spec
    card = described.config
    class_map = opened.propose(card.classes or (), spec.names) | (card.class_map or {})
    described = replace(described, config=card.replace(class_map=class_map, data_classes=spec.names))
    text = _as_yaml(described)
    console.print(f"{source.text}: what is known about it\n\n{text}", soft_wrap=True)
    usual_path = opened.beside(source, config.model)
    path = config.card or usual_path or Path(opened.CARD)
    with_card = "" if path == usual_path else f" with model.card={path}"
    if path.exists():  # somebody may have completed it by hand
        _LOG.warning("%s exists already, and is kept as it is.", path)
    else:
        make_folder(path.absolute().parent)
        write_bytes(path, text.encode())
    model = opened.open_foreign(described, spec, remedy=f"complete class_map in {path}, and check again{with_card}.")
    for line in mismatch_warnings(report.intensities, model.card.mean, model.card.std):
        _LOG.warning("%s", line)
    predictor = Predictor(model.load_segmenter(), InferenceConfig(), torch.device("cpu"))
    samples = [dataset[int(i)] for i in np.unique(np.linspace(0, len(dataset) - 1, _CASES).astype(int))]
    predictions = list(predictor.predict(samples))
    first = predictions[0]
    picture = draw_overlay(first.sample.image, first.sample.target, first.labels, spec, title=first.sample.case_id)
    console.print(f"card      {path}{with_card and f', read{with_card}'}", soft_wrap=True)
    console.print(f"picture   {write_overlay(path.parent, path.stem, picture)}", soft_wrap=True)
    if model.card.in_channels == 3:
        _look_for_swapped(predictor, predictions, spec)


def _as_yaml(described: opened.Described) -> str:
    """Return a card as YAML. Comments before it name the keys that were guessed."""
    values = described.config.model_dump(mode="json", exclude_none=True, exclude={"card", "weights"})
    filled = {key: value for key, value in values.items() if value not in ({}, [])}
    comments = "".join(f"# guessed: {key}\n" for key in described.guessed)
    return comments + yaml.safe_dump(filled, sort_keys=False, allow_unicode=True, default_flow_style=None, width=100)


def _look_for_swapped(predictor: Predictor, predictions: list[Prediction], spec: ClassSpec) -> None:
    """Warn if the model does better on images whose red and blue are swapped."""

    def mean_iou(prediction: Prediction) -> float:
        counts = count_case(np.asarray(prediction.sample.target), prediction.labels, spec)
        return float(overlap_scores(counts, task=spec.task).mean_iou)

    samples = [prediction.sample for prediction in predictions]
    swapped = [replace(sample, image=np.ascontiguousarray(sample.image[..., ::-1])) for sample in samples]
    pairs = zip(predictions, predictor.predict(swapped), strict=True)
    gain = mean_interval([mean_iou(after) - mean_iou(before) for before, after in pairs])
    if gain.low > 0:
        text = "mean IoU rises by %.3f [%.3f, %.3f] if red and blue are swapped: set model.input.order=bgr?"
        _LOG.warning(text, gain.mean, gain.low, gain.high)
