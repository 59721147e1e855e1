"""Builds networks of torchvision and segmentation-models-pytorch for a file of weights; nothing is downloaded."""

from typing import Any

from torch import nn

from segmeter.checks import expected, nearest
from segmeter.errors import ConfigError, refusing
from segmeter.models.config import default_normalisation
from segmeter.models.foreign.config import Facts, ForeignConfig, Source
from segmeter.models.weights import load_exactly, load_tensors
from segmeter.remote import fetch

_FORM = "Give torchvision:NAME, such as deeplabv3_resnet50, or smp:ARCHITECTURE/ENCODER, such as Unet/resnet34."


def describe(source: Source, user_card: ForeignConfig) -> Facts:
    """Read the card of a network. It guesses ImageNet's normalisation, and the user must give the classes."""
    if user_card.weights is None:
        rule = "to name the file of the network's weights"
        raise ConfigError(expected("model", "weights", rule, "null", "Set model.weights=FILE."))
    images: dict[str, Any] = {"channels": user_card.input.channels or 3}
    if images["channels"] == 3:
        images["mean"], images["std"] = default_normalisation(3)
    size = {"fit": "any" if source.family == "torchvision" else "multiple:32"}
    return Facts({}, (fetch(user_card.weights),), {"input": images, "size": size})


def load(source: Source, config: ForeignConfig) -> nn.Module:
    """Build the network for the tensors of its file, and load them.

    Raises
    ------
    ConfigError
        The library has no such network, or the file's tensors are not those of this one.
    """
    path = fetch(str(config.weights))
    tensors = load_tensors(path)
    with refusing(ConfigError, f"model: {source.place!r} can't be built", _FORM):
        if source.family == "smp":
            import segmentation_models_pytorch as smp

            arch, _, encoder = source.place.partition("/")
            if {"/", ":"} & {*encoder}:  # timm would fetch it from the hub
                raise ValueError("more than an architecture and an encoder")
            options = {"in_channels": config.input.channels, "classes": config.num_channels, **config.options}
            network: nn.Module = smp.create_model(arch, encoder_name=encoder, encoder_weights=None, **options)
        else:
            from torchvision.models import get_model, list_models, segmentation

            known = list_models(module=segmentation)  # get_model also has networks for other tasks
            if source.place not in known:
                raise ValueError(f"no network for segmentation. {nearest(source.place, known)}")
            aux = any(key.startswith("aux_classifier.") for key in tensors)
            network = get_model(
                source.place, weights=None, weights_backbone=None, num_classes=config.num_channels, aux_loss=aux
            )
            network.register_forward_hook(lambda module, args, output: output["out"])
    remedy = f"model.classes names {len(config.classes or ())}: give those that it was trained on, and all its weights."
    load_exactly(network, tensors, path, what="the network", remedy=remedy)
    return network
