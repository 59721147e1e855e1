"""URL -> the objects below it: listed, read and written through fsspec, again and again where a connection is lost."""

import logging
import os
import re
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from segmeter.checks import expected
from segmeter.errors import ConfigError, DataError, RunError
from segmeter.parallel import map_in_threads
from segmeter.progress import Pulse
from segmeter.remote.urls import file_of, split_archive
from segmeter.remote.zarr_names import THREADS, zarr_names

Result = TypeVar("Result")

WAITS = (0.5, 1.0, 2.0, 4.0, 8.0)  # seconds before each further attempt
_PIECE = 1 << 23  # bytes read at a time
MOST_OBJECTS = 5_000_000  # of a listing: their names and states take some gigabytes
_MOST_METADATA = 1 << 26  # bytes of one file of metadata
_STAMPS = ("e_tag", "ETag", "etag", "version", "last_modified", "LastModified", "mtime", "CRC", "created")
_FINAL = (
    *(FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, NotImplementedError),
    *(zipfile.BadZipFile, zlib.error),  # of an archive, which is of this machine by then
)
_REFUSED = re.compile(r"status code: 4(?!08|09|25|29)\d\d.*<Code>(?!RequestTimeout)")  # asking again changes nothing
_TOLD = re.compile(r"<Code>(\w+)</Code>\s*<Message>([^<]*)</Message>")  # by S3 and those that speak like it
_DENIED = ("UnauthenticatedError", "PermissionDeniedError", "NotFoundError", "InvalidPathError", "NotSupportedError")

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stored:
    """One object: its name below the URL, its size, and what its store calls this content; "" where that says nothing.

    `name` is "" where the URL is the object itself.
    """

    name: str
    size: int
    stamp: str


class Store:
    """The objects below a URL. Make one with `store_at`."""

    def __init__(self, url: str, files: Any, root: str, *, bucket: Any = None) -> None:
        self.url = url
        self._files = files
        self._root = root.rstrip("/")
        self._bucket = bucket  # of obstore, which lists page by page

    def objects(self) -> list[Stored]:
        """All objects below the URL, or the one that it is, by name; none where there is nothing.

        Raises
        ------
        DataError
            A name would lead out of the folder, or the listing does not end.
        RunError
            The store can't be reached.
        """
        return attempt(self.url, self._list)

    def look(self, name: str) -> Stored | None:
        """What is stored under a name now, or None where there is nothing.

        Raises
        ------
        DataError
            It may not be read, so that nobody can tell.
        RunError
            The store can't be reached.
        """
        try:
            info = attempt(self.place(name), lambda: self._info(self._path(name)))
        except DataError as error:
            if isinstance(error.__cause__, FileNotFoundError) or type(error.__cause__).__name__ == "NotFoundError":
                return None
            raise
        return None if info["type"] == "directory" else _stored(name, info)

    def read(self, name: str, size: int) -> Iterator[bytes]:
        """The content of an object, in pieces; one attempt."""
        path = self._path(name)
        if size <= _PIECE:
            yield self._files.cat_file(path)
            return
        with self._files.open(path, "rb") as file:
            while piece := file.read(_PIECE):
                Pulse.beat()
                yield piece

    def write(self, name: str, source: Path) -> None:
        """Store a file under a name."""
        size = source.stat().st_size

        def put() -> None:
            self._files.put_file(str(source), self._path(name))
            self._files.invalidate_cache()
            found = self._files.info(self._path(name))
            if found["size"] != size:
                raise OSError(f"{found['size']} of {size} bytes arrived")

        attempt(self.place(name), put)

    def place(self, name: str) -> str:
        """An object's own URL, for messages."""
        archive = split_archive(self.url)
        if archive is not None and name:
            return f"zip://{'/'.join(part for part in (archive[0], name) if part)}::{archive[1]}"
        return f"{self.url}/{name}" if name else self.url

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def _content(self, name: str) -> bytes | None:
        """All bytes of a file of metadata; None where there is none."""
        found = self.look(self._plain(name))
        if found is None:
            return None
        if found.size > _MOST_METADATA:
            raise DataError(expected(self.place(name), "metadata", f"of at most {_MOST_METADATA} bytes", found.size))
        return attempt(self.place(name), lambda: b"".join(self.read(name, found.size)))

    def _named(self) -> list[Stored]:
        """What a web server, which lists nothing, has of a Zarr folder: its metadata say which names there may be."""
        names = sorted(map(self._plain, zarr_names(self.url, self._content)))
        return [each for each in map_in_threads(self.look, names, threads=THREADS, name="look") if each is not None]

    def _list(self) -> list[Stored]:
        self._files.invalidate_cache()
        if self.url.startswith(("http://", "https://")) and self.url.endswith(".zarr"):
            return self._named()
        try:
            info = self._info(self._root) if "/" in self._root else {"type": "directory"}  # else all of a bucket
        except FileNotFoundError:
            return []
        if info["type"] != "directory":
            return [_stored("", info)]
        names = self._found()
        folders = {str(above) for name in names for above in PurePosixPath(name).parents}
        return [
            _stored(self._plain(name), names[name])
            for name in sorted(names)
            if name and not (names[name]["size"] == 0 and name.rstrip("/") in folders)  # what consoles make of a folder
        ]

    def _found(self) -> dict[str, dict[str, Any]]:
        """What the store says of everything below the root, by name; a listing that does not end is refused."""
        if self._bucket is None:
            found = self._files.find(self._root, detail=True)
            start = f"{self._root}/" if self._root else ""
            return {path.removeprefix(start): each for path, each in found.items() if path.startswith(start)}
        inner = _split_path(self._root)[1]
        names = dict[str, dict[str, Any]]()
        for page in self._bucket.list(inner or None):
            fresh = {each["path"].removeprefix(inner).removeprefix("/"): each for each in page}
            if len(names) + len(fresh) > MOST_OBJECTS or fresh.keys() & names.keys():
                given = f"{len(names)} and no end, the last of them {page[-1]['path']!r}"
                remedy = "Name a folder further in, or see what the server lists."
                raise DataError(
                    expected(self.url, "objects", f"to be at most {MOST_OBJECTS}, each once", given, remedy)
                )
            names |= fresh
        return names

    def _info(self, path: str) -> dict[str, Any]:
        if self._bucket is not None:
            inner = _split_path(path)[1]
            try:
                return {**self._bucket.head(inner), "type": "file"}
            except FileNotFoundError:
                if next(iter(self._bucket.list(inner, chunk_size=1)), None):  # raises where there is no such bucket
                    return {"type": "directory"}
                raise
        try:
            found: dict[str, Any] = self._files.info(path)
        except Exception as error:
            if "PROPFIND" in str(error):  # asked of a web server that has no such file, whether it is a folder
                raise FileNotFoundError(path) from error
            raise
        return found

    def _plain(self, name: str) -> str:
        parts = PurePosixPath(name).parts
        if ".." in parts or name.startswith("/") or "\0" in name or "//" in name or "/".join(parts) != name:
            rule = "to have names that can be those of files"
            raise DataError(expected(self.url, "objects", rule, ascii(name), "Rename the object."))
        return name


