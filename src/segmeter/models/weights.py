"""Reads named tensors from files without running anything that they contain, and compares them with a network's."""

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from segmeter.checks import shorten
from segmeter.errors import CheckpointError

_HEAD_BYTES = 256
_NO_STATE_DICT = (
    "is damaged or truncated, or holds more than the tensors of a state dict (a whole model, TorchScript, .pt2), and "
    "opening that could run code; nothing ran. Fetch it again. If you trust it, write "
    "`safetensors.torch.save_file(model.state_dict(), ...)` and give that as model.weights, or export it to ONNX."
)
_NESTS = ("state_dict", "model_state_dict", "model")


def compare(network: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> tuple[list[str], str]:
    """Compare a network's state dict with the tensors of a file.

    Returns
    -------
    The names of tensors with the same shape in both, and the differences in one line, with at most ten names of each
    kind; "" if there are none.
    """
    shared = [name for name in network if name in tensors]
    matched = [name for name in shared if tensors[name].shape == network[name].shape]
    differences = {
        "missing": [name for name in network if name not in tensors],
        "extra": [name for name in tensors if name not in network],
        "other shape": [
            f"{name} {tuple(tensors[name].shape)} in the file, {tuple(network[name].shape)} in the network"
            for name in shared
            if tensors[name].shape != network[name].shape
        ],
    }
    return matched, "; ".join(f"{len(names)} {kind}: {shorten(names)}" for kind, names in differences.items() if names)


def load_exactly(network: nn.Module, tensors: Mapping[str, Tensor], path: Path, *, what: str, remedy: str) -> None:
    """Load the tensors of a file; CheckpointError unless they have exactly the network's names and shapes."""
    _, differences = compare(network.state_dict(), tensors)
    if differences:
        raise CheckpointError(f"{path}: does not fit {what}: {differences}. {remedy}")
    network.load_state_dict(tensors)


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Read named tensors from safetensors, or from a state dict that torch.save wrote, onto the CPU.

    Raises
    ------
    CheckpointError
        The file is damaged, has another format, or holds more than plain tensors; or a tensor has NaN or infinity.
    """
    if not real_path(path).is_file():
        kind = "is a folder, not a file" if path.is_dir() else "is not a regular file"
        raise CheckpointError(f"{path}: {kind}. Name the file, or a checkpoint's folder.")
    fault = find_placeholder(path)
    if fault:
        raise CheckpointError(f"{path}: {fault}")
    with path.open("rb") as file:
        is_pickle = file.read(2).startswith((b"PK", b"\x80"))  # in a zip archive, or bare
    if is_pickle:
        content = load_plain(path)
        nested = [content[key] for key in _NESTS if isinstance(content, dict) and isinstance(content.get(key), dict)]
        state = nested[0] if nested else content
        if not (isinstance(state, dict) and state and all(isinstance(value, Tensor) for value in state.values())):
            remedy = "Save `model.state_dict()` and give that."
            raise CheckpointError(f"{path}: holds no state dict (name -> tensor). {remedy}")
    else:
        try:
            state = safetensors.torch.load_file(path)
        except (SafetensorError, OSError, ValueError, KeyError) as error:
            fault = f"is no checkpoint, or is damaged or truncated ({' '.join(str(error).split())})"
            remedy = "Fetch it again, or give a segmeter checkpoint, a torch file or safetensors."
            raise CheckpointError(f"{path}: {fault}. {remedy}") from error
    floating = {str(name): tensor for name, tensor in state.items() if tensor.is_floating_point()}
    damaged = [name for name, tensor in floating.items() if not tensor.isfinite().all()]
    if damaged:
        raise CheckpointError(
            f"{path}: {len(damaged)} tensors hold NaN or infinity: {shorten(damaged)}. "
            "The training diverged; take an earlier checkpoint."
        )
    return {str(name): tensor for name, tensor in state.items()}


def load_plain(path: Path) -> Any:
    """Open a file of torch.save that holds plain tensors, numbers and containers; CheckpointError for all else."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Detected pickle protocol")  # before torch refuses such a file
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises RuntimeError, UnpicklingError, EOFError, struct.error, ...
        raise CheckpointError(f"{path}: {_NO_STATE_DICT}") from error


def real_path(path: Path) -> Path:
    """Follow the links of a path; CheckpointError if they lead in a circle, or nothing is there."""
    try:
        path.stat()
    except OSError as error:
        remedy = "Point the link at a checkpoint." if path.is_symlink() else f"Check the path (from {Path.cwd()})."
        raise CheckpointError(f"{path}: can't be opened ({error.strerror}). {remedy}") from error
    return Path(os.path.realpath(path))


def find_placeholder(path: Path) -> str | None:
    """Recognise a placeholder that a download or clone left instead of the file, and say what to do; else None."""
    with path.open("rb") as file:
        text = file.read(_HEAD_BYTES).lstrip().lower()
    if path.stat().st_size == 0:
        return "is empty (0 bytes): the copy or download broke off. Fetch it again."
    if text.startswith(b"version https://git-lfs"):
        return "is a git-lfs pointer, not the file itself. Run `git lfs pull`."
    if text.startswith((b"<!doctype html", b"<html", b"<?xml", b"<head")):
        return "is not a checkpoint (looks like HTML, perhaps a login page). Download the file itself."
    return None
