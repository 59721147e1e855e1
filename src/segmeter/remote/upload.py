"""Copies a finished run's folder to a URL. The copy is complete once its run.json is there."""

import os
import stat
from pathlib import Path

from segmeter.checks import expected
from segmeter.errors import ConfigError, RunError
from segmeter.files import TEMPORARY
from segmeter.parallel import map_in_threads
from segmeter.progress import track
from segmeter.records import RUN
from segmeter.remote.stores import find_object, url_of, write_object

LAST = RUN  # readers look for it first, so it is written last
_THREADS = 16


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
    find_object(f"{url}/{LAST}")


def upload_folder(folder: Path, given: str, *, name: str) -> str:
    """Copy a folder to a URL, `LAST` last, and return the URL of the copy.

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
    if find_object(f"{url}/{LAST}") is not None:
        raise ConfigError(expected("config", "run.copy_to", "to hold no run of this name", url))
    files = find_files(folder)
    last = files.pop(LAST, None)
    written = map_in_threads(lambda each: write_object(f"{url}/{each}", files[each]), sorted(files), threads=_THREADS)
    for _ in track(written, "copying", len(files)):
        pass
    if last is not None:
        write_object(f"{url}/{LAST}", last)
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
            known, real = name / entry.name, Path(os.path.realpath(entry.path))
            kind = real.stat().st_mode if real.exists() and real.is_relative_to(root) else 0
            if stat.S_ISREG(kind):
                found[str(known)] = real
            elif stat.S_ISDIR(kind) and not entry.is_symlink():
                left.append((real, known, linked))
            elif stat.S_ISDIR(kind) and not linked and real.parent == place:
                left.append((real, known, True))
            else:
                what = (
                    "a link that leads out of the run, to a folder, or nowhere"
                    if entry.is_symlink()
                    else "no regular file"
                )
                line = f"run.copy_to: {folder / known} is {what}, and nothing is copied through it. Remove it."
                problems.append(line)
    if problems:
        raise RunError(sorted(problems))
    return found
