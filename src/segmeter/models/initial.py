"""Weights of a file or checkpoint -> network: where a training starts from."""

import logging
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor, nn

from segmeter.errors import CheckpointError
from segmeter.models.checkpoints.checkpoint import read_checkpoint
from segmeter.models.checkpoints.manifest import WEIGHTS
from segmeter.models.checkpoints.weights import Fit, check_finite, compare, load_tensors

_WRAPPERS = ("module.", "_orig_mod.", "network.", "model.")  # DataParallel, torch.compile, Segmenter, Lightning
_LOG = logging.getLogger(__name__)


def start_from(network: nn.Module, source: str) -> Fit:
    """Put the weights of a file or checkpoint into a network, as far as names and shapes agree, and log what did not.

    Parameters
    ----------
    network
        Changed in place. Its tensors that the file lacks keep their values.
    source
        A safetensors file, a state dict of torch.save, or a segmeter checkpoint folder. Prefixes that wrappers leave
        ("module.") are dropped; an encoder's own weights are recognised.

    Raises
    ------
    CheckpointError
        The file can't be read, has non-finite values, or less than half of the encoder fits.
    """
    path = Path(source)
    if path.is_dir():
        path = read_checkpoint(path).folder / WEIGHTS
    tensors, said = unwrap(load_tensors(path), network.state_dict())
    check_finite(tensors, path)
    fit = compare(network.state_dict(), tensors)
    encoder = [name for name in network.state_dict() if name.startswith("encoder.")] or list(network.state_dict())
    if len(set(encoder) & set(fit.matched)) * 2 < len(encoder):
        raise CheckpointError(
            f"{path}: does not fit model.encoder - {fit.describe()}. Choose the network it was made for."
        )
    network.load_state_dict({name: tensors[name] for name in fit.matched}, strict=False)
    rest = f"; {fit.describe()}" if not fit.exact else ""
    level = logging.INFO if fit.exact and not said else logging.WARNING
    counts = len(fit.matched), len(network.state_dict())
    _LOG.log(level, "model.weights: %d of %d tensors from %s%s%s", *counts, path, said, rest)
    return fit


def unwrap(tensors: dict[str, Tensor], wanted: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], str]:
    """Drop the prefixes that wrappers leave before every name, and find out whether this is an encoder alone."""
    dropped = []
    while tensors and (prefix := next((each for each in _WRAPPERS if _all_start(tensors, each)), None)):
        tensors = {name.removeprefix(prefix): each for name, each in tensors.items()}
        dropped.append(prefix)
    said = f" (dropped the prefix {''.join(dropped)!r})" if dropped else ""
    # an encoder's own weights lie under "encoder.", those of a timm model under "encoder.model."
    inside = max(("", "encoder.", "encoder.model."), key=lambda start: sum(start + name in wanted for name in tensors))
    if inside:
        said += " (an encoder alone)"
    return {inside + name: each for name, each in tensors.items()}, said


def _all_start(tensors: Mapping[str, Tensor], prefix: str) -> bool:
    return all(name.startswith(prefix) for name in tensors)
