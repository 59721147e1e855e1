"""Fetches what is behind a URL into a cache of bounded size, from which what was used least recently goes first.

An entry of the cache is a folder. Its name holds the size and a hash of the URL and of the states (ETag or time of
change) of its objects; below it they lie under their URL. So the path of a listed object says all that is needed to
fetch it, in any process, and an object that has changed since is another path.
"""

import hashlib
import os
import threading
import time
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import TypeVar

from segmeter.checks import expected
from segmeter.errors import ConfigError, DataError, SegmeterError
from segmeter.files import TEMPORARY, fresh_folder, make_folder, remove
from segmeter.parallel import map_in_threads
from segmeter.progress import track
from segmeter.provenance import cache_folder
from segmeter.remote.stores import Stored, list_objects, origin, read_object, split_archive, url_of

Item = TypeVar("Item")

DEFAULT_GB = 20.0
_HOME = ".segmeter-fetched"  # name of the cache's folder: a path that holds it belongs to a URL
_MARK = f"/{_HOME}/"
_FOLDER = "-folder"  # ends the name of an entry that is a folder
_THREADS = 16  # that fetch: most of the time they wait for the store
_FULL = 0.9  # of the bound that is left once something had to go
_SHARE = 8  # of the room that is left, taken before the cache is looked through again
_OPEN_FILES = 65536  # where the system allows so many: each entry that is kept takes one
_LEFT_BEHIND = 3600.0  # seconds after which nobody writes to what has no name yet

_room = threading.Condition()
_left, _coming = 0, 0  # bytes known to be free, and bytes that are being fetched
_turns = dict[str, threading.Lock]()  # one thread fetches an entry, and others wait for it
_kept: dict[Path, int] = {}  # entries that stay until this process ends, with their handles


@dataclass(frozen=True)
class Listed:
    """A file or folder: the path that it has here once it is fetched.

    `inside` has what is directly in a folder behind a URL, by name, and `files` the names of the files among that;
    `inside` is None for what is on this machine, and not looked at.
    """

    path: Path
    files: frozenset[str] = frozenset()
    inside: Mapping[str, "Listed"] | None = None


def list_place(place: Path) -> Listed:
    """List a file or folder behind a URL; an archive is unpacked for that.

    Raises
    ------
    ConfigError
        The URL can't be used.
    DataError
        Nothing is there, or it can't be read.
    RunError
        The store can't be reached.
    """
    place = unzipped(place)
    url = url_of(place)
    if url is None:
        return Listed(place)
    objects, inside = list_objects(url), dict[str, list[Stored]]()
    for each in objects:
        name, _, rest = each.name.partition("/")
        inside.setdefault(name, []).append(Stored(rest, each.size, each.stamp))
    listed = {name: _listed(f"{url}/{name}", below) for name, below in inside.items() if name}
    return replace(_listed(url, objects), inside=listed)


def _listed(url: str, objects: Sequence[Stored]) -> Listed:
    names = frozenset(each.name for each in objects if each.name and "/" not in each.name)
    return Listed(_cached(url, objects), names)


def listed_size(path: str | Path) -> int | None:
    """Return the bytes of a listed file or folder, fetched or not; None for a path of this machine.

    A name that is missing in a folder that was fetched, such as a chunk of zeros, has 0.
    """
    home, mark, inside = str(path).partition(_MARK)
    if not mark:
        return None
    key = inside.partition("/")[0]
    is_gone = not os.path.lexists(path) and os.path.lexists(f"{home}{mark}{key}")
    return 0 if is_gone else int(key.partition("-")[0], 16)


def fetch(given: str | Path, keep: Callable[[str], bool] = lambda name: True) -> Path:
    """Return the path of this machine that a path or URL stands for; `keep` says which names below a URL are wanted.

    What was fetched stays in the cache until this process ends. Raises as `list_place` does, and DataError where it
    changed since it was listed, or does not fit into the cache.
    """
    url = url_of(given)
    if url is None:
        return Path(given)
    if url.startswith("zip://"):
        return unzipped(Path(given))
    objects = [each for each in list_objects(url) if not each.name or keep(each.name)]
    if not objects:
        raise DataError(expected(url, "folder", "to hold what is wanted of it", "other files"))
    path = _cached(url, objects)
    _keep(path, partial(_download, path, objects, show=True))
    return path


