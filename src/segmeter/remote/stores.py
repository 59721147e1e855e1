"""Lists, reads and writes the objects behind URLs through obstore.

Requests are repeated after a fault that may be temporary, so that a lost connection does not end a long run.
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
_LOGIN = re.compile(r":.*@", re.DOTALL)  # A password may hold slashes.
_PORT = re.compile(r"^([^/:@]+):\d+(?=/|$)")
# Repeating a request that got such an answer is useless.
_REFUSED = re.compile(r"status code: 4(?!08|09|25|29)\d\d.*<Code>(?!RequestTimeout)")
_ANSWER = re.compile(r"<Code>(\w+)</Code>\s*<Message>([^<]*)</Message>")  # S3 and similar servers answer so.
_DENIED = ("UnauthenticatedError", "PermissionDeniedError", "NotFoundError", "InvalidPathError", "NotSupportedError")
# Maps characters that Windows forbids in file names to the substitutes that Cygwin and WSL use.
_ON_DISK = {} if hasattr(os, "O_DIRECTORY") else {ord(char): 0xF000 + ord(char) for char in '<>:"|?*'}
_START = uuid4().hex  # Stands for a missing state. Objects without one are fetched again at each start.

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
    unescaped = text.replace(os.sep, "/").translate({substitute: char for char, substitute in _ON_DISK.items()})
    match = _INSIDE.fullmatch(unescaped) if ":/" in unescaped else None
    try:
        return (match and url_of(match[1])) or text
    except SegmeterError:  # the name of a scheme, but a folder on this machine
        return text


def list_objects(url: str) -> list[Stored]:
    """List all objects below a URL, ordered by name, or the object at the URL itself.

    Raises
    ------
    DataError
        Nothing is there, or the listing does not end.
    RunError
        The store can't be reached.
    """

    def look(store: Any, inner: str) -> list[Stored]:
        objects = dict[str, Stored]()
        for page in store.list(inner or None):
            added = {name: _stored(name, meta) for meta in page if (name := meta["path"][len(inner) :].lstrip("/"))}
            if len(objects) + len(added) > MOST_OBJECTS or added.keys() & objects.keys():
                given = f"{len(objects)} and no end, the last of them {page[-1]['path']!r}"
                remedy = "Name a folder further in, or see what the server lists."
                raise DataError(expected(url, "objects", f"to be at most {MOST_OBJECTS}, each once", given, remedy))
            objects |= added
        return list(objects.values())

    single = find_object(url) if "/" in url.partition("://")[2] else None
    listed = [single] if single else []
    if not single and not url.startswith("http"):  # a web server lists nothing
        listed = sorted(retry(url, look), key=lambda stored: stored.name)
    if not listed:
        remedy = "A web server lists nothing: name a file, or zip://FOLDER::URL." if url.startswith("http") else ""
        raise DataError(expected(url, "folder", "to hold something", "nothing there", remedy))
    folders = {stored.name[:end] for stored in listed for end, char in enumerate(stored.name) if char == "/"}
    # Web consoles create an empty object for each folder.
    return [stored for stored in listed if stored.size or stored.name not in folders]


def find_object(url: str) -> Stored | None:
    """Return the object at the URL itself, or None. Raises as `list_objects` does."""

    def look(store: Any, inner: str) -> Stored | None:
        try:
            return _stored("", store.head(inner))
        except FileNotFoundError:
            if not url.startswith("http"):
                next(iter(store.list(inner, chunk_size=1)), None)  # raises where there is no such bucket
            return None

    return retry(url, look)


def read_object(url: str, target: Path, name: str = "") -> Stored:
    """Download the object at a URL into a file, which appears complete or not at all; raises as `list_objects` does."""

    def read(store: Any, inner: str) -> Stored:
        response = store.get(inner)
        with atomic_write(target) as file:
            for piece in response.stream():
                file.write(piece)
            if file.tell() != response.meta["size"]:
                raise OSError(f"{file.tell()} of {response.meta['size']} bytes arrived")
        return _stored(name, response.meta)

    return retry(url, read)


def write_object(url: str, source: Path) -> None:
    """Store a file at a URL; raises as `list_objects` does."""
    retry(url, lambda store, inner: store.put(inner, source))


def _stored(name: str, meta: Any) -> Stored:
    changed = meta["last_modified"].timestamp()  # 0 if a web server does not tell
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
    unencrypted = scheme == "http" or (scheme == "s3" and endpoint.startswith("http://"))  # only if the user says so
    client = {"timeout": "60s", "connect_timeout": "10s", **({"allow_http": True} if unencrypted else {})}
    # `retry` repeats requests instead: it names the object, and tells lost connections from missing objects.
    options = {"client_options": client, "retry_config": {"max_retries": 0}}
    if scheme.startswith("http"):
        return stores.HTTPStore.from_url(f"{scheme}://{host}", **options)
    return {"s3": stores.S3Store, "gs": stores.GCSStore, "az": stores.AzureStore}[scheme](host, **options)


def retry(url: str, work: Callable[[Any, str], Result]) -> Result:
    """Call `work` with the bucket or host of a URL and the path in it, up to six times while faults may be temporary.

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
        except Exception as error:  # each store raises errors of its own types
            text = " ".join(str(error).split()).partition(" Debug source:")[0]
            answer = _ANSWER.search(text)
            reason = ": ".join(answer.groups()) if answer else text[:200] or type(error).__name__
            final = isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError | ValueError)
            if final or type(error).__name__ in _DENIED or _REFUSED.search(text):
                raise DataError(expected(url, "object", "to be there and readable", reason)) from error
            if wait is None:
                remedy = "See whether the connection holds, then start again: what was fetched is kept."
                problem = f"can't be read or written, after {len(WAITS) + 1} attempts ({reason})"
                raise RunError(f"{url}: {problem}. {remedy}") from error
            _LOG.warning("%s: %s; trying again in %g s.", url, reason, wait)
            time.sleep(wait)
    raise AssertionError("unreachable")


def check_target(given: str) -> None:
    """Refuse a URL that folders can't be copied to, before any work is done for nothing.

    Raises
    ------
    ConfigError
        It is not a URL, or it is the URL of an archive or a web server.
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
        Hidden files are not copied. `find_files` tells which links are followed.
    given
        The URL of the folder that receives it.
    name
        The name of the copy.

    Raises
    ------
    ConfigError
        There is a run of this name already.
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

    A link to a file of the same run counts as that file. A link to a folder is followed only if that folder lies beside
    it, as with checkpoints/best. Links to folders inside a linked folder are not followed.

    Raises
    ------
    RunError
        One line for each link that leads elsewhere, and for each pipe, socket and device.
    """
    root = folder.resolve()
    files = dict[str, Path]()
    problems = list[str]()
    waiting = [(root, Path(), False)]  # the real folder, its name in the copy, and whether a link leads there
    while waiting:
        parent, parent_name, linked = waiting.pop()
        for entry in os.scandir(parent):
            if entry.name.startswith((".", TEMPORARY)):
                continue
            name = parent_name / entry.name
            real = Path(os.path.realpath(entry.path))
            is_link = entry.is_symlink()
            is_inside = real.is_relative_to(root)
            if is_inside and real.is_file():
                files[name.as_posix()] = real
            elif is_inside and real.is_dir() and (not is_link or (not linked and real.parent == parent)):
                waiting.append((real, name, linked or is_link))
            else:
                what = "a link that leads out of the run, to a folder, or nowhere" if is_link else "no regular file"
                problems.append(f"run.copy_to: {folder / name} is {what}, and nothing is copied through it. Remove it.")
    if problems:
        raise RunError(sorted(problems))
    return files
