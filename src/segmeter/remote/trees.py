"""URL -> a local path that stands for it: a folder of links, whose objects are fetched when they are first opened.

A link leads to a file in the folder's cache of objects. Its name says the size and a hash of what the store called the
content when the folder was listed, so that another content under the same name is noticed, and is another file. A file
that is not here yet, or that the cache gave up, is missing: nothing can be read in its place.
"""

import hashlib
import os
import re
import stat
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from uuid import uuid4

from filelock import FileLock

from segmeter.checks import expected
from segmeter.errors import DataError
from segmeter.files import atomic_write, make_folder, remove, sha256_file, write_bytes
from segmeter.remote.cache import HOME, OBJECTS, SUM, WHOLE, Room, cache_folder, most_bytes, room_of
from segmeter.remote.stores import Store, Stored, attempt, store_at
from segmeter.remote.urls import file_of, split_archive, url_of

_MARK = f"/{HOME}/"
URL = "url"  # in the folder of objects: where they come from
_KEY = re.compile(r"([0-9a-f]+)-[0-9a-f]{32}")
_ATTEMPTS = 5  # to open a file that other processes push out of a cache that is too small

_checked: set[str] = set()  # objects whose content this process has compared with its hash


def local_path(given: str | Path) -> Path:
    """The path that stands for what was given: itself, or for a URL one whose files are fetched when they are opened.

    Parameters
    ----------
    given
        A path, or the URL of a file or folder. A folder is listed now, and only that.

    Raises
    ------
    ConfigError
        It is a URL that can't be used.
    DataError
        There is nothing, or something that can't be read so.
    RunError
        The store can't be reached.
    """
    url = url_of(given)
    if url is None:
        return Path(given)
    archive = split_archive(url)
    if archive is None and file_of(url) is not None:
        return file_of(url) or Path(given)
    listed = list_objects(url)
    if listed[0].name:
        tree = _tree(url)
        _refresh(tree, url, listed)
        return tree
    parent, name = _above(url)
    tree = _tree(parent)
    _refresh(tree, parent, [Stored(name, listed[0].size, listed[0].stamp)], only=True)
    present(tree / name)  # who reads one file may open it in any way
    return tree / name


@lru_cache(maxsize=16)
def open_store(url: str) -> Store:
    """Open the store that a URL names, and fetch the archive of a zip:// URL; raises as `store_at` and `local_path`."""
    archive = split_archive(url)
    return store_at(url, None if archive is None else local_file(archive[1]))


def local_file(given: str | Path) -> Path:
    """The file that a path or URL stands for, fetched."""
    path = local_path(given)
    present(path)
    return path


def present(path: Path) -> None:
    """Fetch the object that a path stands for, where it is not here; nothing happens for all other paths.

    Raises
    ------
    DataError
        It is gone, or is no longer what was listed.
    RunError
        It can't be fetched.
    """
    found = _link(path)
    if found is None:
        return
    tree, key = found
    target = tree / OBJECTS / key
    if str(target) in _checked:
        with suppress(FileNotFoundError):  # else the cache gave it up
            os.utime(target)  # used now
            return
    if not _is_whole(target):
        store, name = open_store((tree / OBJECTS / URL).read_text("utf-8")), str(path.relative_to(tree))
        with cache_room().reserve(size_of(key), store.place(name)):
            write_bytes(target.with_name(key + SUM), fetch_object(store, name, key, target).encode())
    _checked.add(str(target))


def open_present(path: Path, flags: int) -> int:
    """`os.open` of a path whose object is fetched first where it stands for one."""
    for _ in range(_ATTEMPTS):
        present(path)
        try:
            return os.open(path, flags)
        except FileNotFoundError:  # the cache gave it up just now
            if _link(path) is None:
                raise
    raise DataError(expected(str(path), "file", "to stay in the cache", "none", "Raise SEGMETER_CACHE_GB."))


def is_remote(path: Path) -> bool:
    """Whether a path stands for a URL."""
    return _MARK in str(path)


