"""Builds networks of segmentation-models-pytorch, with logits as large as the image, and loads initial weights."""

import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any

import segmentation_models_pytorch as smp
import timm
import torch
from timm.models import adapt_input_conv
from torch import Tensor, nn

from segmeter.checks import close_name, expected
from segmeter.classes import ClassSpec
from segmeter.errors import CheckpointError, ConfigError, refusing
from segmeter.models.checkpoint import find_weights
from segmeter.models.config import ModelConfig
from segmeter.models.layers import fold_upsampling, replace_norms
from segmeter.models.weights import compare, load_tensors

_OWN_KEYS = {"name", "logits_stride", *ModelConfig.model_fields}  # All other keys are options of the library's network
# The least image size, in pixels: the deepest layers are at 1/32, and a single value has no deviation to divide by
_INSTANCE_LEAST = 64
_PAN_LEAST = 8  # PAN's attention halves the deepest map three times
_WRAPPERS = ("module.", "_orig_mod.", "network.", "model.")  # DataParallel, torch.compile, Segmenter, Lightning
_RGB = 3
_LOG = logging.getLogger(__name__)


def build_network(config: Any, *, spec: ClassSpec, in_channels: int) -> nn.Module:
    """Build the network that the configuration names.

    Parameters
    ----------
    config
        One of the configurations of `segmeter.models.config`.
    spec
        The classes, which decide the number of channels of the logits.
    in_channels
        Channels of the image, >= 1.

    Returns
    -------
    A network from (B, in_channels, H, W) float to (B, num_channels, H, W), for heights and widths that are multiples
    of its `size_multiple` and at least its `size_least`.

    Raises
    ------
    ConfigError
        The encoder is unknown, does not go with this network or depth, or its pretrained weights can't be loaded.
    CheckpointError
        The file in ``model.weights`` can't be read or does not fit.
    """
    options = {key: value for key, value in config if key not in _OWN_KEYS}
    if options.get("decoder_channels", 0) is None:
        options["decoder_channels"] = tuple(16 * 2**level for level in reversed(range(config.depth)))
    if config.name == "fpn":
        options["upsampling"] = 2 ** (config.depth - 3)  # the pyramid ends at the third map from the deepest
    elif config.name == "pspnet":
        options["upsampling"] = 2**config.depth
    elif config.name == "dpt":
        options["dynamic_img_size"] = True
    own_weights = smp.encoders.encoders.get(config.encoder, {}).get("pretrained_settings", {})  # mostly imagenet
    pretrained = config.weights == "imagenet" or config.weights in own_weights
    # timm takes True or False, as a model's name says which weights it has ("tu-resnet50.a1_in1k")
    weights = (config.encoder.startswith("tu-") or config.weights) if pretrained else None
    what = f"model: {config.name} with encoder {config.encoder!r} at depth {config.depth}"
    timm_name = config.encoder.removeprefix("tu-").split(".")[0]
    if config.encoder.startswith("tu-") and not timm.is_model(timm_name):
        close = close_name(f"tu-{timm_name}", [f"tu-{name}" for name in timm.list_models()])
        remedy = close or f"timm {timm.__version__} has models such as tu-convnext_tiny."
        raise ConfigError(expected("model", "encoder", "to be known to timm", repr(config.encoder), remedy))
    remedy = "Choose another encoder or depth, or other options of this network."
    if pretrained:
        remedy = "If its weights can't be fetched, set model.weights=null, or give the path of a file."
    with refusing(ConfigError, f"{what} can't be built", remedy):
        network: nn.Module = smp.create_model(
            config.name,
            encoder_name=config.encoder,
            encoder_depth=config.depth,
            encoder_weights=weights,
            in_channels=in_channels,
            classes=spec.num_channels,
            **options,
        )
        if getattr(config, "logits_stride", 1) > 1:
            _end_decoder_at(config.logits_stride, network)
    stride = int(network.encoder.output_stride)  # type: ignore[union-attr, arg-type]
    least = _INSTANCE_LEAST if config.norm == "instance" else 1
    network.size_multiple = stride  # type: ignore[assignment]
    network.size_least = max(_PAN_LEAST * stride, least) if config.name == "pan" else least  # type: ignore[assignment]
    network.downsample = config.downsample
    network = replace_norms(network, config.norm)
    fold_upsampling(network)
    _check_size(network, what, in_channels)  # after folding, as this is the network that will run
    if config.weights is not None and not pretrained:
        start_from(network, config.weights)
    return network


