"""Files that are complete or absent: atomic writing, checksums, safe names."""

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

TEMPORARY = ".tmp-"
_SAFE_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")


def umask() -> int:
    """The process's umask; temporary files start at 0600, so what is published gets its mode from this."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def sync_folder(folder: Path) -> None:
    """Make a rename in `folder` survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def atomic_write(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that appears under `path` complete, on leaving the block, or not at all.

    A link planted at `path` is replaced, never followed.
    """
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=TEMPORARY, suffix=path.suffix)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fchmod(file.fileno(), 0o666 & ~umask())
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file that appears complete, or not at all."""
    with atomic_write(path) as file:
        file.write(content)


def write_json(path: Path, content: Any) -> None:
    """Write JSON with shortest round-trip floats; NaN and infinity are refused, as JSON has none."""
    write_bytes(path, (json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode())


def publish_folder(folder: Path, fill: Callable[[Path], None]) -> None:
    """Let `fill` write a new folder, then make it appear under its name, complete, by one rename."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(dir=folder.parent, prefix=TEMPORARY))
    try:
        fill(fresh)
        fresh.chmod(0o777 & ~umask())
        sync_folder(fresh)
        os.replace(fresh, folder)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    sync_folder(folder.parent)


def point(link: Path, target: str) -> None:
    """Make `link` a symbolic link to its sibling `target` by one rename; readers see the old target or the new."""
    fresh = link.with_name(f"{TEMPORARY}{os.getpid()}-{link.name}")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    os.replace(fresh, link)
    sync_folder(link.parent)


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def safe_id(name: str) -> str:
    """Turn any name into one that is safe as a file name; a changed one carries a hash, so that two never collide.

    Examples
    --------
    >>> safe_id("0001TP_009570")
    '0001TP_009570'
    >>> safe_id("../x")
    'x-d6b96a97'
    """
    if _SAFE_ID.fullmatch(name) and not name.startswith("."):
        return name
    slug = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:100] or "case"
    return f"{slug}-{hashlib.sha256(name.encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"