def origin(path: Path) -> str:
    """The URL that a path stands for, or the path itself."""
    text = str(path)
    if _MARK not in text:
        return text
    home, _, inside = text.partition(_MARK)
    parts = inside.split("/")
    whole = parts[0] == WHOLE
    kept = Path(home, HOME, *parts[:2], URL) if whole else Path(home, HOME, *parts[:2], OBJECTS, URL)
    try:
        url = kept.read_text("utf-8")
    except OSError:
        return text
    place, chain, archive = url.partition("::")
    return "/".join([place.removesuffix("/"), *parts[3 if whole else 2 :]]) + chain + archive


def stored_size(path: Path) -> int:
    """Bytes of a file, which is not fetched for that."""
    found = _link(path)
    return path.stat().st_size if found is None else size_of(found[1])


def stored_state(path: str | Path) -> tuple[int, int, int, int] | None:
    """What stands for the state of an object, or of a folder of them, equal while it is the same.

    None for what is of this machine.
    """
    if _MARK not in str(path):
        return None
    found = _link(Path(path))
    below = {} if found else keys_below(Path(path))
    if found is None and not below:
        return None
    text = found[1].partition("-")[2] if found else hashlib.sha256(repr(below).encode()).hexdigest()[:32]
    digest, size = int(text, 16), size_of(found[1]) if found else sum(map(size_of, below.values()))
    return size, digest & (2**60 - 1), 0, digest >> 68  # the second is a time, and long past


def read_state(path: str | Path) -> tuple[int, int, int, int]:
    """Size, modification and status change in nanoseconds, and inode; zeros where there is no such file.

    Of a folder, such as a Zarr array, the sizes of its files together, their latest changes, and their number.
    """
    known = stored_state(path)
    if known is not None:
        return known
    try:
        found = os.stat(path)  # noqa: PTH116 - of a hundred thousand files, without their Path objects
        if stat.S_ISDIR(found.st_mode):
            states = [each.stat() for each in Path(path).rglob("*")]
            latest = [max(getattr(each, name) for each in (found, *states)) for name in ("st_mtime_ns", "st_ctime_ns")]
            return sum(each.st_size for each in states), latest[0], latest[1], len(states)
    except OSError:
        return (0, 0, 0, 0)
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino & (2**63 - 1)


def keys_below(path: Path) -> dict[str, str]:
    """Name -> key of the objects below a folder that stands for a part of a URL, by name; none for other folders."""
    text = str(path)
    if _MARK not in text or f"{_MARK}{WHOLE}/" in text:
        return {}
    found = {str(file.relative_to(path)): _link(file) for file in sorted(_links(path))}
    return {name: link[1] for name, link in found.items() if link is not None}


def is_listed(path: Path) -> bool:
    """Whether a path stands for an object, fetched or not."""
    return _link(path) is not None


def _link(path: Path) -> tuple[Path, str] | None:
    """The tree that a path is in, and the key of the object that it leads to; None where it is no link of ours."""
    text = str(path)
    if _MARK not in text:
        return None
    try:
        key = os.path.basename(os.readlink(path))  # noqa: PTH115, PTH119 - of a hundred thousand files
    except OSError:
        return None
    return (tree_of(path), key) if _KEY.fullmatch(key) else None


def list_objects(url: str) -> list[Stored]:
    """What is below a URL; raises as `local_path` does."""
    if split_archive(url) is not None:
        open_store.cache_clear()  # the archive may have changed since this process opened it
    listed = open_store(url).objects()
    if not listed:
        raise DataError(expected(url, "folder", "to hold something", "nothing there"))
    names = {each.name for each in listed}
    ours = next((name for name in sorted(names) if name.partition("/")[0] == OBJECTS), None)
    if ours:
        raise DataError(expected(url, "names", f"not to begin with {OBJECTS}", repr(ours), "Rename the object."))
    both = next((part for each in listed for part in map(str, Path(each.name).parents) if part in names), None)
    if both:
        raise DataError(expected(url, "names", "to be files or folders", f"both of {both!r}"))
    return listed


def cache_home() -> Path:
    """The folder that holds everything fetched."""
    return cache_folder().absolute() / HOME


def cache_room() -> Room:
    """What bounds it."""
    return room_of(cache_home(), most_bytes())


