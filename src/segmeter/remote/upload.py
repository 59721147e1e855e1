"""A finished run's folder -> a URL, where it is whole once its run.json is there."""

import os
from pathlib import Path

from segmeter.checks import expected
from segmeter.errors import ConfigError, RunError, SegmeterError
from segmeter.files import TEMPORARY
from segmeter.parallel import map_in_threads
from segmeter.progress import track
from segmeter.records import RUN
from segmeter.remote.trees import open_store
from segmeter.remote.urls import split_archive, url_of

LAST = RUN  # what is read first, and written last
_THREADS = 16


def check_target(given: str) -> None:
    """Refuse a URL that folders can't be copied to, before the work that would be lost.

    Raises
    ------
    ConfigError
        It is no URL, or one of an archive or a web server.
    RunError
        The store can't be reached.
    """
    url = url_of(given)
    if url is None or split_archive(url) is not None or url.startswith("http"):
        rule = "to be a URL that can be written: s3://, gs://, az://, file:// or memory://"
        raise ConfigError(expected("config", "run.copy_to", rule, given))
    open_store(url).look(LAST)


def upload_folder(folder: Path, given: str, *, name: str) -> str:
    """Copy a folder to a URL, `LAST` last; returns its own URL there.

    Parameters
    ----------
    folder
        Links in it are followed; hidden files stay here.
    given
        The URL of the folder that takes it.
    name
        What the copy is called.

    Raises
    ------
    RunError
        A run of this name is there, or a file can't be written, after several attempts. The folder here is whole.
    """
    url = f"{url_of(given)}/{name}"
    try:
        store = open_store(url)
        if store.look(LAST) is not None:
            raise ConfigError(expected("config", "run.copy_to", "to hold no run of this name", url))
        names = sorted(_names(folder))
        written = map_in_threads(lambda each: store.write(each, folder / each), names, threads=_THREADS)
        for _ in track(written, "copying", len(names)):
            pass
        if (folder / LAST).is_file():
            store.write(LAST, folder / LAST)
    except SegmeterError as error:
        raise RunError([*error.problems, f"run: {folder} is done and whole; copy it again."]) from error
    return url


def _names(folder: Path) -> list[str]:
    found = []
    for place, folders, files in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [str(Path(place, name).relative_to(folder)) for name in files if not name.startswith((".", TEMPORARY))]
    return [name for name in found if name != LAST]
