"""The manifest of a checkpoint: the sha256 of every file, and of the manifest itself."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from segmeter import __version__
from segmeter.errors import CheckpointError, DataError, InputError
from segmeter.files import describe_file, operation, replace, sha256_file, sync_folder, temporary_name
from segmeter.models.checkpoints.foreign import real_path, suspect
from segmeter.records import digest, read_json, read_own

FORMAT = 1
MANIFEST = "manifest.json"
WEIGHTS = "model.safetensors"
STATE = "state.pt"
_LONGEST_NAME = 255  # bytes, on all systems
_SHORT = 65536  # bytes; a pointer or a page in place of weights is shorter


def settle_file(path: Path) -> dict[str, Any]:
    """Flush a file to the disk, give it the mode that new files have, and describe it."""
    path.chmod(path.parent.stat().st_mode & 0o666)  # its folder is new: the umask itself can't be read without a race
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return describe_file(path)


def read_manifest(path: Path) -> dict[str, Any]:
    """Read a manifest that is whole, unedited and not newer than this program; else CheckpointError."""
    try:
        manifest = read_json(real_path(path))  # stores of models keep files as links to their contents
    except DataError as error:
        fault = None if read_own(real_path(path)).startswith(b"{") else suspect(path)
        raise CheckpointError(f"{path}: {fault or 'is damaged: not JSON. Take another checkpoint.'}") from error
    except InputError as error:
        raise CheckpointError(error.problems) from error
    if not isinstance(manifest.get("format"), int):
        raise CheckpointError(f"{path}: is not a segmeter manifest. Give a segmeter run or checkpoint.")
    if manifest["format"] > FORMAT:
        raise CheckpointError(
            f"{path}: has format {manifest['format']}, from segmeter {manifest.get('segmeter')!r}; "
            f"this segmeter {__version__} reads up to {FORMAT}. Upgrade segmeter."
        )
    if manifest.get("sha256") != digest(manifest):
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


def point(link: Path, target: str) -> None:
    """Make `link` a symbolic link to its sibling `target` by one rename; readers see the old target or the new.

    Windows lets few users make links: there it may be a file with the name of the target, see `pointed`.
    """
    temporary = link.with_name(temporary_name())
    with operation("link", link):
        try:
            temporary.symlink_to(target)
        except OSError as error:
            if getattr(error, "winerror", None) is None:
                raise
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
    """Follow what `point` made to the target; anything else is given back as it is."""
    if link.is_file() and link.stat().st_size <= _LONGEST_NAME:
        target = link.parent / link.read_text("utf-8", "replace")
        return target if target.parent == link.parent and target.is_dir() else link
    return link