def _end_decoder_at(stride: int, network: Any) -> None:
    """Drop, in place, the levels of a U-Net's decoder that are finer than the stride, and enlarge the logits."""
    head = network.segmentation_head[0]
    blocks = network.decoder.blocks
    blocks = blocks[: len(blocks) - (stride.bit_length() - 1)]
    network.decoder.blocks = blocks
    network.segmentation_head = nn.Sequential(
        nn.Conv2d(blocks[-1].conv2[0].out_channels, head.out_channels, head.kernel_size, padding=head.padding),
        nn.Upsample(scale_factor=stride, mode="bilinear"),
    )


@torch.inference_mode()
def _check_size(network: nn.Module, what: str, in_channels: int) -> None:
    """Run a small image that is not square, to refuse combinations whose logits have another size."""
    multiple, least = int(network.size_multiple), int(network.size_least)  # type: ignore[arg-type]
    size = (max(2 * multiple, least), max(3 * multiple, least))
    training = network.training
    with refusing(ConfigError, f"{what} does not run", "Choose another encoder or depth."):
        logits = network.eval()(torch.zeros(1, in_channels, *size))
    network.train(training)
    logits_size = tuple(logits.shape[-2:])
    if logits_size != size:
        raise ConfigError(f"{what} gives logits of {logits_size} for an image of {size}. Choose model.depth=5.")


def start_from(network: nn.Module, source: str) -> None:
    """Load the weights of a file or checkpoint that match a network by name and shape, and log the differences.

    Parameters
    ----------
    network
        Changed in place. Tensors that the file lacks keep their values. Its attribute `weights_report` is the logged
        report.
    source
        A safetensors file, a state dict of torch.save, or a segmeter checkpoint folder. The weights may come from
        segmeter, segmentation-models-pytorch, torchvision or timm. Prefixes that wrappers leave ("module.") are
        dropped, and an encoder's own weights are recognised. A first convolution of 3 channels is spread over the
        network's channels.

    Raises
    ------
    CheckpointError
        The file can't be read, has non-finite values, or fits less than half of the encoder.
    """
    path = find_weights(source)
    wanted = network.state_dict()
    tensors, changes = unwrap(load_tensors(path), wanted)
    kernels = [name for name in wanted if wanted[name].ndim == 4 and name in tensors and tensors[name].ndim == 4]
    of_rgb = [name for name in kernels if tensors[name].shape[1] == _RGB != wanted[name].shape[1]]
    if len(of_rgb) == 1:  # the convolution that sees the image
        (name,) = of_rgb
        channels = wanted[name].shape[1]
        tensors[name] = adapt_input_conv(channels, tensors[name])
        changes += f" ({name} spread from {_RGB} to {channels} channels)"
    matched, differences = compare(wanted, tensors)
    encoder = [name for name in wanted if name.startswith("encoder.")] or list(wanted)
    if len(set(encoder) & set(matched)) * 2 < len(encoder):
        raise CheckpointError(
            f"{path}: does not fit model.encoder - {differences}. Choose the network it was made for."
        )
    network.load_state_dict({name: tensors[name] for name in matched}, strict=False)
    totals, loaded = (Counter(name.partition(".")[0] for name in names) for names in (wanted, matched))
    shares = ", ".join(f"{loaded[part]} of {count} tensors of {part}" for part, count in totals.items())
    rest = f"; {differences}" if differences else ""
    network.weights_report = f"{shares} from {path}{changes}{rest}"  # type: ignore[assignment]
    _LOG.log(logging.WARNING if differences or changes else logging.INFO, "model.weights: %s", network.weights_report)


def unwrap(tensors: dict[str, Tensor], wanted: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], str]:
    """Rename tensors to the network's names, and describe the changes.

    Prefixes that wrappers put before every name are dropped, and the weights of an encoder alone are recognised. A timm
    model that serves as an encoder has flat names for its first levels ("stages_0.blocks" for "stages.0.blocks"), so
    such names match.
    """
    dropped = []
    while tensors and (prefix := next((w for w in _WRAPPERS if all(name.startswith(w) for name in tensors)), None)):
        tensors = {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
        dropped.append(prefix)
    changes = f" (dropped the prefix {''.join(dropped)!r})" if dropped else ""
    flat = {name.replace("_", "."): name for name in wanted}
    flat = flat if len(flat) == len(wanted) else {}

    def named(name: str) -> str:
        return name if name in wanted else flat.get(name.replace("_", "."), name)

    # An encoder's own weights go under "encoder.", a timm model's under "encoder.model."
    inside = max(
        ("", "encoder.", "encoder.model."), key=lambda start: sum(named(start + name) in wanted for name in tensors)
    )
    if inside:
        changes += " (an encoder alone)"
    return {named(inside + name): tensor for name, tensor in tensors.items()}, changes
