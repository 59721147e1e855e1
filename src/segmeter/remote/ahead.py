"""Items whose files are behind a URL -> the same items, each once its files are here."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TypeVar

from segmeter.errors import SegmeterError
from segmeter.parallel import map_in_threads
from segmeter.remote.folders import present_folder
from segmeter.remote.trees import is_remote, present

Item = TypeVar("Item")

_THREADS = 16  # most of the time they wait for the store, where threads that decode are as many as there are cores


def fetch_ahead(items: Iterable[Item], files_of: Callable[[Item], Iterable[Path]]) -> Iterator[Item]:
    """Yield items in their order while the files of the next ones are fetched; local files are left alone.

    What can't be fetched is said by who reads it.
    """

    def fetch(item: Item) -> Item:
        with suppress(SegmeterError):
            for path in files_of(item):
                if path.is_dir():
                    present_folder(path)
                else:
                    present(path)
        return item

    rest = iter(items)
    for first in rest:
        if any(map(is_remote, files_of(first))):
            yield from map_in_threads(fetch, chain([first], rest), threads=_THREADS, name="fetch")
        else:
            yield first
            yield from rest
