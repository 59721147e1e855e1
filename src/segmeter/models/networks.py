"""configuration -> raw network of segmentation-models-pytorch, at every depth with logits as large as the image."""

from typing import Any

import segmentation_models_pytorch as smp
import timm
import torch
from torch import nn

from segmeter.checks import expected, nearest
from segmeter.classes import ClassSpec
from segmeter.errors import ConfigError
from segmeter.models.config import EncoderConfig
from segmeter.models.folding import fold_upsampling
from segmeter.models.initial import start_from
from segmeter.models.norms import replace_norms
from segmeter.models.pretrained import pretrained_encoder

_NETWORKS: dict[str, type[nn.Module]] = {
    "unet": smp.Unet,
    "unetplusplus": smp.UnetPlusPlus,
    "manet": smp.MAnet,
    "linknet": smp.Linknet,
    "fpn": smp.FPN,
    "pspnet": smp.PSPNet,
    "deeplabv3": smp.DeepLabV3,
    "deeplabv3plus": smp.DeepLabV3Plus,
    "pan": smp.PAN,
    "upernet": smp.UPerNet,
    "segformer": smp.Segformer,
    "dpt": smp.DPT,
}
_OURS = ("name", "encoder", "depth", "weights", "downsample", "norm", "logits_stride")  # not the library's options
_INSTANCE_LEAST = 64  # pixels: the deepest layers are at 1/32, and one value alone has no deviation to divide by
_PAN_LEAST = 8  # its attention pools the deepest map three times by two


def build_network(config: Any, *, spec: ClassSpec, in_channels: int) -> nn.Module:
    """Build the network that the configuration names.

    Parameters
    ----------
    config
        One of the configurations of `segmeter.models.config`.
    spec
        Gives the number of channels of the logits.
    in_channels
        Channels of the image, >= 1.

    Returns
    -------
    A network from (B, in_channels, H, W) float to (B, num_channels, H, W), for heights and widths that are multiples
    of its `size_multiple` and at least its `size_least`.

    Raises
    ------
    ConfigError
        The encoder is not known, does not go with this network or depth, or its pretrained weights can't be had.
    CheckpointError
        The file in ``model.weights`` can't be read or does not fit.
    """
    _check_encoder(config.encoder)
    wanted = config.weights == "imagenet" or config.weights in _pretrained_names(config.encoder)
    with pretrained_encoder(config.encoder, wanted=wanted):
        network = _construct(config, spec.num_channels, in_channels, pretrained=wanted)
    stride = int(network.encoder.output_stride)  # type: ignore[union-attr, arg-type]
    network.size_multiple = stride  # type: ignore[assignment]
    network.size_least = _least_size(config, stride)  # type: ignore[assignment]
    network.downsample = config.downsample
    network = replace_norms(network, config.norm)
    fold_upsampling(network)
    _check_size(network, config, in_channels)  # of what will run, so after folding
    if config.weights is not None and not wanted:
        start_from(network, config.weights)
    return network


def _construct(config: Any, num_channels: int, in_channels: int, *, pretrained: bool) -> nn.Module:
    # a timm model is pretrained or not; which weights is part of its name ("tu-resnet50.a1_in1k")
    names = _pretrained_names(config.encoder)
    if pretrained and names and config.weights not in names:
        remedy = f"Known: {', '.join(names)}."
        raise ConfigError(expected("model", "weights", f"that {config.encoder} has", repr(config.weights), remedy))
    weights = (config.encoder.startswith("tu-") or config.weights) if pretrained else None
    try:
        network = _NETWORKS[config.name](
            encoder_name=config.encoder,
            encoder_depth=config.depth,
            encoder_weights=weights,
            in_channels=in_channels,
            classes=num_channels,
            **_options(config),
        )
    except (KeyError, ValueError, TypeError, AttributeError, RuntimeError, NotImplementedError) as error:
        raise ConfigError(
            f"{_what(config)} can't be built: {_line(error)}. Choose another encoder or depth."
        ) from error
    stride = getattr(config, "logits_stride", 1)
    if stride > 1:
        _end_decoder_at(stride, network)
    return network


def _end_decoder_at(stride: int, network: Any) -> None:
    """Leave out, in place, the levels of a U-Net's decoder that are finer than the stride, and enlarge the logits."""
    blocks, head = network.decoder.blocks, network.segmentation_head[0]
    kept = blocks[: len(blocks) - (stride.bit_length() - 1)]
    network.decoder.blocks = kept
    network.segmentation_head = nn.Sequential(
        nn.Conv2d(kept[-1].conv2[0].out_channels, head.out_channels, head.kernel_size, padding=head.padding),
        nn.Upsample(scale_factor=stride, mode="bilinear"),
    )


def _least_size(config: EncoderConfig, stride: int) -> int:
    least = _INSTANCE_LEAST if config.norm == "instance" else 1
    return max(_PAN_LEAST * stride, least) if config.name == "pan" else least


def _options(config: EncoderConfig) -> dict[str, Any]:
    """The network's own fields carry the library's names; a few follow from the depth."""
    options = {key: value for key, value in config if key not in _OURS}
    name = getattr(config, "name", "")
    if options.get("decoder_channels", 0) is None:
        options["decoder_channels"] = tuple(16 * 2**level for level in reversed(range(config.depth)))
    if name == "fpn":
        options["upsampling"] = 2 ** (config.depth - 3)  # the pyramid ends at the third map from the deepest
    if name == "pspnet":
        options["upsampling"] = 2**config.depth
    if name == "dpt":
        options["dynamic_img_size"] = True
    return options


def _check_encoder(encoder: str) -> None:
    name = encoder.removeprefix("tu-").split(".")[0]
    if encoder.startswith("tu-") and not timm.is_model(name):
        names = [f"tu-{each}" for each in timm.list_models()]
        near = nearest(f"tu-{name}", names)
        remedy = (
            near if near.startswith("Did") else f"timm {timm.__version__} has {len(names)}, such as tu-convnext_tiny."
        )
        raise ConfigError(expected("model", "encoder", "to be known to timm", repr(encoder), remedy))


def _pretrained_names(encoder: str) -> list[str]:
    """The weights that the library has for one of its own encoders: mostly imagenet."""
    return list(smp.encoders.encoders.get(encoder, {}).get("pretrained_settings", {}))


@torch.inference_mode()
def _check_size(network: nn.Module, config: Any, in_channels: int) -> None:
    """Run a small image that is not square: a combination whose logits have another size must not get further."""
    multiple, least = int(network.size_multiple), int(network.size_least)  # type: ignore[arg-type]
    size = max(2 * multiple, least), max(3 * multiple, least)
    training = network.training
    try:
        logits = network.eval()(torch.zeros(1, in_channels, *size))
    except (ValueError, TypeError, RuntimeError, AssertionError, IndexError, AttributeError, KeyError) as error:
        raise ConfigError(f"{_what(config)} does not run: {_line(error)}. Choose another encoder or depth.") from error
    finally:
        network.train(training)
    if tuple(logits.shape[-2:]) != size:
        given = tuple(logits.shape[-2:])
        raise ConfigError(f"{_what(config)} gives logits of {given} for an image of {size}. Choose model.depth=5.")


def _what(config: Any) -> str:
    return f"model: {config.name} with encoder {config.encoder!r} at depth {config.depth}"


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200].rstrip(".")