def unzipped(place: Path) -> Path:
    """Return the folder here that a zip:// URL stands for, once all of its archive is unpacked; others are themselves.

    Raises as `fetch`.
    """
    url = url_of(place)
    if url is None or not url.startswith("zip://"):
        return place
    inner, archive = split_archive(url)
    file = fetch(archive)
    try:
        state = file.stat()
        stamp = f"{state.st_mtime_ns} {state.st_ino}" if listed_size(file) is None else _entry(file).name
        with zipfile.ZipFile(file) as opened:
            size = sum(each.file_size for each in opened.infolist())
            path = _cached(f"zip://::{archive}", [Stored("all", size, stamp)])
            _keep(path, lambda folder: opened.extractall(folder / path.relative_to(_entry(path))))
    except (OSError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError) as error:
        raise DataError(expected(archive, "archive", "to be a ZIP file that can be read", error)) from error
    return path / inner


@contextmanager
def fetched(paths: Iterable[Path]) -> Iterator[None]:
    """While the block runs, listed files behind URLs are here, under their paths; folders stay until the process ends.

    Chunks of a Zarr folder are read long after it was opened, and one that is gone would be read as zeros.
    """
    with ExitStack() as stack:
        for path in paths:
            if listed_size(path) is None:
                continue
            fill = partial(_download, path, ())
            if _entry(path).name.endswith(_FOLDER):
                _keep(path, fill)
            else:
                stack.callback(os.close, _pin(path, fill))
        yield


def fetch_ahead(items: Iterable[Item], files_of: Callable[[Item], Iterable[Path]]) -> Iterator[Item]:
    """Yield items in their order while the files of the next ones are fetched; what fails is left to who reads it."""

    def work(item: Item) -> Item:
        with suppress(SegmeterError), fetched(files_of(item)):
            pass
        return item

    rest = iter(items)
    for first in rest:
        if all(listed_size(path) is None for path in files_of(first)):
            yield first
            yield from rest
        else:
            yield from map_in_threads(work, chain([first], rest), threads=_THREADS, name="fetch")


def _cached(url: str, objects: Sequence[Stored]) -> Path:
    """The path that objects of a URL have once they are fetched."""
    digest = hashlib.sha256(repr((url, objects)).encode("utf-8", "surrogateescape")).hexdigest()[:24]
    kind = "" if objects and not objects[0].name else _FOLDER
    key = f"{sum(each.size for each in objects):x}-{digest}{kind}"
    return Path(cache_folder().absolute(), _HOME, key, *url.split("/"))


def _entry(path: Path) -> Path:
    home, _, inside = str(path).partition(_MARK)
    return Path(home, _HOME, inside.partition("/")[0])


def _keep(path: Path, fill: Callable[[Path], None]) -> None:
    """Let an entry stay until this process ends."""
    if _entry(path) not in _kept:
        _allow_open_files()
        handle = _pin(path, fill)
        if _kept.setdefault(_entry(path), handle) != handle:
            os.close(handle)


@cache
def _allow_open_files() -> None:
    """Let the process open as many files as the system lets it ask for: often it starts with 1024."""
    import resource  # not on every system

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _OPEN_FILES if hard < 0 else min(hard, _OPEN_FILES)
    if 0 <= soft < most:  # infinity is below 0
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _pin(path: Path, fill: Callable[[Path], None]) -> int:
    """Let an entry be filled where it is not here, and return a handle that keeps it until that is closed."""
    entry, handle = _entry(path), None
    with _turns.setdefault(entry.name, threading.Lock()):
        while handle is None:
            if not entry.is_dir():
                try:
                    with _reserve(listed_size(path) or 0, origin(path)), fresh_folder(entry) as folder:
                        fill(folder)
                except OSError:
                    if not entry.is_dir():  # else another process was faster
                        raise
            handle = _lock(entry)
        os.utime(entry)  # used now
        _turns.pop(entry.name, None)
    return handle


