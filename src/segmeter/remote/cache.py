"""Fetches objects behind URLs into a cache folder of bounded size, and deletes the least recently used ones first.

An entry of the cache is a folder, in which the objects of a URL lie under that URL. The entry's name holds their total
size and a hash of the URL and of their states (ETag or time of change). So any process can fetch a listed object from
its path alone, and an object that changed has another path.
"""

import hashlib
import os
import threading
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TypeVar

from segmeter.checks import expected
from segmeter.errors import ConfigError, DataError, SegmeterError
from segmeter.files import TEMPORARY, fresh_folder, make_folder, remove, temporary_name
from segmeter.parallel import allow_open_files, map_in_threads
from segmeter.progress import track
from segmeter.records import cache_folder
from segmeter.remote.stores import THREADS, Stored, list_objects, on_disk, origin, read_object, split_archive, url_of

Item = TypeVar("Item")

_HOME = ".segmeter-fetched"  # The cache's folder. A path that contains it stands for a URL.
_MARK = f"{os.sep}{_HOME}{os.sep}"
_FOLDER = "-folder"  # The name of an entry for a folder ends with this.
_IN_USE = ".in-use"  # Where folders can't be locked, this file of an entry is open while the entry is in use.
_LOCKS_FOLDERS = hasattr(os, "O_DIRECTORY")  # All systems but Windows can lock folders.
_THREADS = 16  # They mostly wait for the store.
_FULL = 0.9  # Deletions go on until at most this share of the bound is in use.
_SHARE = 8  # The cache is looked through again when an eighth of the free room has been used.
_OPEN_FILES = 65536  # Ask the system for as many open files, because each kept entry takes one.
_PATIENCE = 60.0  # Wait this many seconds for other threads to release parts of the cache.
_LEFT_BEHIND = 3600.0  # After this many seconds an unfinished entry counts as abandoned.

_room = threading.Condition()
_free_bytes = 0  # known to be free
_incoming_bytes = 0  # being fetched now
_turns = dict[str, threading.Lock]()  # Per entry: one thread fetches it while others wait.
_kept: dict[Path, int] = {}  # The entries that stay until this process ends, with their handles.


@dataclass(frozen=True)
class Listed:
    """A file or folder, and the path that it has on this machine once it is fetched.

    For a folder behind a URL, `inside` maps the names directly in it to their entries, and `files` holds those names
    that are files. `inside` is None for a path on this machine, which is not looked at.
    """

    path: Path
    files: frozenset[str] = frozenset()
    inside: Mapping[str, "Listed"] | None = None


def list_place(place: Path) -> Listed:
    """List a file or folder behind a URL. A zip:// archive is unpacked first.

    Raises
    ------
    ConfigError
        The URL can't be used.
    DataError
        Nothing is there, or it can't be read.
    RunError
        The store can't be reached.
    """
    url = url_of(place)
    if url is None or url.startswith("zip://"):
        return Listed(unzipped(place) if url else place)
    objects = list_objects(url)
    by_name = dict[str, list[Stored]]()
    for stored in objects:
        name, _, rest = stored.name.partition("/")
        by_name.setdefault(name, []).append(Stored(rest, stored.size, stored.stamp))
    inside = {name: _listed(f"{url}/{name}", below) for name, below in by_name.items() if name}
    return replace(_listed(url, objects), inside=inside)


def _listed(url: str, objects: Sequence[Stored]) -> Listed:
    names = [stored.name for stored in objects]
    return Listed(_cached_path(url, objects), frozenset(name for name in names if name and "/" not in name))


def listed_size(path: str | Path) -> int | None:
    """Return the size of a listed file or folder, fetched or not; None for any other path.

    A missing name in a folder that was fetched, such as a chunk of zeros, has size 0.
    """
    home, mark, inside = str(path).partition(_MARK)
    if not mark:
        return None
    key = inside.partition(os.sep)[0]
    is_gone = not os.path.lexists(path) and os.path.lexists(f"{home}{mark}{key}")
    return 0 if is_gone else int(key.partition("-")[0], 16)


def fetch(given: str | Path, keep: Callable[[str], bool] = lambda name: True) -> Path:
    """Return the path on this machine of a path or URL; `keep` selects names below a URL.

    A fetched entry stays in the cache until this process ends. Raises as `list_place` does, and DataError if an object
    changed since it was listed or does not fit into the cache.
    """
    url = url_of(given)
    if url is None or url.startswith("zip://"):
        return unzipped(Path(given))
    objects = [stored for stored in list_objects(url) if not stored.name or keep(stored.name)]
    if not objects:
        raise DataError(expected(url, "folder", "to hold what is wanted of it", "other files"))
    path = _cached_path(url, objects)
    _keep(path, partial(_download, path, objects, show=True))
    return path


