"""URL -> a folder of this machine with everything in it, kept until the process ends: runs, checkpoints, Zarr."""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from filelock import FileLock

from segmeter.files import fresh_folder, make_folder, write_bytes
from segmeter.parallel import map_in_threads
from segmeter.progress import track
from segmeter.remote.cache import OBJECTS, WHOLE, hold
from segmeter.remote.stores import Store
from segmeter.remote.trees import (
    URL,
    cache_home,
    cache_room,
    digest_of,
    fetch_object,
    key_of,
    keys_below,
    list_objects,
    local_file,
    local_path,
    open_store,
    origin,
    size_of,
    tree_of,
)
from segmeter.remote.urls import file_of, split_archive, url_of

_THREADS = 8  # that fetch a folder: most of the time they wait


def local_folder(given: str | Path, keep: Callable[[str], bool] = lambda name: True) -> Path:
    """The folder, or file, that a path or URL stands for, with everything in it: for runs and checkpoints.

    Parameters
    ----------
    given
        A path or URL.
    keep
        Which names below the URL are wanted.

    Raises
    ------
    ConfigError, DataError, RunError
        As `local_path`; or an object changed since it was listed.
    """
    url = url_of(given)
    if url is None or (split_archive(url) is None and file_of(url) is not None):
        return local_path(given)
    listed = [each for each in list_objects(url) if keep(each.name) or not each.name]
    if listed and not listed[0].name:
        return local_file(given)
    return _fetched(url, {each.name: key_of(each) for each in listed}, listed_at=url)


def present_folder(path: Path) -> Path:
    """The folder that one below a `local_path` stands for, with all objects that were listed; others are themselves.

    What may lack files, as Zarr lacks chunks of zeros, can only be read so: one that is absent was not listed either.

    Raises
    ------
    DataError
        An object is gone, or is no longer what was listed; or they do not fit into the cache.
    RunError
        One can't be fetched.
    """
    keys = keys_below(path)
    if not keys:
        return path
    tree = tree_of(path)
    below = "" if path == tree else f"{path.relative_to(tree)}/"
    return _fetched(origin(path), keys, listed_at=(tree / OBJECTS / URL).read_text("utf-8"), below=below, quiet=True)


def _fetched(url: str, keys: Mapping[str, str], *, listed_at: str, below: str = "", quiet: bool = False) -> Path:
    """All objects of a listing, of which `below` starts the names where it was made, as files in one folder."""
    named = "\n".join(f"{name} {key}" for name, key in keys.items())
    name = url.partition("::")[0].rpartition("/")[2].replace(":", "-") or "root"
    folder = cache_home() / WHOLE / digest_of(f"{url}\n{named}") / name
    hold(folder.parent)  # first, so that no other process removes what is found
    with FileLock(folder.parent / ".lock", fallback_to_soft=False):  # others that want it too wait for the first
        if not folder.is_dir():
            with cache_room().reserve(sum(map(size_of, keys.values())), url):
                write_bytes(folder.parent / URL, url.encode())
                with fresh_folder(folder) as fresh:
                    fetched = _fetch(open_store(listed_at), keys, below, fresh)
                    for _ in fetched if quiet else track(fetched, f"fetching {url}", len(keys)):
                        pass
        os.utime(folder.parent)
    return folder


def _fetch(store: Store, keys: Mapping[str, str], below: str, folder: Path) -> Iterator[str]:
    for parent in sorted({(folder / name).parent for name in keys}):
        make_folder(parent)

    def fetch(name: str) -> str:
        return fetch_object(store, below + name, keys[name], folder / name)

    yield from map_in_threads(fetch, keys, threads=_THREADS, name="fetch")
