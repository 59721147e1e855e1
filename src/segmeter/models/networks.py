"""Builds networks of segmentation-models-pytorch, with logits as large as the image, and loads initial weights."""

import logging
import os
import socket
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any
from urllib.parse import urlparse
from urllib.request import getproxies

import segmentation_models_pytorch as smp
import timm
import torch
from huggingface_hub import constants
from torch import Tensor, nn

from segmeter.checks import close_name, expected
from segmeter.classes import ClassSpec
from segmeter.errors import CheckpointError, ConfigError, refusing
from segmeter.models.checkpoint import find_weights
from segmeter.models.config import ModelConfig
from segmeter.models.layers import fold_upsampling, replace_norms
from segmeter.models.weights import Fit, check_finite, compare, load_tensors

_OURS = {"name", "logits_stride", *ModelConfig.model_fields}  # the others are options of the library's network
_INSTANCE_LEAST = 64  # pixels: the deepest layers are at 1/32, and one value alone has no deviation to divide by
_PAN_LEAST = 8  # its attention pools the deepest map three times by two
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
        The encoder is unknown, does not go with this network or depth, or its pretrained weights can't be loaded.
    CheckpointError
        The file in ``model.weights`` can't be read or does not fit.
    """
    own = smp.encoders.encoders.get(config.encoder, {}).get("pretrained_settings", {})  # mostly imagenet
    pretrained = config.weights == "imagenet" or config.weights in own
    # a timm model is pretrained or not; which weights is part of its name ("tu-resnet50.a1_in1k")
    weights = (config.encoder.startswith("tu-") or config.weights) if pretrained else None
    what = f"model: {config.name} with encoder {config.encoder!r} at depth {config.depth}"
    timm_name = config.encoder.removeprefix("tu-").split(".")[0]
    if config.encoder.startswith("tu-") and not timm.is_model(timm_name):
        close = close_name(f"tu-{timm_name}", [f"tu-{each}" for each in timm.list_models()])
        known = close or f"timm {timm.__version__} has models such as tu-convnext_tiny."
        raise ConfigError(expected("model", "encoder", "to be known to timm", repr(config.encoder), known))
    remedy = "Choose another encoder or depth, or other options of this network."
    fetching = pretrained_encoder(config.encoder) if pretrained else nullcontext()
    with refusing(ConfigError, f"{what} can't be built", remedy), fetching:
        network: nn.Module = smp.create_model(
            config.name,
            encoder_name=config.encoder,
            encoder_depth=config.depth,
            encoder_weights=weights,
            in_channels=in_channels,
            classes=spec.num_channels,
            **_options(config),
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
    _check_size(network, what, in_channels)  # of what will run, so after folding
    if config.weights is not None and not pretrained:
        start_from(network, config.weights)
    return network


def _options(config: ModelConfig) -> dict[str, Any]:
    """Return the options that are the library's own; a few of them follow from the depth."""
    options = {key: value for key, value in config if key not in _OURS}
    if options.get("decoder_channels", 0) is None:
        options["decoder_channels"] = tuple(16 * 2**level for level in reversed(range(config.depth)))
    if config.name == "fpn":
        options["upsampling"] = 2 ** (config.depth - 3)  # the pyramid ends at the third map from the deepest
    if config.name == "pspnet":
        options["upsampling"] = 2**config.depth
    if config.name == "dpt":
        options["dynamic_img_size"] = True
    return options


def _end_decoder_at(stride: int, network: Any) -> None:
    """Drop, in place, the levels of a U-Net's decoder that are finer than the stride, and enlarge the logits."""
    blocks, head = network.decoder.blocks, network.segmentation_head[0]
    kept = blocks[: len(blocks) - (stride.bit_length() - 1)]
    network.decoder.blocks = kept
    network.segmentation_head = nn.Sequential(
        nn.Conv2d(kept[-1].conv2[0].out_channels, head.out_channels, head.kernel_size, padding=head.padding),
        nn.Upsample(scale_factor=stride, mode="bilinear"),
    )


@torch.inference_mode()
def _check_size(network: nn.Module, what: str, in_channels: int) -> None:
    """Run a small image that is not square, to refuse combinations whose logits have another size."""
    multiple, least = int(network.size_multiple), int(network.size_least)  # type: ignore[arg-type]
    size, training = (max(2 * multiple, least), max(3 * multiple, least)), network.training
    with refusing(ConfigError, f"{what} does not run", "Choose another encoder or depth."):
        logits = network.eval()(torch.zeros(1, in_channels, *size))
    network.train(training)
    given = tuple(logits.shape[-2:])
    if given != size:
        raise ConfigError(f"{what} gives logits of {given} for an image of {size}. Choose model.depth=5.")


