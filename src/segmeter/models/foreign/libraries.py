"""Builds networks of torchvision and segmentation-models-pytorch for a file of weights; nothing is downloaded."""

from collections.abc import Callable, Mapping

from torch import Tensor, nn

from segmeter.checks import expected, nearest
from segmeter.errors import CheckpointError, ConfigError
from segmeter.models.card import default_normalisation
from segmeter.models.checkpoints.weights import check_finite, compare, load_tensors
from segmeter.models.foreign.config import Facts, ForeignConfig
from segmeter.remote import fetch

Tensors = Mapping[str, Tensor]


def describe(place: str, told: ForeignConfig, *, fit: str) -> Facts:
    """Read the card of a network: its classes are asked for, and ImageNet's normalisation is a guess."""
    if told.weights is None:
        rule, remedy = "to name the file of the network's weights", "Set model.weights=FILE."
        raise ConfigError(expected("model", "weights", rule, "null", remedy))
    channels = told.input.channels or 3
    mean, std = default_normalisation(channels)
    normal = {"mean": mean, "std": std} if channels == 3 else {}
    guesses = {"input": {"channels": channels, "order": "rgb", **normal}, "size": {"fit": fit}}
    return Facts(values={}, guesses=guesses, files=(fetch(told.weights),))


def build_torchvision(place: str, tensors: Tensors, channels: int, config: ForeignConfig) -> nn.Module:
    """Build a network of torchvision that gives `channels` channels of logits."""
    from torchvision.models import get_model, list_models, segmentation

    if place not in list_models(module=segmentation):  # get_model also has networks for other tasks
        raise ValueError(f"no network for segmentation. {nearest(place, list_models(module=segmentation))}")
    aux = {"aux_loss": True} if any(name.startswith("aux_classifier.") for name in tensors) else {}
    network: nn.Module = get_model(place, weights=None, weights_backbone=None, num_classes=channels, **aux)
    network.register_forward_hook(lambda module, given, found: found["out"])
    return network


def build_smp(place: str, tensors: Tensors, channels: int, config: ForeignConfig) -> nn.Module:
    """Build a network of segmentation-models-pytorch that gives `channels` channels of logits."""
    import segmentation_models_pytorch as smp

    arch, _, encoder = place.partition("/")
    if "/" in encoder:  # timm would fetch it from the hub
        raise ValueError("more than an architecture and an encoder")
    told = {"in_channels": config.input.channels, "classes": channels, **config.options}
    network: nn.Module = smp.create_model(arch, encoder_name=encoder, encoder_weights=None, **told)
    return network


def load(
    place: str, config: ForeignConfig, *, build: Callable[[str, Tensors, int, ForeignConfig], nn.Module]
) -> nn.Module:
    """Build a network for the tensors of a file, and load them."""
    path = fetch(str(config.weights))
    tensors = load_tensors(path)
    try:
        network = build(place, tensors, config.num_channels, config)
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        form = "Give torchvision:NAME, such as deeplabv3_resnet50, or smp:ARCHITECTURE/ENCODER, such as Unet/resnet34."
        raise ConfigError(f"model: {place!r} can't be built ({reason}). {form}") from error
    fit = compare(network.state_dict(), tensors)
    if not fit.exact:
        remedy = f"model.classes names {len(config.classes or ())}: give those that it was trained on."
        raise CheckpointError(f"{path}: does not fit the network: {fit.describe()}. {remedy}")
    check_finite(tensors, path)
    network.load_state_dict(tensors)
    return network
