"""Reads named tensors from files without running anything that they contain, and compares them with a network's."""

import os
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from segmeter.checks import shorten
from segmeter.errors import CheckpointError

_HEAD_BYTES = 256
_PROGRAM = (
    "holds more than tensors and numbers, so that opening it could run code; nothing ran. If you trust it, write "
    "`safetensors.torch.save_file(model.state_dict(), ...)` and give that as model.weights, or export it to ONNX."
)
_NESTS = ("state_dict", "model_state_dict", "model")


@dataclass(frozen=True, kw_only=True)
class Fit:
    """The match of a file's tensors with a network: names in both, names on one side only, and shapes that differ."""

    matched: tuple[str, ...]
    missing: tuple[str, ...]
    extra: tuple[str, ...]
    reshaped: tuple[str, ...]

    @property
    def exact(self) -> bool:
        return not (self.missing or self.extra or self.reshaped)

    def describe(self) -> str:
        """Describe the differences in one line: each kind, with at most ten names."""
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
    """Raise CheckpointError with the names of the tensors that contain NaN or infinity."""
    bad = [name for name, each in tensors.items() if each.is_floating_point() and not torch.isfinite(each).all()]
    if bad:
        raise CheckpointError(
            f"{path}: {len(bad)} tensors hold NaN or infinity: {shorten(bad)}. "
            "The training diverged; take an earlier checkpoint."
        )


def load_exactly(network: nn.Module, tensors: Mapping[str, Tensor], path: Path, *, what: str, remedy: str) -> None:
    """Load the tensors of a file; CheckpointError unless they are finite and just those of the network."""
    fit = compare(network.state_dict(), tensors)
    if not fit.exact:
        raise CheckpointError(f"{path}: does not fit {what}: {fit.describe()}. {remedy}")
    check_finite(tensors, path)
    network.load_state_dict(tensors)


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Read named tensors from safetensors, or from a state dict that torch.save wrote, onto the CPU.

    Raises
    ------
    CheckpointError
        The file is damaged, something else, or holds more than plain tensors.
    """
    if not real_path(path).is_file():
        kind = "is a folder, not a file" if path.is_dir() else "is not a regular file"
        raise CheckpointError(f"{path}: {kind}. Name the file, or a checkpoint's folder.")
    fault = find_placeholder(path)
    if fault:
        raise CheckpointError(f"{path}: {fault}")
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            names = {name.rpartition("/")[2] for name in archive.namelist()}
        if names & {"constants.pkl", "archive_format", "serialized_exported_program.json"}:
            kind = "a TorchScript program" if "constants.pkl" in names else "a torch.export program (.pt2)"
            raise CheckpointError(f"{path}: is {kind}, and opening it could run code; nothing ran. Export it to ONNX.")
    if _begins(path).startswith((b"PK", b"\x80")):  # a zip archive or a pickle
        content = load_plain(path)
        nested = [content[key] for key in _NESTS if isinstance(content, dict) and isinstance(content.get(key), dict)]
        state = nested[0] if nested else content
        if not (isinstance(state, dict) and state and all(isinstance(each, Tensor) for each in state.values())):
            remedy = "Save `model.state_dict()` and give that."
            raise CheckpointError(f"{path}: holds no state dict (name -> tensor). {remedy}")
        return {str(name): each for name, each in state.items()}
    try:
        return dict(safetensors.torch.load_file(path))
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        fault = f"is no checkpoint, or is damaged or truncated ({' '.join(str(error).split())})"
        remedy = "Fetch it again, or give a segmeter checkpoint, a torch file or safetensors."
        raise CheckpointError(f"{path}: {fault}. {remedy}") from error


def load_plain(path: Path) -> Any:
    """Open what torch.save wrote, as plain tensors, numbers and containers of them; never anything else.

    Raises
    ------
    CheckpointError
        The file is damaged, or is a program (a pickled model or function).
    """
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Detected pickle protocol")  # before torch refuses such a file
            return torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        raise CheckpointError(f"{path}: {_PROGRAM}") from error
    except Exception as error:  # a damaged file makes torch raise RuntimeError, EOFError, struct.error, ...
        fault = "is damaged or truncated, or torch.save did not write it; nothing in it ran"
        raise CheckpointError(f"{path}: {fault}. Fetch it again.") from error


def real_path(path: Path) -> Path:
    """Follow the links of a path; CheckpointError if they lead in a circle, or nothing is there."""
    try:
        path.stat()
    except OSError as error:
        remedy = "Point the link at a checkpoint." if path.is_symlink() else f"Check the path (from {Path.cwd()})."
        raise CheckpointError(f"{path}: can't be opened ({error.strerror}). {remedy}") from error
    return Path(os.path.realpath(path))


def find_placeholder(path: Path) -> str | None:
    """Describe what a download or clone left in place of the file, and what to do; None for any other content."""
    text = _begins(path).lstrip().lower()
    if path.stat().st_size == 0:
        return "is empty (0 bytes): the copy or download broke off. Fetch it again."
    if text.startswith(b"version https://git-lfs"):
        return "is a git-lfs pointer, not the file itself. Run `git lfs pull`."
    if text.startswith((b"<!doctype html", b"<html", b"<?xml", b"<head")):
        return "is not a checkpoint (looks like HTML, perhaps a login page). Download the file itself."
    return None


def _begins(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_HEAD_BYTES)
