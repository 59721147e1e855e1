"""Builds networks of torchvision and segmentation-models-pytorch for a file of weights."""

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any

from torch import nn

from segmeter.checks import expected, nearest
from segmeter.errors import CheckpointError, ConfigError
from segmeter.models.card import default_normalisation
from segmeter.models.checkpoints.weights import check_finite, compare, load_tensors
from segmeter.models.foreign.config import Facts, ForeignConfig
from segmeter.models.foreign.network import Picked
from segmeter.remote import fetch


def describe_torchvision(place: str, told: ForeignConfig) -> Facts:
    """The card of a torchvision network: classes are asked for, ImageNet's normalisation is a guess."""
    from torchvision.models import list_models, segmentation

    known = list_models(module=segmentation)
    if place not in known:
        raise ConfigError(expected("model", "checkpoint", "torchvision:NAME", place, nearest(place, known)))
    return _facts(told, "any")


def describe_smp(place: str, told: ForeignConfig) -> Facts:
    """The card of a network of segmentation-models-pytorch, likewise."""
    if place.count("/") != 1:
        remedy = "For example smp:Unet/resnet34."
        raise ConfigError(expected("model", "checkpoint", "smp:ARCHITECTURE/ENCODER", place, remedy))
    return _facts(told, "multiple:32")


def _facts(told: ForeignConfig, fit: str) -> Facts:
    if told.weights is None:
        rule, remedy = "to name the file of the network's weights", "Set model.weights=FILE."
        raise ConfigError(expected("model", "weights", rule, "null", remedy))
    channels = told.input.channels or 3
    mean, std = default_normalisation(channels)
    normal = {"mean": mean, "std": std} if channels == 3 else {}
    guesses = {"input": {"channels": channels, "order": "rgb", **normal}, "size": {"fit": fit}}
    return Facts(values={}, guesses=guesses, files=(fetch(told.weights),))


def load_torchvision(place: str, config: ForeignConfig) -> nn.Module:
    """Build the network without downloading anything, and load its weights."""
    from torchvision.models import get_model

    def build(tensors: Mapping[str, Any], classes: int) -> Any:
        aux = {"aux_loss": True} if any(name.startswith("aux_classifier.") for name in tensors) else {}
        return get_model(place, weights=None, weights_backbone=None, num_classes=classes, **aux)

    return Picked(_filled(build, config), itemgetter("out"))


def load_smp(place: str, config: ForeignConfig) -> nn.Module:
    """Build the network without downloading anything, and load its weights."""
    import segmentation_models_pytorch as smp

    def build(tensors: Mapping[str, Any], classes: int) -> Any:
        arch, _, encoder = place.partition("/")
        told = {"in_channels": config.input.channels, "classes": classes, **config.options}
        try:
            return smp.create_model(arch, encoder_name=encoder, encoder_weights=None, **told)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            reason = " ".join(str(error).split())[:200]
            raise ConfigError(f"smp:{place}: can't be built ({type(error).__name__}: {reason}).") from error

    return _filled(build, config)


def _filled(build: Callable[[Mapping[str, Any], int], Any], config: ForeignConfig) -> nn.Module:
    """Build a network for the tensors of a file, and load them."""
    path, classes = fetch(str(config.weights)), len(config.classes or ())
    tensors = load_tensors(path)
    network: nn.Module = build(tensors, 1 if config.output.activation == "sigmoid" and classes == 2 else classes)
    fit = compare(network.state_dict(), tensors)
    if not fit.exact:
        remedy = f"model.classes names {classes}: give those that it was trained on."
        raise CheckpointError(f"{path}: does not fit the network: {fit.describe()}. {remedy}")
    check_finite(tensors, path)
    network.load_state_dict(tensors)
    return network