@contextmanager
def pretrained_encoder(encoder: str) -> Iterator[None]:
    """Let the block fetch pretrained weights; without a network it takes them from the cache or fails at once.

    Raises
    ------
    ConfigError
        The block could not get the weights.
    """
    before = constants.HF_HUB_OFFLINE
    # without a network the hub's client would retry for half a minute
    constants.HF_HUB_OFFLINE = before or not _reachable(constants.ENDPOINT)
    try:
        yield
    except OSError as error:
        state = "no network" if constants.HF_HUB_OFFLINE else "the download failed"
        raise ConfigError(
            f"model.weights: expected the imagenet weights of {encoder!r} from {constants.ENDPOINT} or the cache in "
            f"{constants.HF_HUB_CACHE}, got neither ({state}). Set model.weights=null, or give the path of a file."
        ) from error
    finally:
        constants.HF_HUB_OFFLINE = before


def _reachable(endpoint: str) -> bool:
    """Tell whether the host's name resolves. Behind a proxy it is taken to, as only the proxy knows."""
    if getproxies() or "HF_ENDPOINT" in os.environ:
        return True
    address = urlparse(endpoint)
    try:
        socket.getaddrinfo(address.hostname, address.port or 443)
    except OSError:
        return False
    return True


def start_from(network: nn.Module, source: str) -> Fit:
    """Load the weights of a file or checkpoint that match a network by name and shape, and log the differences.

    Parameters
    ----------
    network
        Changed in place. Tensors that the file lacks keep their values. The attribute `start` gets the logged report.
    source
        A safetensors file, a state dict of torch.save, or a segmeter checkpoint folder: of segmeter,
        segmentation-models-pytorch, torchvision or timm. Prefixes that wrappers leave ("module.") are dropped; an
        encoder's own weights are recognised. A first convolution of 3 channels is spread over those of the network.

    Raises
    ------
    CheckpointError
        The file can't be read, has non-finite values, or less than half of the encoder fits.
    """
    path = find_weights(source)
    wanted = network.state_dict()
    tensors, said = unwrap(load_tensors(path), wanted)
    check_finite(tensors, path)
    said += _spread_channels(tensors, wanted)
    fit = compare(wanted, tensors)
    encoder = [name for name in wanted if name.startswith("encoder.")] or list(wanted)
    if len(set(encoder) & set(fit.matched)) * 2 < len(encoder):
        raise CheckpointError(
            f"{path}: does not fit model.encoder - {fit.describe()}. Choose the network it was made for."
        )
    network.load_state_dict({name: tensors[name] for name in fit.matched}, strict=False)
    every, found = (Counter(name.partition(".")[0] for name in names) for names in (wanted, fit.matched))
    shares = ", ".join(f"{found[part]} of {count} tensors of {part}" for part, count in every.items())
    rest = f"; {fit.describe()}" if not fit.exact else ""
    network.start = f"{shares} from {path}{said}{rest}"  # type: ignore[assignment]
    _LOG.log(logging.INFO if fit.exact and not said else logging.WARNING, "model.weights: %s", network.start)
    return fit


def unwrap(tensors: dict[str, Tensor], wanted: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], str]:
    """Rename tensors to the network's names, and describe what was done.

    Prefixes that wrappers put before every name are dropped, and the weights of an encoder alone are recognised. As an
    encoder, a timm model has flat names for its first levels ("stages_0.blocks" for "stages.0.blocks"), so names that
    differ only in this are the same.
    """
    dropped = []
    while tensors and (prefix := next((w for w in _WRAPPERS if all(name.startswith(w) for name in tensors)), None)):
        tensors = {name.removeprefix(prefix): each for name, each in tensors.items()}
        dropped.append(prefix)
    said = f" (dropped the prefix {''.join(dropped)!r})" if dropped else ""
    flat = {name.replace("_", "."): name for name in wanted}
    flat = flat if len(flat) == len(wanted) else {}

    def named(name: str) -> str:
        return name if name in wanted else flat.get(name.replace("_", "."), name)

    # an encoder's own weights lie under "encoder.", those of a timm model under "encoder.model."
    inside = max(
        ("", "encoder.", "encoder.model."), key=lambda start: sum(named(start + name) in wanted for name in tensors)
    )
    if inside:
        said += " (an encoder alone)"
    return {named(inside + name): each for name, each in tensors.items()}, said


def _spread_channels(tensors: dict[str, Tensor], wanted: Mapping[str, Tensor]) -> str:
    """Adapt the filters of the one convolution that sees RGB images to another number of channels, and report it.

    A single channel gets their sum, as if it were red, green and blue at once. More channels repeat them in turn,
    scaled so that the sum over the channels keeps its size.
    """
    odd = [
        name
        for name, each in tensors.items()
        if name in wanted and each.ndim == 4 and each.shape[1] == _RGB != wanted[name].shape[1]
        if each.shape[0] == wanted[name].shape[0] and each.shape[2:] == wanted[name].shape[2:]
    ]
    if len(odd) != 1:
        return ""
    old, channels = tensors[odd[0]], wanted[odd[0]].shape[1]
    turns = old.repeat(1, -(-channels // _RGB), 1, 1)[:, :channels] * (_RGB / channels)
    tensors[odd[0]] = old.sum(1, keepdim=True) if channels == 1 else turns
    return f" ({odd[0]} spread from {_RGB} to {channels} channels)"
