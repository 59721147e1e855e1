"""Lists, reads and writes the objects behind URLs through obstore.

Failed requests are repeated if the fault may be temporary, so that a lost connection does not end a long run.
"""

import logging
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from segmeter.checks import expected
from segmeter.errors import ConfigError, DataError, RunError, SegmeterError
from segmeter.files import TEMPORARY, atomic_write
from segmeter.parallel import map_in_threads
from segmeter.progress import track
from segmeter.records import RUN

Result = TypeVar("Result")

SCHEMES = ("s3", "gs", "az", "https", "http", "zip", "file", "memory")
WAITS = (0.5, 1.0, 2.0, 4.0, 8.0)  # seconds before each further retry
THREADS = 16  # which mostly wait for the store
MOST_OBJECTS = 5_000_000  # of a listing, whose names and states take some gigabytes

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.*)", re.DOTALL)
_INSIDE = re.compile(rf"(?:.*?/)??((?:{'|'.join(SCHEMES)}):/.*)", re.DOTALL)
_MEMBER = re.compile(r"(.*?)::(.+?\.zip)(?:/(.*))?", re.DOTALL | re.IGNORECASE)
_LOGIN = re.compile(r":.*@", re.DOTALL)  # a password may hold slashes
_PORT = re.compile(r"^([^/:@]+):\d+(?=/|$)")
# Repeating such a request changes nothing
_REFUSED = re.compile(r"status code: 4(?!08|09|25|29)\d\d.*<Code>(?!RequestTimeout)")
_TOLD = re.compile(r"<Code>(\w+)</Code>\s*<Message>([^<]*)</Message>")  # as S3 and similar servers answer
_DENIED = ("UnauthenticatedError", "PermissionDeniedError", "NotFoundError", "InvalidPathError", "NotSupportedError")
# Signs that Windows allows in no name of a file, and what stands for them there, as Cygwin and WSL do it
_ON_DISK = {} if hasattr(os, "O_DIRECTORY") else {ord(sign): 0xF000 + ord(sign) for sign in '<>:"|?*'}
_START = uuid4().hex  # replaces a missing state, so such objects are fetched again at each start

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stored:
    """An object: its name below the URL ("" for the URL's own object), its size, and its ETag or time of change."""

    name: str
    size: int
    stamp: str


def url_of(given: str | Path) -> str | None:
    """Return the URL that a path was given as, or None for a path of this machine.

    Raises
    ------
    ConfigError
        Its scheme is not one of `SCHEMES`, or it contains a login or signature, which would end up in records.

    Examples
    --------
    >>> url_of("data/camvid"), url_of("s3://bucket/camvid/"), url_of(Path("s3://bucket/camvid"))
    (None, 's3://bucket/camvid', 's3://bucket/camvid')
    >>> url_of(Path("zip://train::s3://bucket/all.zip") / "images")
    'zip://train/images::s3://bucket/all.zip'
    """
    match = _URL.fullmatch(given.as_posix() if isinstance(given, Path) else given)
    if match is None:
        return None
    scheme, rest = match[1].lower(), match[2].rstrip("/")
    if scheme not in SCHEMES:
        rule = f"to be a path, or a URL of {', '.join(SCHEMES)}"
        raise ConfigError(expected("config", "path", rule, f"{scheme}://..."))
    if scheme == "zip":
        inner, archive = split_archive(f"zip://{rest}")
        return f"zip://{inner}::{url_of(archive) or archive}"
    login = "@" in rest.partition("/")[0] or _LOGIN.search(_PORT.sub(r"\1", rest))
    if scheme not in ("file", "memory") and (login or {"?", "#"} & set(rest)):
        ways = "AWS_ACCESS_KEY_ID, GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_CONNECTION_STRING, ..."
        remedy = f"Give credentials by the environment ({ways})."
        rule = "to be without a login or a signature (@ after a colon, ? or #), as records keep paths"
        raise ConfigError(expected("config", "path", rule, f"one in {scheme}://...", remedy))
    return f"file:///{rest}" if scheme == "file" else f"{scheme}://{rest}"


def split_archive(url: str) -> tuple[str, str]:
    """Split a zip:// URL into the place inside the archive, and the archive.

    Examples
    --------
    >>> split_archive("zip://train::s3://bucket/all.zip"), split_archive("zip://train::all.zip/images")
    (('train', 's3://bucket/all.zip'), ('train/images', 'all.zip'))
    """
    match = _MEMBER.fullmatch(url.removeprefix("zip://"))
    if match is None:
        remedy = "Write zip://FOLDER::s3://BUCKET/ALL.zip, or zip://FOLDER::PATH/ALL.zip."
        raise ConfigError(expected("config", "path", "to name an archive, .zip, after ::", url, remedy))
    return "/".join(part for part in (match[1].strip("/"), match[3]) if part), match[2]


