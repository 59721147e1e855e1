"""Writes a checkpoint's manifest, with the sha256 of every file and of itself, and a run's links to checkpoints."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from segmeter import __version__
from segmeter.errors import CheckpointError, InputError
from segmeter.files import describe_file, operation, replace, sha256_file, sync_folder, temporary_name
from segmeter.models.checkpoints.weights import find_placeholder, real_path
from segmeter.records import digest, read_json

FORMAT = 1
MANIFEST = "manifest.json"
WEIGHTS = "model.safetensors"
STATE = "state.pt"
_LONGEST_NAME = 255  # bytes, on all systems
_CHANGED = "was changed or damaged since it was written (sha256 differs). Fetch it again."


def settle_file(path: Path) -> dict[str, Any]:
    """Flush a file to the disk, give it the mode that new files have, and describe it."""
    path.chmod(path.parent.stat().st_mode & 0o666)  # as the umask can't be read without a race
    with path.open("r+b") as file:  # Windows flushes only what may be written
        os.fsync(file.fileno())
    return describe_file(path)


def read_manifest(path: Path) -> dict[str, Any]:
    """Read a manifest; raises CheckpointError unless it is complete, unedited and not newer than this program."""
    real = real_path(path)  # stores of models keep files as links to their contents
    try:
        manifest = read_json(real)
    except InputError as error:
        fault = find_placeholder(real) if real.is_file() else None
        raise CheckpointError(f"{path}: {fault}" if fault else error.problems) from error
    if not isinstance(manifest.get("format"), int):
        raise CheckpointError(f"{path}: is not a segmeter manifest. Give a segmeter run or checkpoint.")
    if manifest["format"] > FORMAT:
        raise CheckpointError(
            f"{path}: has format {manifest['format']}, from segmeter {manifest.get('segmeter')!r}; "
            f"this segmeter {__version__} reads up to {FORMAT}. Upgrade segmeter."
        )
    if manifest.get("sha256") != digest(manifest):
        raise CheckpointError(f"{path}: {_CHANGED}")
    return manifest


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
    """Make `link` a symbolic link to its sibling `target` by one rename; readers see the old target or the new one.

    Windows lets few users make links, and replaces none that leads to a folder. There it is a file with the name of the
    target, see `pointed`.
    """
    temporary = link.with_name(temporary_name())
    with operation("link", link):
        if hasattr(os, "O_DIRECTORY"):
            temporary.symlink_to(target)
        else:
            temporary.write_text(target, encoding="utf-8")
    try:
        with operation("rename", link):
            replace(temporary, link)
    except BaseException:
        with suppress(OSError), operation("unlink", link):
            temporary.unlink()
        raise
    sync_folder(link.parent)


def pointed(link: Path) -> Path:
    """Follow what `point` made to its target; return any other path unchanged."""
    if link.is_file() and link.stat().st_size <= _LONGEST_NAME:
        target = link.parent / link.read_text("utf-8", "replace")
        return target if target.parent == link.parent and target.is_dir() else link
    return link
