"""Writes and reads checkpoints: folders with a segmenter's weights, card and progress, which are always complete.

A folder holds `model.safetensors`, `manifest.json` with the sha256 of each file and of itself, and while a training can
resume from it, `state.pt` of plain tensors and numbers. Nothing in it is ever run or imported.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from segmeter import __version__
from segmeter.checks import expected
from segmeter.errors import CheckpointError, ConfigError, InputError, RunError
from segmeter.files import (
    atomic_write,
    describe_file,
    fresh_folder,
    operation,
    remove,
    replace,
    sha256_file,
    sync_folder,
    temporary_name,
    write_bytes,
    write_json,
)
from segmeter.models.config import ModelCard
from segmeter.models.segmenter import Segmenter, build_segmenter
from segmeter.models.weights import find_placeholder, load_exactly, load_plain, load_tensors, real_path
from segmeter.records import read_json, seal
from segmeter.remote import fetch

FORMAT = 1
MANIFEST = "manifest.json"
WEIGHTS = "model.safetensors"
STATE = "state.pt"
_LONGEST_NAME = 255  # No file system has names of more bytes
_CHANGED = "was changed or damaged since it was written (sha256 differs). Fetch it again."


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A checkpoint whose manifest and weights were verified.

    `folder` is the real folder, with links resolved. `progress` has the training's epoch, step and metric. `sha256` is
    the hash of the weights.
    """

    folder: Path
    card: ModelCard
    progress: Mapping[str, Any]
    sha256: str
    files: Mapping[str, Mapping[str, Any]]

    def load_segmenter(self, device: str | torch.device = "cpu") -> Segmenter:
        """Build the segmenter and load its weights, in evaluation mode.

        Raises
        ------
        CheckpointError
            Names or shapes differ from what the card builds, or a weight is not finite.
        """
        path = self.folder / WEIGHTS
        try:
            segmenter = build_segmenter(self.card, initialise=False)
        except ConfigError as error:
            remedy = "If a plugin brings this network, name it: plugins=[...]."
            raise CheckpointError(f"{path}: can't be built here. {' '.join(error.problems)} {remedy}") from error
        what = f"the network {self.card.model.get('name')!r} of its card"
        remedy = "Take another checkpoint, or train one from it: model.weights."
        load_exactly(segmenter, load_tensors(path), path, what=what, remedy=remedy)
        return segmenter.to(device).eval()

    def load_state(self) -> dict[str, Any]:
        """Read the training's state, on the CPU.

        Raises
        ------
        CheckpointError
            There is none, or it was changed since it was written.
        """
        if STATE not in self.files:
            raise CheckpointError(
                f"{self.folder}: has no {STATE}, so no training can resume from it. Use it to evaluate."
            )
        verify_file(self.folder, STATE, self.files[STATE])
        state: dict[str, Any] = load_plain(self.folder / STATE)
        return state


def write_checkpoint(
    folder: Path,
    *,
    segmenter_state: Mapping[str, Tensor],
    card: ModelCard,
    state: Mapping[str, Any] | None,
    progress: Mapping[str, Any],
) -> None:
    """Write a checkpoint under a new name: it appears complete, or not at all.

    Parameters
    ----------
    folder
        Must not exist yet.
    segmenter_state
        ``Segmenter.state_dict()``, on any device.
    card
        The card that the segmenter was built from.
    state
        The state from which a training resumes: dicts, lists, tuples of tensors, numbers, strings and None. Or None.
    progress
        JSON values: epoch, step, metric (None where it is undefined).

    Raises
    ------
    InputError
        `state` holds anything else.
    RunError
        The disk is full, or the folder can't be written; earlier checkpoints are as they were.
    """
    plain = None if state is None else plain_state(state)
    tensors = {  # safetensors requires that each tensor has memory of its own
        name: tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        for name, tensor in segmenter_state.items()
    }
    try:
        with fresh_folder(folder) as fresh:
            write_bytes(fresh / WEIGHTS, safetensors.torch.save(tensors))
            if plain is not None:
                with atomic_write(fresh / STATE) as file:
                    torch.save(plain, file)
            files = {path.name: describe_file(path) for path in sorted(fresh.iterdir())}
            manifest = {"format": FORMAT, "segmeter": __version__, "card": card.to_dict(), "progress": dict(progress)}
            write_json(fresh / MANIFEST, seal(manifest | {"files": files}))
    except (OSError, SafetensorError, RuntimeError) as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, OSError):  # torch.save hides a full disk behind its own error
            cause = cause.__cause__ or cause.__context__
        reason = (cause.strerror if cause is not None else None) or str(error)
        raise RunError(
            f"{folder}: the checkpoint can't be written ({reason}). "
            "Earlier checkpoints are untouched; make room and resume."
        ) from error


def find_checkpoint(path: Path) -> Path:
    """Find a checkpoint's folder from a run's folder (its best), from its own folder, or from a file in it.

    Raises
    ------
    CheckpointError
        There is none. The message says what was found instead.
    """
    path = fetch(path, keep=_of_checkpoints)
    real = real_path(path)
    if real.is_file() and real.stat().st_size <= _LONGEST_NAME:  # it may hold the name of a folder, see `point`
        named = real.parent / real.read_text("utf-8", "replace")
        real = named if named.parent == real.parent and named.is_dir() else real
    folder = real.parent if real.is_file() else real
    if (folder / MANIFEST).is_file():
        return folder
    if real.is_file():
        bare = f"holds {len(load_tensors(real))} bare tensors, without classes and normalisation"
        raise CheckpointError(
            f"{path}: {bare}. Train from it with model.weights=PATH, "
            "or name its network: checkpoint=smp:ARCHITECTURE/ENCODER or torchvision:NAME, with model.weights."
        )
    checkpoints = real / "checkpoints"
    if os.path.lexists(checkpoints / "best"):
        return find_checkpoint(checkpoints / "best")
    if checkpoints.is_dir():
        names = ", ".join(sorted(entry.name for entry in checkpoints.iterdir() if not entry.name.startswith(".")))
        content = f"it has {names}: name one of them" if names else "it is empty: no epoch ended"
        raise CheckpointError(f"{checkpoints}: has no best checkpoint; {content}.")
    wanted = f"{MANIFEST} or checkpoints/best"
    raise CheckpointError(f"{path}: is a folder without a checkpoint ({wanted}). Give a run's folder or a checkpoint.")