def on_disk(name: str) -> str:
    """Return the name that a URL or an object has in the cache; the same on all systems but Windows."""
    return name.translate(_ON_DISK)


def origin(path: str | Path) -> str:
    """Return the URL that a path of the cache was fetched from; other paths are returned as they are."""
    text = str(path)
    place = text.replace(os.sep, "/").translate({there: sign for sign, there in _ON_DISK.items()})
    match = _INSIDE.fullmatch(place) if ":/" in place else None
    try:
        return (match and url_of(match[1])) or text
    except SegmeterError:  # a folder of this machine with the name of a scheme
        return text


def list_objects(url: str) -> list[Stored]:
    """List all objects below a URL, or its own object, ordered by name.

    Raises
    ------
    DataError
        Nothing is there, or the listing does not end.
    RunError
        The store can't be reached.
    """

    def look(store: Any, inner: str) -> list[Stored]:
        found = dict[str, Stored]()
        for page in store.list(inner or None):
            fresh = {name: _stored(name, each) for each in page if (name := each["path"][len(inner) :].lstrip("/"))}
            if len(found) + len(fresh) > MOST_OBJECTS or fresh.keys() & found.keys():
                given = f"{len(found)} and no end, the last of them {page[-1]['path']!r}"
                remedy = "Name a folder further in, or see what the server lists."
                raise DataError(expected(url, "objects", f"to be at most {MOST_OBJECTS}, each once", given, remedy))
            found |= fresh
        return list(found.values())

    found = find_object(url) if "/" in url.partition("://")[2] else None
    listed = [found] if found else []
    if not found and not url.startswith("http"):  # a web server lists nothing
        listed = sorted(retry(url, look), key=lambda each: each.name)
    if not listed:
        remedy = "A web server lists nothing: name a file, or zip://FOLDER::URL." if url.startswith("http") else ""
        raise DataError(expected(url, "folder", "to hold something", "nothing there", remedy))
    folders = {each.name[:end] for each in listed for end, mark in enumerate(each.name) if mark == "/"}
    return [each for each in listed if each.size or each.name not in folders]  # consoles create markers for folders


def find_object(url: str) -> Stored | None:
    """Return the object of a URL itself, or None. Raises as `list_objects` does."""

    def look(store: Any, inner: str) -> Stored | None:
        try:
            return _stored("", store.head(inner))
        except FileNotFoundError:
            if not url.startswith("http"):
                next(iter(store.list(inner, chunk_size=1)), None)  # raises where there is no such bucket
            return None

    return retry(url, look)


def read_object(url: str, target: Path, name: str = "") -> Stored:
    """Write the object of a URL to a file, which appears as a whole; raises as `list_objects` does."""

    def read(store: Any, inner: str) -> Stored:
        got = store.get(inner)
        with atomic_write(target) as file:
            for piece in got.stream():
                file.write(piece)
            if file.tell() != got.meta["size"]:
                raise OSError(f"{file.tell()} of {got.meta['size']} bytes arrived")
        return _stored(name, got.meta)

    return retry(url, read)


def write_object(url: str, source: Path) -> None:
    """Store a file at a URL; raises as `list_objects` does."""
    retry(url, lambda store, inner: store.put(inner, source))


def _stored(name: str, meta: Any) -> Stored:
    changed = meta["last_modified"].timestamp()  # 0 if a web server does not say
    return Stored(name, int(meta["size"]), str(meta["e_tag"] or changed or _START))


@cache
def open_bucket(scheme: str, host: str) -> Any:
    """Open the bucket or host of a URL; ConfigError where obstore is not installed."""
    try:
        stores = import_module("obstore.store")
    except ImportError as error:
        remedy = "pip install 'segmeter[s3]'"
        raise ConfigError(expected("config", "obstore", "to be installed to read URLs", f"{error}", remedy)) from error
    if scheme in ("file", "memory"):
        return stores.LocalStore() if scheme == "file" else stores.MemoryStore()
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    plain = scheme == "http" or (scheme == "s3" and endpoint.startswith("http://"))  # if the user says so
    client = {"timeout": "60s", "connect_timeout": "10s", **({"allow_http": True} if plain else {})}
    # `retry` repeats requests, names the object, and tells lost connections from missing objects
    options = {"client_options": client, "retry_config": {"max_retries": 0}}
    if scheme.startswith("http"):
        return stores.HTTPStore.from_url(f"{scheme}://{host}", **options)
    return {"s3": stores.S3Store, "gs": stores.GCSStore, "az": stores.AzureStore}[scheme](host, **options)


