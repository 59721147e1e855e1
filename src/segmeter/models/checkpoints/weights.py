"""file -> named tensors, opened without running anything that the file contains, and how they match a network."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from segmeter.checks import shorten
from segmeter.errors import CheckpointError
from segmeter.models.checkpoints.foreign import check_is_file, is_bare_pickle, is_pickle, suspect

_NESTS = ("state_dict", "model_state_dict", "model")


@dataclass(frozen=True, kw_only=True)
class Fit:
    """How the tensors of a file match a network: names in both, names on one side only, and shapes that differ."""

    matched: tuple[str, ...]
    missing: tuple[str, ...]
    extra: tuple[str, ...]
    reshaped: tuple[str, ...]

    @property
    def exact(self) -> bool:
        return not (self.missing or self.extra or self.reshaped)

    def describe(self) -> str:
        """One line: each kind of difference, at most ten names of it."""
        kinds = (("missing", self.missing), ("extra", self.extra), ("other shape", self.reshaped))
        return "; ".join(f"{len(names)} {kind}: {shorten(names)}" for kind, names in kinds if names)


def compare(network: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> Fit:
    """Compare a network's state dict with the tensors of a file."""
    reshaped = {
        name: f"{name} {tuple(tensors[name].shape)} in the file, {tuple(network[name].shape)} in the network"
        for name in network
        if name in tensors and tensors[name].shape != network[name].shape
    }
    return Fit(
        matched=tuple(name for name in network if name in tensors and name not in reshaped),
        missing=tuple(name for name in network if name not in tensors),
        extra=tuple(name for name in tensors if name not in network),
        reshaped=tuple(reshaped.values()),
    )


def check_finite(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Raise CheckpointError with the names of the tensors that hold NaN or infinity."""
    bad = [name for name, each in tensors.items() if each.is_floating_point() and not torch.isfinite(each).all()]
    if bad:
        raise CheckpointError(
            f"{path}: {len(bad)} tensors hold NaN or infinity: {shorten(bad)}. "
            "The training diverged; take an earlier checkpoint."
        )


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Read named tensors from safetensors, or from a state dict that torch.save wrote, onto the CPU.

    Raises
    ------
    CheckpointError
        The file is damaged, something else, or holds more than plain tensors.
    """
    check_is_file(path)
    fault = suspect(path)
    if fault:
        raise CheckpointError(f"{path}: {fault}")
    if is_pickle(path):
        return _named_tensors(load_plain(path), path)
    try:
        tensors: dict[str, Tensor] = safetensors.torch.load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise CheckpointError(f"{path}: is damaged or truncated ({error}). Fetch it again.") from error
    return tensors


def load_plain(path: Path) -> Any:
    """Open what torch.save wrote, as plain tensors, numbers and containers of them; never anything else.

    Raises
    ------
    CheckpointError
        The file is damaged, or is a program (a pickled model or function).
    """
    try:
        if is_bare_pickle(path):
            raise UnpicklingError
        return torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        raise CheckpointError(
            f"{path}: holds more than tensors and numbers, so that opening it could run code; nothing ran. "
            "Where you trust it, write `safetensors.torch.save_file(model.state_dict(), ...)` "
            "and give that as model.weights."
        ) from error
    except Exception as error:  # a damaged file makes torch raise RuntimeError, EOFError, struct.error, ...
        raise CheckpointError(f"{path}: is damaged or truncated. Fetch it again.") from error


def _named_tensors(content: Any, path: Path) -> dict[str, Tensor]:
    """Find the state dict in what a training program saved."""
    nested = [content[key] for key in _NESTS if isinstance(content, dict) and isinstance(content.get(key), dict)]
    state = nested[0] if nested else content
    is_state = isinstance(state, dict) and state and all(isinstance(each, Tensor) for each in state.values())
    if not is_state:
        raise CheckpointError(f"{path}: holds no state dict (name -> tensor). Save `model.state_dict()` and give that.")
    return {str(name): each for name, each in state.items()}