def unzipped(place: Path) -> Path:
    """Return the folder of a zip:// URL after unpacking its archive; other paths are returned as they are.

    Raises as `fetch`.
    """
    url = url_of(place)
    if url is None or not url.startswith("zip://"):
        return place
    inner, archive = split_archive(url)
    file = fetch(archive)
    try:
        state = file.stat()
        stamp = _entry(file).name if _is_listed(file) else f"{state.st_mtime_ns} {state.st_ino}"
        with zipfile.ZipFile(file) as opened:
            size = sum(member.file_size for member in opened.infolist())
            path = _cached_path(f"zip://::{archive}", [Stored("all", size, stamp)])
            _keep(path, opened.extractall)
    except (SegmeterError, MemoryError):
        raise
    except Exception as error:  # zipfile and its decompressors raise many types on damaged bytes
        raise DataError(expected(archive, "archive", "to be a ZIP file that can be read", error)) from error
    return path / inner


def fetched(paths: Iterable[Path]) -> ExitStack:
    """Fetch listed files behind URLs, and keep them under their paths until the returned context ends.

    Folders stay until the process ends, because chunks of a Zarr folder are read long after it was opened, and a
    missing chunk would be read as zeros.
    """
    with ExitStack() as stack:
        for path in filter(_is_listed, paths):
            fill = partial(_download, path, ())
            if _entry(path).name.endswith(_FOLDER):
                _keep(path, fill)
            else:
                stack.callback(_release, _pin(path, fill))
        return stack.pop_all()


def fetch_ahead(items: Iterable[Item], files_of: Callable[[Item], Iterable[Path]]) -> Iterator[Item]:
    """Yield items in order while the files of the next ones are fetched. Failures appear when a file is read."""

    def work(item: Item) -> Item:
        with suppress(SegmeterError), fetched(files_of(item)):
            pass
        return item

    rest = iter(items)
    first = list(islice(rest, 1))
    # One item tells for all: folders are behind URLs as a whole, such as that of all predictions.
    if any(_is_listed(path) for item in first for path in files_of(item)):
        yield from map_in_threads(work, chain(first, rest), threads=THREADS, name="fetch")
    else:
        yield from chain(first, rest)


def _cached_path(url: str, objects: Sequence[Stored]) -> Path:
    """Return the path that objects of a URL have once they are fetched."""
    digest = hashlib.sha256(repr((url, objects)).encode("utf-8", "surrogateescape")).hexdigest()[:24]
    kind = "" if objects and not objects[0].name else _FOLDER
    key = f"{sum(stored.size for stored in objects):x}-{digest}{kind}"
    return Path(cache_folder().absolute(), _HOME, key, *on_disk(url).split("/"))


def _is_listed(path: str | Path) -> bool:
    """Tell whether a path stands for a file or folder behind a URL, fetched or not."""
    return _MARK in str(path)


def _entry(path: Path) -> Path:
    home, _, inside = str(path).partition(_MARK)
    return Path(home, _HOME, inside.partition(os.sep)[0])


def _keep(path: Path, fill: Callable[[Path], None]) -> None:
    """Keep the entry of a path until this process ends. If it is missing, `fill` writes it."""
    if _entry(path) not in _kept:
        allow_open_files(_OPEN_FILES)
        handle = _pin(path, fill)
        if _kept.setdefault(_entry(path), handle) != handle:
            os.close(handle)


def _pin(path: Path, fill: Callable[[Path], None]) -> int:
    """Fill an entry if it is missing, and return a handle. The entry stays until the handle is closed."""
    entry = _entry(path)
    handle = None
    with _turns.setdefault(entry.name, threading.Lock()):
        while handle is None:
            if entry.is_dir():
                handle = _lock(entry)
                continue
            try:
                with _reserve(listed_size(path) or 0, origin(path)), fresh_folder(entry) as folder:
                    fill(folder / path.relative_to(entry))
                    if _LOCKS_FOLDERS:  # Windows renames no folder with an open file in it
                        handle = _lock(folder)  # before another thread could delete it as unused
            except OSError:
                if not entry.is_dir():  # otherwise another process was faster
                    raise
                if handle is not None:
                    os.close(handle)
                handle = None
        os.utime(entry)  # used now
        _turns.pop(entry.name, None)
    return handle


def _release(handle: int) -> None:
    os.close(handle)
    with _room:
        _room.notify_all()