def retry(url: str, work: Callable[[Any, str], Result]) -> Result:
    """Call a function with the bucket or host of a URL and the place there, up to six times if its faults may be
    temporary.

    Raises
    ------
    DataError
        The object is not there, or may not be read.
    RunError
        All attempts failed.
    """
    scheme, _, rest = url.partition("://")
    host, _, inner = rest.partition("/")
    store = open_bucket(scheme, host)
    for wait in (*WAITS, None):
        try:
            return work(store, inner)
        except SegmeterError:
            raise
        except Exception as error:  # every store raises its own types
            text = " ".join(str(error).split()).partition(" Debug source:")[0]
            told = _TOLD.search(text)
            reason = ": ".join(told.groups()) if told else text[:200] or type(error).__name__
            final = isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError | ValueError)
            if final or type(error).__name__ in _DENIED or _REFUSED.search(text):
                raise DataError(expected(url, "object", "to be there and readable", reason)) from error
            if wait is None:
                remedy = "See whether the connection holds, then start again: what was fetched is kept."
                said = f"can't be read or written, after {len(WAITS) + 1} attempts ({reason})"
                raise RunError(f"{url}: {said}. {remedy}") from error
            _LOG.warning("%s: %s; trying again in %g s.", url, reason, wait)
            time.sleep(wait)
    raise AssertionError("unreachable")


def check_target(given: str) -> None:
    """Refuse a URL that folders can't be copied to, before any work is lost.

    Raises
    ------
    ConfigError
        It is not a URL, or one of an archive or a web server.
    DataError
        There is no such bucket, or it may not be read.
    RunError
        The store can't be reached.
    """
    url = url_of(given)
    if url is None or url.startswith(("zip", "http")):
        rule = "to be a URL that can be written: s3://, gs://, az://, file:// or memory://"
        raise ConfigError(expected("config", "run.copy_to", rule, given))
    find_object(f"{url}/{RUN}")


def upload_folder(folder: Path, given: str, *, name: str) -> str:
    """Copy a folder to a URL, and return the URL of the copy. `RUN` comes last, because readers look for it first.

    Parameters
    ----------
    folder
        Hidden files are not copied; see `find_files` for links.
    given
        The URL of the folder that receives it.
    name
        The name of the copy.

    Raises
    ------
    ConfigError
        A run of this name is there.
    RunError
        The folder holds something that is not copied, or a file can't be written after several attempts.
    """
    url = f"{url_of(given)}/{name}"
    if find_object(f"{url}/{RUN}") is not None:
        raise ConfigError(expected("config", "run.copy_to", "to hold no run of this name", url))
    files = find_files(folder)
    last = files.pop(RUN, None)
    written = map_in_threads(lambda each: write_object(f"{url}/{each}", files[each]), sorted(files), threads=THREADS)
    for _ in track(written, "copying", len(files)):
        pass
    if last is not None:
        write_object(f"{url}/{RUN}", last)
    return url


def find_files(folder: Path) -> dict[str, Path]:
    """Find the files of a run, by their names in its copy.

    A link to a file of the same run counts as that file. A link to a folder is followed only if it names a sibling,
    such as checkpoints/best, and no further link inside it is.

    Raises
    ------
    RunError
        One line for each link that leads elsewhere, and for each pipe, socket and device.
    """
    root = folder.resolve()
    found, problems = dict[str, Path](), list[str]()
    left = [(root, Path(), False)]  # the real folder, its name in the copy, and whether a link leads there
    while left:
        place, name, linked = left.pop()
        for entry in os.scandir(place):
            if entry.name.startswith((".", TEMPORARY)):
                continue
            known, real, is_link = name / entry.name, Path(os.path.realpath(entry.path)), entry.is_symlink()
            is_inside = real.is_relative_to(root)
            if is_inside and real.is_file():
                found[known.as_posix()] = real
            elif is_inside and real.is_dir() and (not is_link or (not linked and real.parent == place)):
                left.append((real, known, linked or is_link))
            else:
                what = "a link that leads out of the run, to a folder, or nowhere" if is_link else "no regular file"
                line = f"run.copy_to: {folder / known} is {what}, and nothing is copied through it. Remove it."
                problems.append(line)
    if problems:
        raise RunError(sorted(problems))
    return found
