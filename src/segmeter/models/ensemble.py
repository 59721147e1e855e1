"""Averages the probabilities of several segmenters of the same classes, or of several views of one image."""

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from segmeter.checks import expected
from segmeter.classes import Task
from segmeter.errors import ConfigError
from segmeter.models.config import ModelCard
from segmeter.models.foreign.network import ForeignModel
from segmeter.models.segmenter import Segmenter


class Ensemble(nn.Module):
    """Segmenters that run one after the other on the same image. Each normalises and pads it by its own card.

    Parameters
    ----------
    members
        One or more, with the same classes and channels. The ensemble has the first one's card.

    Raises
    ------
    ConfigError
        They differ in task, classes, ignored value or channels.
    """

    def __init__(self, members: Sequence[Segmenter | ForeignModel]) -> None:
        super().__init__()
        self.card = members[0].card
        wanted = self.card.spec.meaning | {"in_channels": self.card.in_channels}
        for card in (member.card for member in members[1:]):
            facts = card.spec.meaning | {"in_channels": card.in_channels}
            for what, value in wanted.items():
                if value != facts[what]:
                    rule = f"to name models of the same {what}"
                    raise ConfigError(expected("config", "checkpoint", rule, f"{value} and {facts[what]}"))
        self.members = nn.ModuleList(members)
        self.size_multiple = math.lcm(*(member.size_multiple for member in members))
        self.size_least = max(member.size_least for member in members)

    def forward(self, image: Tensor) -> Tensor:
        """Return logits of the mean probabilities; see `Segmenter.forward`."""
        if len(self.members) == 1:
            logits: Tensor = self.members[0](image)
            return logits
        return mean_logits((member(image).float() for member in self.members), self.card.spec.task)


AnyModel = Segmenter | ForeignModel | Ensemble


def mean_logits(predictions: Iterable[Tensor], task: Task) -> Tensor:
    """Average the probabilities of several predictions, and return them as logits.

    Parameters
    ----------
    predictions
        Each (B, num_channels, H, W), float32. They are consumed one by one.
    task
        Multiclass averages softmax, binary and multilabel average sigmoid.

    Returns
    -------
    (B, num_channels, H, W), float32. Its softmax or sigmoid is the mean probability. NaN where any prediction is NaN or
    infinite, so that averaging hides nothing.
    """
    totals: list[Tensor] = []  # log probabilities; for sigmoids, also those of the complements
    for logits in predictions:
        logits = logits + (logits - logits)  # infinity becomes NaN
        parts = [torch.log_softmax(logits, 1)] if task == "multiclass" else [logsigmoid(logits), logsigmoid(-logits)]
        totals = [total.logaddexp(part) for total, part in zip(totals, parts, strict=True)] if totals else parts
    return totals[0] if task == "multiclass" else totals[0] - totals[1]


def merge_classes(logits: Tensor, card: ModelCard) -> Tensor:
    """Merge the channels of a model's own classes into the card's classes, by adding their probabilities.

    Parameters
    ----------
    logits
        (B, N, H, W), before softmax.
    card
        Its `class_map` has the class of each of the N channels; each class has one or more. Without one, the logits
        are returned as they are.

    Returns
    -------
    (B, num_channels, H, W), float32.
    """
    if not card.class_map:
        return logits
    log_probs = torch.log_softmax(logits.float(), 1)
    groups = [[i for i, number in enumerate(card.class_map) if number == k] for k in range(max(card.class_map) + 1)]
    merged = [log_probs[:, group].logsumexp(1) for group in groups]
    return torch.stack(merged, 1) if card.spec.task == "multiclass" else (merged[1] - merged[0])[:, None]
