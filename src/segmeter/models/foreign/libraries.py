"""Builds networks of torchvision and segmentation-models-pytorch for a file of weights."""

from pathlib import Path
from typing import Any

from torch import Tensor, nn

from segmeter.checks import expected, nearest
from segmeter.errors import CheckpointError, ConfigError
from segmeter.models.card import default_normalisation
from segmeter.models.checkpoints.weights import check_finite, compare, load_tensors
from segmeter.models.foreign.config import Facts, ForeignConfig
from segmeter.remote import fetch


def describe_torchvision(place: str, told: ForeignConfig) -> Facts:
    """The card of a torchvision network: classes are asked for, ImageNet's normalisation is a guess."""
    known = _torchvision_names()
    if place not in known:
        raise ConfigError(expected("model", "checkpoint", "torchvision:NAME", place, nearest(place, known)))
    return _facts(told, "any")


def describe_smp(place: str, told: ForeignConfig) -> Facts:
    """The card of a network of segmentation-models-pytorch, likewise."""
    if place.count("/") != 1:
        remedy = "For example smp:Unet/resnet34."
        raise ConfigError(expected("model", "checkpoint", "smp:ARCHITECTURE/ENCODER", place, remedy))
    return _facts(told, "multiple:32")


def load_torchvision(place: str, config: ForeignConfig) -> nn.Module:
    """Build the network without downloading anything, and load its weights."""
    from torchvision.models import get_model

    tensors = load_tensors(_weights(config))
    options = {"aux_loss": True} if any(name.startswith("aux_classifier.") for name in tensors) else {}
    return _Main(
        _filled(get_model(place, weights=None, weights_backbone=None, num_classes=_channels(config), **options), config)
    )


def load_smp(place: str, config: ForeignConfig) -> nn.Module:
    """Build the network without downloading anything, and load its weights."""
    import segmentation_models_pytorch as smp

    arch, _, encoder = place.partition("/")
    told = {"in_channels": config.input.channels, "classes": _channels(config), **config.options}
    try:
        network = smp.create_model(arch, encoder_name=encoder, encoder_weights=None, **told)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ConfigError(f"smp:{place}: can't be built ({type(error).__name__}: {reason}).") from error
    return _filled(network, config)


class _Main(nn.Module):
    """The main output of a torchvision network, which gives a mapping."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, image: Tensor) -> Tensor:
        logits: Tensor = self.network(image)["out"]
        return logits


def _facts(told: ForeignConfig, fit: str) -> Facts:
    if told.weights is None:
        rule, remedy = "to name the file of the network's weights", "Set model.weights=FILE."
        raise ConfigError(expected("model", "weights", rule, "null", remedy))
    channels = told.input.channels or 3
    mean, std = default_normalisation(channels)
    normal = {"mean": mean, "std": std} if channels == 3 else {}
    files = (fetch(told.weights),)
    return Facts(
        values={},
        guesses={"input": {"channels": channels, "order": "rgb", **normal}, "size": {"fit": fit}},
        files=files,
    )


def _torchvision_names() -> list[str]:
    from torchvision.models import list_models, segmentation

    names: list[str] = list_models(module=segmentation)
    return names


def _weights(config: ForeignConfig) -> Path:
    return fetch(str(config.weights))


def _channels(config: ForeignConfig) -> int:
    classes = len(config.classes or ())
    return 1 if config.output.activation == "sigmoid" and classes == 2 else classes


def _filled(network: nn.Module, config: ForeignConfig) -> nn.Module:
    path = _weights(config)
    tensors: dict[str, Any] = load_tensors(path)
    fit = compare(network.state_dict(), tensors)
    if not fit.exact:
        remedy = f"model.classes names {len(config.classes or ())}: give those that it was trained on."
        raise CheckpointError(f"{path}: does not fit the network: {fit.describe()}. {remedy}")
    check_finite(tensors, path)
    network.load_state_dict(tensors)
    return network