def find_weights(place: Path | str) -> Path:
    """Find a file of weights: the file itself, by path or URL, or the weights of a checkpoint or run."""
    path = fetch(place, keep=_of_checkpoints)
    return read_checkpoint(path).folder / WEIGHTS if path.is_dir() else path


def read_checkpoint(path: Path | str, *, verify_weights: bool = True) -> Checkpoint:
    """Open a checkpoint, and verify its manifest and weights.

    Parameters
    ----------
    path
        As for `find_checkpoint`.
    verify_weights
        False neither reads nor verifies the weights, which is quicker if only the card is needed.

    Raises
    ------
    CheckpointError
        There is none, it is damaged, or a newer segmeter wrote it: one line with the file, the cause and the next step.
    """
    folder = find_checkpoint(Path(path))
    path = folder / MANIFEST
    try:
        manifest = read_json(real_path(path))  # stores of models keep files as links to their contents
    except InputError as error:
        fault = find_placeholder(path)
        raise CheckpointError(f"{path}: {fault}" if fault else error.problems) from error
    if not isinstance(manifest.get("format"), int):
        raise CheckpointError(f"{path}: is not a segmeter manifest. Give a segmeter run or checkpoint.")
    if manifest["format"] > FORMAT:
        raise CheckpointError(
            f"{path}: has format {manifest['format']}, from segmeter {manifest.get('segmeter')!r}; "
            f"this segmeter {__version__} reads up to {FORMAT}. Upgrade segmeter."
        )
    if manifest != seal(manifest):
        raise CheckpointError(f"{path}: {_CHANGED}")
    try:
        files: dict[str, dict[str, Any]] = {
            name: {"bytes": int(entry["bytes"]), "sha256": str(entry["sha256"])}
            for name, entry in manifest["files"].items()
        }
        checkpoint = Checkpoint(
            folder=folder,
            card=ModelCard.from_dict(manifest["card"]),
            progress=dict(manifest["progress"]),
            sha256=files[WEIGHTS]["sha256"],
            files=files,
        )
    except (KeyError, TypeError, ValueError, AttributeError, ConfigError) as error:
        reason = " ".join(f"{type(error).__name__} {error}".split())
        raise CheckpointError(f"{path}: lacks what a checkpoint must say ({reason}). Take another.") from error
    if verify_weights:
        verify_file(folder, WEIGHTS, files[WEIGHTS])
    return checkpoint


def plain_state(value: Any, where: str = "state") -> Any:
    """Copy nested containers into plain ones of tensors, numbers, strings and None; InputError names other contents."""
    if isinstance(value, Tensor):
        return value.detach()
    if isinstance(value, Mapping):
        return {key: plain_state(item, f"{where}[{key!r}]") for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(plain_state(item, f"{where}[{index}]") for index, item in enumerate(value))
    if value is None or type(value) in (bool, int, float, str, bytes):
        return value
    remedy = "A checkpoint holds no objects: turn it into tensors, numbers or strings."
    raise InputError(expected("write_checkpoint", where, "to be plain", type(value).__name__, remedy))


def _of_checkpoints(name: str) -> bool:
    """Tell whether reading a checkpoint, or a run's best one, needs this file below a URL."""
    return "/" not in name or name.startswith("checkpoints/best/")


def verify_file(folder: Path, name: str, entry: Mapping[str, Any]) -> None:
    """Raise CheckpointError unless a file is byte for byte as the manifest describes it."""
    path = folder / name
    if not path.is_file():
        raise CheckpointError(f"{path}: is missing, though the manifest lists it. Copy the whole folder again.")
    size = path.stat().st_size
    if size < entry["bytes"]:
        truncated = f"is truncated: {size} of {entry['bytes']} bytes. Fetch it again."
        raise CheckpointError(f"{path}: {find_placeholder(path) or truncated}")
    if size != entry["bytes"] or sha256_file(path) != entry["sha256"]:
        raise CheckpointError(f"{path}: {_CHANGED}")


def point(link: Path, target: str) -> None:
    """Make `link` a symbolic link to its sibling `target` by one rename. Readers see the old target or the new one.

    Windows lets few users make links, and can't replace a link to a folder. There `link` is a file that holds the
    target's name, and `find_checkpoint` reads it.
    """
    temporary = link.with_name(temporary_name())
    with operation("link", link):
        if hasattr(os, "O_DIRECTORY"):
            temporary.symlink_to(target)
        else:
            temporary.write_text(target, encoding="utf-8")
    try:
        with operation("rename", link):
            if link.is_dir() and not (link.is_symlink() and hasattr(os, "O_DIRECTORY")):
                remove(link)  # another system's link, or a copy of the checkpoint in its place
            replace(temporary, link)
    except BaseException:
        with suppress(OSError), operation("unlink", link):
            temporary.unlink()
        raise
    sync_folder(link.parent)