def _tree(url: str) -> Path:
    """The folder that stands for a URL; its name is the last of the URL's."""
    place, _, archive = url.partition("::")
    name = place.partition("://")[2].rpartition("/")[2] or Path(archive).stem or "root"
    return cache_home() / digest_of(url) / name.replace(":", "-")


def _above(url: str) -> tuple[str, str]:
    """The URL of the folder that holds a file, and the file's name."""
    place, chain, archive = url.partition("::")
    scheme, _, rest = place.partition("://")
    above, _, name = rest.rpartition("/")
    return f"{scheme}://{above}{chain}{archive}", name


def digest_of(text: str) -> str:
    """What names a URL, or a listing, in the cache."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:20]


def key_of(each: Stored) -> str:
    """Size, and a hash of name and state; where a store can't tell contents apart, one that is never had again."""
    stamp = each.stamp or uuid4().hex
    digest = hashlib.sha256(f"{stamp} {each.name}".encode("utf-8", "surrogateescape")).hexdigest()
    return f"{each.size:x}-{digest[:32]}"


def tree_of(path: Path) -> Path:
    """The folder that stands for the whole URL that was listed, where `path` is that or is below it."""
    home, _, inside = str(path).partition(_MARK)
    return Path(home, HOME, *inside.split("/", 2)[:2])


def size_of(key: str) -> int:
    """Bytes of the object of a key."""
    return int(key.partition("-")[0], 16)


def _refresh(tree: Path, url: str, listed: Sequence[Stored], *, only: bool = False) -> None:
    """Let the links of a tree be those of the listing; with `only`, others stay."""
    make_folder(tree / OBJECTS)
    if not (tree / OBJECTS / URL).is_file():
        write_bytes(tree / OBJECTS / URL, url.encode())
    with FileLock(tree / OBJECTS / ".lock", fallback_to_soft=False):
        have = {str(path.relative_to(tree)): str(path.readlink()) for path in _links(tree)}
        wanted = {each.name: "../" * each.name.count("/") + f"{OBJECTS}/{key_of(each)}" for each in listed}
        for name in have.keys() - wanted.keys() if not only else ():
            remove(tree / name)
            for parent in (tree / name).parents[: name.count("/")]:
                with suppress(OSError):  # it holds something
                    parent.rmdir()
        for parent in sorted({(tree / name).parent for name in wanted}):
            make_folder(parent)
        for name, target in wanted.items():
            if have.get(name) != target:
                _replace(tree / name, target)


def _links(tree: Path) -> list[Path]:
    return [Path(folder, name) for folder, _, names in os.walk(tree) if folder != str(tree / OBJECTS) for name in names]


def _replace(link: Path, target: str) -> None:
    """Make a link, without the sync of `files.point`: a cache may be lost, and a hundred thousand syncs are slow."""
    fresh = link.with_name(f".tmp-{os.getpid()}-{threading.get_ident()}")
    fresh.symlink_to(target)
    fresh.replace(link)


def _is_whole(target: Path) -> bool:
    """Whether an object lies in the cache as it was fetched; what does not is removed."""
    try:
        known = target.with_name(target.name + SUM).read_text("ascii")
        if stat.S_ISREG(target.stat().st_mode) and sha256_file(target) == known:
            return True
        remove(target)
    except (OSError, ValueError):
        return False
    return False


def fetch_object(store: Store, name: str, key: str, target: Path) -> str:
    """Write an object to a file, which appears whole; its sha256.

    The store is asked again once the object is read: what has still the listed state then had it all the while.
    """

    def fetch() -> str:
        digest, size = hashlib.sha256(), 0
        with atomic_write(target) as file:
            for piece in store.read(name, size_of(key)):
                file.write(piece)
                digest.update(piece)
                size += len(piece)
            now = store.look(name)
            if now is None or size != size_of(key) or now.size != size or (now.stamp and key_of(now) != key):
                rule, remedy = "to stay what it was when it was listed", "Start again once it is settled."
                raise DataError(expected(store.place(name), "object", rule, "another content", remedy))
        return digest.hexdigest()

    return attempt(store.place(name), fetch)
