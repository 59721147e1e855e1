"""Starts a network from the weights of a file or checkpoint of segmeter or of another library."""

import logging
from collections import Counter
from collections.abc import Mapping

from torch import Tensor, nn

from segmeter.errors import CheckpointError
from segmeter.models.checkpoints.checkpoint import find_weights
from segmeter.models.checkpoints.weights import Fit, check_finite, compare, load_tensors

_WRAPPERS = ("module.", "_orig_mod.", "network.", "model.")  # DataParallel, torch.compile, Segmenter, Lightning
_RGB = 3
_LOG = logging.getLogger(__name__)


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
    rest = f"; {fit.describe()}" if not fit.exact else ""
    network.start = f"{_shares(wanted, fit)} from {path}{said}{rest}"  # type: ignore[assignment]
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


def _shares(wanted: Mapping[str, Tensor], fit: Fit) -> str:
    """Tensors found for each part of the network, such as "122 of 122 tensors of encoder"."""
    every, found = (Counter(name.partition(".")[0] for name in names) for names in (wanted, fit.matched))
    return ", ".join(f"{found[part]} of {count} tensors of {part}" for part, count in every.items())
