"""The manifest of a checkpoint: the sha256 of every file, and of the manifest itself."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from segmeter import __version__
from segmeter.errors import CheckpointError
from segmeter.files import describe_file, sha256_file
from segmeter.models.checkpoints.foreign import suspect

FORMAT = 1
MANIFEST = "manifest.json"
WEIGHTS = "model.safetensors"
STATE = "state.pt"
_SHORT = 65536  # bytes; a pointer or a page in place of weights is shorter


def settle_file(path: Path) -> dict[str, Any]:
    """Flush a file to the disk, give it the mode that new files have, and describe it."""
    path.chmod(path.parent.stat().st_mode & 0o666)  # its folder is new: the umask itself can't be read without a race
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return describe_file(path)


def seal(manifest: dict[str, Any]) -> dict[str, Any]:
    """The manifest with the sha256 of its own content, so that an edited one is found."""
    return manifest | {"sha256": _digest(manifest)}


def _digest(manifest: Mapping[str, Any]) -> str:
    """The sha256 of a manifest's content without its own entry."""
    content = {key: value for key, value in manifest.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def read_manifest(path: Path) -> dict[str, Any]:
    """Read a manifest that is whole, unedited and not newer than this program; else CheckpointError."""
    try:
        manifest = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        fault = suspect(path) if path.read_bytes()[:1] != b"{" else None
        raise CheckpointError(f"{path}: {fault or 'is damaged: not JSON. Take another checkpoint.'}") from error
    if not isinstance(manifest, dict) or not isinstance(manifest.get("format"), int):
        raise CheckpointError(f"{path}: is not a segmeter manifest. Give a segmeter run or checkpoint.")
    if manifest["format"] > FORMAT:
        raise CheckpointError(
            f"{path}: has format {manifest['format']}, from segmeter {manifest.get('segmeter')!r}; "
            f"this segmeter {__version__} reads up to {FORMAT}. Upgrade segmeter."
        )
    if manifest.get("sha256") != _digest(manifest):
        raise CheckpointError(f"{path}: was changed or damaged since it was written (sha256 differs). Fetch it again.")
    return manifest


def verify_file(folder: Path, name: str, entry: Mapping[str, Any]) -> None:
    """Raise CheckpointError unless a file is byte for byte the one that the manifest describes."""
    path = folder / name
    if not path.is_file():
        raise CheckpointError(f"{path}: is missing, though the manifest lists it. Copy the whole folder again.")
    size = path.stat().st_size
    if size == entry["bytes"] and sha256_file(path) == entry["sha256"]:
        return
    if size < entry["bytes"]:
        truncated = f"is truncated: {size} of {entry['bytes']} bytes. Fetch it again."
        fault = suspect(path) if size < _SHORT else None
        raise CheckpointError(f"{path}: {fault or truncated}")
    raise CheckpointError(f"{path}: was changed or damaged since it was written (sha256 differs). Fetch it again.")