def _lock(entry: Path, *, alone: bool = False) -> int | None:
    """Lock an entry, shared or alone. Return None if it is gone, or in use while it should be locked alone."""
    with suppress(FileNotFoundError):
        if not _LOCKS_FOLDERS:
            return os.open(entry / _IN_USE, os.O_RDONLY | os.O_CREAT)  # keeps Windows from renaming it
        import fcntl

        handle = os.open(entry, os.O_RDONLY | os.O_DIRECTORY)
        with suppress(FileNotFoundError, BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB if alone else fcntl.LOCK_SH)
            if os.path.samestat(os.fstat(handle), entry.stat()):  # otherwise it was removed meanwhile
                return handle
        os.close(handle)
    return None


def _download(path: Path, objects: Sequence[Stored], target: Path, *, show: bool = False) -> None:
    """Fetch the objects of an entry; DataError if they differ from those that were listed."""
    entry = _entry(path)
    url = origin(path)
    if not objects:
        objects = list_objects(url) if entry.name.endswith(_FOLDER) else [Stored("", 0, "")]

    def read(stored: Stored) -> Stored:
        file = target / on_disk(stored.name)
        make_folder(file.parent)
        return read_object(f"{url}/{stored.name}" if stored.name else url, file, stored.name)

    if len(objects) == 1:
        received = [read(objects[0])]
    else:
        reads = map_in_threads(read, objects, threads=_THREADS, name="fetch")
        received = list(track(reads, f"fetching {url}", len(objects)) if show else reads)
    if _entry(_cached_path(url, received)) != entry:
        rule, remedy = "to stay what it was when it was listed", "Start again once it is settled."
        raise DataError(expected(url, "object", rule, "another content", remedy))


@contextmanager
def _reserve(size: int, what: str) -> Iterator[None]:
    """Make room for `size` bytes that are written in the block.

    Each process looks through the cache again when an eighth of the room it last saw is used. So several processes may
    exceed the bound slightly, and one alone never does.
    """
    global _incoming_bytes
    with _room:
        while not _fits(size):
            # other threads' files can be deleted once they are fetched and read
            if size > _most_bytes() or (not _room.wait(_PATIENCE) and not _incoming_bytes):
                remedy = "Raise SEGMETER_CACHE_GB, or take a part of the cases with shard=1/N."
                rule = f"to fit into the cache of {_most_bytes() / 1e9:g} GB"
                raise DataError(expected(what, "object", rule, f"{size / 1e9:g} GB", remedy))
        _incoming_bytes += size
    try:
        yield
    finally:
        with _room:
            _incoming_bytes -= size
            _room.notify_all()


def _fits(size: int) -> bool:
    """Tell whether there is room, after deleting unused entries if need be."""
    global _free_bytes
    if _free_bytes >= size:
        _free_bytes -= size
        return True
    bound = _most_bytes()
    entries = sorted(_entries(cache_folder().absolute() / _HOME))
    total = sum(entry_size for _, entry_size, _ in entries) + _incoming_bytes
    for _, entry_size, path in entries if total + size > bound else ():
        if total + size <= _FULL * bound:  # more room than `size` takes, so that the cache is rarely looked through
            break
        if _removed(path):
            total -= entry_size
    _free_bytes = max(0, bound - total - size) // _SHARE
    return total + size <= bound


def _removed(entry: Path) -> bool:
    """Remove an entry, and return whether that was possible: it may be in use, or gone already."""
    if not _LOCKS_FOLDERS:
        with suppress(PermissionError, FileNotFoundError):
            remove(entry.rename(entry.with_name(temporary_name())))
            return True
        return False
    handle = _lock(entry, alone=True)
    if handle is not None:
        remove(entry)
        os.close(handle)
    return handle is not None


def _entries(home: Path) -> Iterator[tuple[float, int, Path]]:
    """Yield the time of last use, size and path of everything that can be deleted."""
    make_folder(home)
    for folder in os.scandir(home):
        with suppress(FileNotFoundError):
            changed = folder.stat().st_mtime
            if not folder.name.startswith(TEMPORARY):
                yield changed, int(folder.name.partition("-")[0], 16), Path(folder)
            elif time.time() - changed > _LEFT_BEHIND:  # left by a killed process
                yield 0.0, 0, Path(folder)


def _most_bytes() -> int:
    """Return the cache's bound: $SEGMETER_CACHE_GB, by default 20; ConfigError if it is not a number above 0."""
    given = os.environ.get("SEGMETER_CACHE_GB", "20")
    with suppress(ValueError):
        if 0 < float(given) < 1e9:
            return int(float(given) * 1e9)
    rule = "to be the size of the cache of fetched files in GB, above 0"
    raise ConfigError(expected("config", "SEGMETER_CACHE_GB", rule, repr(given)))
