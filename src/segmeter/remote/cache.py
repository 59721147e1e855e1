"""Fetched objects -> files below one folder, of bounded size: what was used least recently goes first."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

from segmeter.checks import expected
from segmeter.errors import ConfigError, DataError
from segmeter.files import TEMPORARY, make_folder, remove

with suppress(ImportError):  # which Windows lacks
    import fcntl
    import resource

HOME = ".segmeter-url"  # name of the cache's folder: a path that holds it belongs to a URL
OBJECTS = ".o"  # in a tree: what its links lead to; short, so that a link needs no block of the disk
WHOLE = "whole"  # where folders that were fetched at once lie
SUM = ".sha256"  # ends the name of the file that holds an object's hash
DEFAULT_GB = 20.0
_FULL = 0.9  # of the bound that is left once something had to go
_LEFT_BEHIND = 3600.0  # seconds after which nobody writes to a file that has no name yet
_SHARE = 8  # of the room that is left, taken before the folder is looked through again
_OPEN_FILES = 65536  # where the system allows so many: each folder that is held takes one


def cache_folder() -> Path:
    """$SEGMETER_CACHE, or segmeter/ in $XDG_CACHE_HOME, or ~/.cache/segmeter."""
    named = os.environ.get("SEGMETER_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "segmeter"


def most_bytes() -> int:
    """The cache's bound: $SEGMETER_CACHE_GB, 20 where it is not set.

    Raises
    ------
    ConfigError
        It is not a number above 0.
    """
    given = os.environ.get("SEGMETER_CACHE_GB", str(DEFAULT_GB))
    try:
        size = float(given)
    except ValueError:
        size = 0.0
    if not 0 < size < 1e9:
        rule = "to be the size of the cache of fetched files in GB, above 0"
        raise ConfigError(expected("config", "SEGMETER_CACHE_GB", rule, repr(given)))
    return int(size * 1e9)


class Room:
    """The bytes that the cache may still take; any number of threads may ask, and of processes.

    Each process looks through the folder when an eighth of the room that it last saw is used up, so several of them may
    pass the bound by a little, and one alone never does.
    """

    def __init__(self, folder: Path, most: int) -> None:
        self._folder = folder
        self._most = most
        self._left = 0
        self._coming = 0  # bytes that have room and are still being fetched
        self._arrived = threading.Condition()

    @contextmanager
    def reserve(self, size: int, what: str) -> Iterator[None]:
        """Make room for a file or folder of `size` bytes, which is written inside the block.

        Raises
        ------
        DataError
            It is larger than the whole cache, or than what is not in use.
        """
        with self._arrived:
            while not self._fits(size):
                if not self._coming:
                    remedy = "Raise SEGMETER_CACHE_GB, or take a part of the cases with shard=1/N."
                    rule = f"to fit into the cache of {self._most / 1e9:g} GB"
                    raise DataError(expected(what, "object", rule, f"{size / 1e9:g} GB", remedy))
                self._arrived.wait()  # what other threads fetch can go once it is here
            self._coming += size
        try:
            yield
        finally:
            with self._arrived:
                self._coming -= size
                self._arrived.notify_all()

    def _fits(self, size: int) -> bool:
        """Whether there is room, or could be made."""
        if self._left >= size:
            self._left -= size
            return True
        entries = sorted(self._entries())
        total = sum(each[1] for each in entries) + self._coming
        for _, bytes_, path in entries if total + size > self._most else ():
            if total + size <= _FULL * self._most:  # with room for more: the folder is seldom gone through
                break
            total -= bytes_ if _forget(path) else 0
        self._left = max(0, self._most - total - size) // _SHARE
        return total + size <= self._most

    def _entries(self) -> Iterator[tuple[int, int, Path]]:
        """Last use, bytes and path of everything that can go."""
        for path in self._folder.glob(f"*/*/{OBJECTS}/*-*"):
            with suppress(FileNotFoundError):
                state = path.stat()
                if path.suffix != SUM and not _is_being_written(path, state):
                    yield state.st_mtime_ns, state.st_size, path
        for folder in self._folder.glob(f"{WHOLE}/*"):
            with suppress(FileNotFoundError):
                if any(_is_being_written(path, path.stat()) for path in folder.iterdir()):
                    continue
                size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
                yield folder.stat().st_mtime_ns, size, folder


@lru_cache(maxsize=4)
def room_of(folder: Path, most: int) -> Room:
    """The one room of a cache in this process."""
    return Room(folder, most)


def hold(folder: Path) -> None:
    """Make a folder of the cache where it is missing, and keep it until this process ends."""
    _allow_open_files()
    while folder not in _held:
        make_folder(folder)
        with suppress(FileNotFoundError):  # another process removed it just now
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(handle, fcntl.LOCK_SH)
            if _is_at(handle, folder):
                _held[folder] = handle
            else:
                os.close(handle)


_held: dict[Path, int] = {}


@lru_cache(maxsize=1)
def _allow_open_files() -> None:
    """Let the process open as many files as the system lets it ask for: often it starts with 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _is_at(handle: int, folder: Path) -> bool:
    """Whether an opened folder still has its name, or was removed while its lock was waited for."""
    try:
        return os.path.samestat(os.fstat(handle), folder.stat())
    except FileNotFoundError:
        return False


def _is_being_written(path: Path, state: os.stat_result) -> bool:
    """Whether a file has no name yet; what a killed process left is no longer written to, and goes first of all."""
    return path.name.startswith(TEMPORARY) and time.time() - state.st_mtime < _LEFT_BEHIND


def _forget(path: Path) -> bool:
    """Remove an object or folder; False where a process holds it."""
    with suppress(FileNotFoundError):
        if path.is_dir():
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove(path)
            except BlockingIOError:
                return False
            finally:
                os.close(handle)
        else:
            path.unlink()
            path.with_name(path.name + SUM).unlink(missing_ok=True)
    return True
