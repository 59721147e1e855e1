"""file -> what it looks like: so that a refusal names the cause and the next step."""

import os
from pathlib import Path

from segmeter.errors import CheckpointError

_HEAD_BYTES = 4096
_HEADER_LIMIT = 100_000_000  # bytes of JSON that safetensors itself accepts
_OLD_TORCH = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # how files of torch before 1.6 begin


def real_path(path: Path) -> Path:
    """The path with links followed; CheckpointError where they lead in a circle, or nothing is there."""
    try:
        path.stat()
    except OSError as error:
        remedy = "Point the link at a checkpoint." if path.is_symlink() else f"Check the path (from {Path.cwd()})."
        raise CheckpointError(f"{path}: can't be opened ({error.strerror}). {remedy}") from error
    return Path(os.path.realpath(path))


def check_is_file(path: Path) -> None:
    """Raise CheckpointError unless `path` leads to a regular file."""
    if not real_path(path).is_file():
        fault = "is a folder, not a file" if path.is_dir() else "is not a regular file"
        raise CheckpointError(f"{path}: {fault}. Name the file, or a checkpoint's folder.")


def suspect(path: Path) -> str | None:
    """Say what a file is that can't be weights, and what to do; None where it may be weights."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    text = head.lstrip().lower()
    if size == 0:
        return "is empty (0 bytes): the copy or download broke off. Fetch it again."
    if head.startswith(b"version https://git-lfs"):
        return "is a git-lfs pointer, not the file itself. Run `git lfs pull`."
    if text.startswith((b"<!doctype html", b"<html", b"<?xml", b"<head")):
        return "is not a checkpoint (looks like HTML, perhaps a login page). Download the file itself."
    if is_pickle(path):
        return None
    header = int.from_bytes(head[:8], "little") if size >= 8 else 0
    if size >= 16 and head[8:9] == b"{":
        return _safetensors_fault(header, size)
    if _is_text(head):
        return "is not a checkpoint (looks like text). Give a segmeter checkpoint, or safetensors weights."
    return (
        "is not a checkpoint: neither safetensors nor a torch file. Give a segmeter checkpoint, or safetensors weights."
    )


def is_pickle(path: Path) -> bool:
    """Whether a file is what torch.save or pickle write: a zip archive, or a bare pickle."""
    with path.open("rb") as file:
        head = file.read(2)
    return head == b"PK" or (head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"))


def is_bare_pickle(path: Path) -> bool:
    """Whether a file is a pickle that torch.save did not write."""
    with path.open("rb") as file:
        head = file.read(len(_OLD_TORCH))
    return head[:1] == b"\x80" and head != _OLD_TORCH[: len(head)]


def _safetensors_fault(header: int, size: int) -> str | None:
    if header > _HEADER_LIMIT:
        return f"is damaged: its safetensors header claims {header} bytes. Fetch it again."
    if header + 8 > size:
        return f"is truncated: its header alone needs {header + 8} bytes, the file has {size}. Fetch it again."
    return None


def _is_text(head: bytes) -> bool:
    try:
        head[: _HEAD_BYTES - 4].decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in head