def _lock(entry: Path, *, alone: bool = False) -> int | None:
    """Hold an entry with others, or alone; None where it is gone, or another holds what is wanted alone."""
    import fcntl  # not on every system, and local files need none

    with suppress(FileNotFoundError):
        handle = os.open(entry, os.O_RDONLY | os.O_DIRECTORY)
        with suppress(FileNotFoundError, BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB if alone else fcntl.LOCK_SH)
            if os.path.samestat(os.fstat(handle), entry.stat()):  # else it was removed while this one waited
                return handle
        os.close(handle)
    return None


def _download(path: Path, objects: Sequence[Stored], folder: Path, *, show: bool = False) -> None:
    """Fetch the objects of an entry into its folder; DataError where they are not what was listed."""
    entry = _entry(path)
    place = path.relative_to(entry)
    url = origin(path)
    if not objects:
        objects = list_objects(url) if entry.name.endswith(_FOLDER) else [Stored("", 0, "")]

    def read(each: Stored) -> Stored:
        target = folder / place / each.name
        make_folder(target.parent)
        return read_object(f"{url}/{each.name}" if each.name else url, target, each.name)

    if len(objects) == 1:
        found = [read(objects[0])]
    else:
        read_all = map_in_threads(read, objects, threads=_THREADS, name="fetch")
        found = list(track(read_all, f"fetching {url}", len(objects)) if show else read_all)
    if _entry(_cached(url, found)) != entry:
        rule, remedy = "to stay what it was when it was listed", "Start again once it is settled."
        raise DataError(expected(url, "object", rule, "another content", remedy))


@contextmanager
def _reserve(size: int, what: str) -> Iterator[None]:
    """Make room for `size` bytes that are written in the block.

    Each process looks through the cache when an eighth of the room that it last saw is used up, so several of them may
    pass the bound by a little, and one alone never does.
    """
    global _coming
    with _room:
        while not _fits(size):
            if not _coming:
                remedy = "Raise SEGMETER_CACHE_GB, or take a part of the cases with shard=1/N."
                rule = f"to fit into the cache of {_most_bytes() / 1e9:g} GB"
                raise DataError(expected(what, "object", rule, f"{size / 1e9:g} GB", remedy))
            _room.wait()  # what other threads fetch can go once it is here
        _coming += size
    try:
        yield
    finally:
        with _room:
            _coming -= size
            _room.notify_all()


def _fits(size: int) -> bool:
    """Whether there is room, or can be made."""
    global _left
    if _left >= size:
        _left -= size
        return True
    most, entries = _most_bytes(), sorted(_entries(cache_folder().absolute() / _HOME))
    total = sum(each[1] for each in entries) + _coming
    for _, bytes_, path in entries if total + size > most else ():
        if total + size <= _FULL * most:  # with room for more: the cache is seldom looked through
            break
        handle = _lock(path, alone=True)
        if handle is not None:
            remove(path)
            os.close(handle)
            total -= bytes_
    _left = max(0, most - total - size) // _SHARE
    return total + size <= most


def _entries(home: Path) -> Iterator[tuple[float, int, Path]]:
    """Last use, bytes and path of everything that can go."""
    make_folder(home)
    for each in os.scandir(home):
        with suppress(FileNotFoundError):
            changed = each.stat().st_mtime
            if not each.name.startswith(TEMPORARY):
                yield changed, int(each.name.partition("-")[0], 16), Path(each)
            elif time.time() - changed > _LEFT_BEHIND:  # of a process that was killed
                yield 0.0, 0, Path(each)


def _most_bytes() -> int:
    """The cache's bound: $SEGMETER_CACHE_GB, 20 where it is not set; ConfigError where it is no number above 0."""
    given = os.environ.get("SEGMETER_CACHE_GB", str(DEFAULT_GB))
    with suppress(ValueError):
        if 0 < float(given) < 1e9:
            return int(float(given) * 1e9)
    rule = "to be the size of the cache of fetched files in GB, above 0"
    raise ConfigError(expected("config", "SEGMETER_CACHE_GB", rule, repr(given)))
