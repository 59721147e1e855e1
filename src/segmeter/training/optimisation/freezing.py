"""Number of a step -> which parts of a network learn in it."""

from collections.abc import Iterator

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from segmeter.checks import Problems
from segmeter.models.segmenter import Segmenter
from segmeter.training.config import TrainingConfig


def find_encoder(model: nn.Module) -> nn.Module | None:
    """The encoder of a segmenter's network, or of a network; None where it has no part of this name."""
    found = getattr(getattr(model, "network", model), "encoder", None)
    return found if isinstance(found, nn.Module) else None


def encoder_parameters(model: nn.Module) -> Iterator[nn.Parameter]:
    """The parameters of the encoder; none where there is no encoder."""
    encoder = find_encoder(model)
    return iter(()) if encoder is None else encoder.parameters()


class Freezing:
    """Keeps the encoder as it is in the first steps, and running statistics throughout.

    Parameters
    ----------
    model
        In training mode. Whoever puts it into evaluation mode for a while puts back the mode of each module.
    config
        `freeze_encoder` and `freeze_norm` of it are used.
    """

    def __init__(self, model: nn.Module, config: TrainingConfig) -> None:
        self._encoder = find_encoder(model)
        self._steps = config.freeze_encoder
        parts = {"all": model, "encoder": self._encoder}
        part = parts.get(str(config.freeze_norm))
        self._norms = [] if part is None else [each for each in part.modules() if isinstance(each, _BatchNorm)]
        self._frozen: bool | None = None

    def __call__(self, step: int) -> None:
        """Set what learns in a step, counted from 0; only the first of a process and the one that wakes do anything."""
        frozen = step < self._steps
        if frozen == self._frozen:
            return
        if self._encoder is not None and self._steps:
            self._encoder.requires_grad_(not frozen).train(not frozen)
        for norm in self._norms:
            norm.eval()
        self._frozen = frozen


def check_freezing(problems: Problems, segmenter: Segmenter, config: TrainingConfig, encoder_lr: float) -> None:
    """Note what asks for an encoder where there is none, and what keeps weights that were drawn at random."""
    asked = {
        "freeze_encoder": (config.freeze_encoder, config.freeze_encoder > 0),
        "freeze_norm": (config.freeze_norm, config.freeze_norm is not None),
        "encoder_lr": (encoder_lr, encoder_lr != 1),
    }
    network = segmenter.card.model.get("name")
    for key, (value, wanted) in asked.items():
        lacks = wanted and value != "all" and find_encoder(segmenter) is None
        problems.expect(not lacks, key, f"to be left alone, as {network!r} has no encoder", value)
        fresh = wanted and key != "encoder_lr" and segmenter.card.model.get("weights", "") is None
        remedy = "Set model.weights=imagenet or a path."
        problems.expect(not fresh, key, "to be left alone, as nothing was learned yet", value, remedy)