def store_at(url: str, archive: Path | None = None) -> Store:
    """Open the store that a URL names.

    Parameters
    ----------
    url
        From `url_of`.
    archive
        The file that a zip:// URL names as its archive.

    Raises
    ------
    ConfigError
        A package is not installed, or the URL can't be one.
    DataError
        The archive can't be read.
    """
    known = split_archive(url)
    if known is not None:
        inner, outer = known
        return Store(url, attempt(outer, lambda: _files("zip", fo=str(archive), skip_instance_cache=True)), inner)
    scheme, _, rest = url.partition("://")
    if scheme == "file":
        return Store(url, _files("file", auto_mkdir=True), str(file_of(url)))
    if scheme == "memory":
        return Store(url, _files("memory"), f"/{rest}")
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    plain = scheme == "http" or (scheme == "s3" and endpoint.startswith("http://"))  # because the user says so
    options = {"timeout": "60s", "connect_timeout": "10s", **({"allow_http": True} if plain else {})}
    store = _needed("obstore.fsspec").FsspecStore
    # the retries are ours: they name the object, and what is lost is told from what is not there
    files = store(scheme, client_options=options, retry_config={"max_retries": 0}, skip_instance_cache=True)
    files._split_path = _split_path
    listed = None if scheme.startswith("http") else files._construct_store(_split_path(rest)[0])
    return Store(url, files, rest, bucket=listed)


def _split_path(path: str) -> tuple[str, str]:
    """Bucket or host, and the path there; obstore's own takes "host:8443/a" for a URL of the scheme "host"."""
    root, _, inner = path.partition("/")
    return root, inner


def attempt(what: str, work: Callable[[], Result]) -> Result:
    """Do something with an object, up to six times where the fault may pass.

    Raises
    ------
    DataError
        It is not there, or may not be read.
    RunError
        It failed again and again.
    """
    for wait in (*WAITS, None):
        try:
            return work()
        except (ConfigError, DataError, RunError):
            raise
        except Exception as error:  # each store raises its own types
            text = " ".join(str(error).split())
            told = _TOLD.search(text)
            reason = ": ".join(told.groups()) if told else text[:200] or type(error).__name__
            if isinstance(error, _FINAL) or type(error).__name__ in _DENIED or _REFUSED.search(text):
                raise DataError(expected(what, "object", "to be there and readable", reason)) from error
            if wait is None:
                remedy = "See whether the connection holds, then start again: what was fetched is kept."
                line = f"{what}: can't be read or written, after {len(WAITS) + 1} attempts ({reason}). {remedy}"
                raise RunError(line) from error
            _LOG.warning("%s: %s; trying again in %g s.", what, reason, wait)
            time.sleep(wait)
    raise AssertionError("unreachable")


def _stored(name: str, info: dict[str, Any]) -> Stored:
    stated = next(((key, info[key]) for key in _STAMPS if info.get(key) is not None), None)
    if stated is None:
        return Stored(name, int(info["size"] or 0), "")
    key, value = stated
    return Stored(name, int(info["size"] or 0), f"{key}={getattr(value, 'timestamp', lambda: value)()}")


def _files(scheme: str, **options: Any) -> Any:
    return _needed("fsspec").filesystem(scheme, **options)


def _needed(package: str) -> Any:
    try:
        return import_module(package)
    except ImportError as error:
        remedy = "pip install 'segmeter[s3]'"
        raise ConfigError(expected("config", package, "to be installed to read URLs", f"{error}", remedy)) from error
