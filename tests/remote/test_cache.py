import os
import resource
import threading
from pathlib import Path

import pytest

from segmeter.errors import ConfigError, DataError
from segmeter.files import remove
from segmeter.remote import cache
from segmeter.remote.cache import OBJECTS, Room, cache_folder, hold, most_bytes


def test_the_bound_is_in_gigabytes(monkeypatch):
    monkeypatch.delenv("SEGMETER_CACHE_GB", raising=False)
    assert most_bytes() == 20_000_000_000
    monkeypatch.setenv("SEGMETER_CACHE_GB", "1.5")
    assert most_bytes() == 1_500_000_000


@pytest.mark.parametrize("given", ["", "0", "-1", "many", "nan", "inf"])
def test_a_bound_that_is_none_is_refused(given, monkeypatch):
    monkeypatch.setenv("SEGMETER_CACHE_GB", given)
    with pytest.raises(ConfigError, match=f"SEGMETER_CACHE_GB` to be the size .* above 0, got '{given}'"):
        most_bytes()


def test_the_folder_is_the_users(monkeypatch):
    monkeypatch.delenv("SEGMETER_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder() == Path("/somewhere/segmeter")


def test_what_a_killed_process_left_counts_and_goes_first(tmp_path):
    """Mutation seen to fail: files without a name left out, or taken while they are written."""
    objects = tmp_path / "tree" / "images" / OBJECTS
    objects.mkdir(parents=True)
    names = {"left": ".tmp-1-ab", "fresh": ".tmp-2-cd", "kept": "5-00"}
    for name in names.values():
        (objects / name).write_bytes(bytes(30))
    os.utime(objects / names["left"], (0, 0))
    with Room(tmp_path, 100).reserve(30, "more"):
        pass
    assert sorted(path.name for path in objects.iterdir()) == sorted(names.values())
    with Room(tmp_path, 85).reserve(30, "more"):
        pass
    assert sorted(path.name for path in objects.iterdir()) == [names["fresh"], names["kept"]]


def test_a_folder_that_is_removed_while_it_is_waited_for_is_made_again(tmp_path, monkeypatch):
    """Mutation seen to fail: no look whether the folder still has its name."""
    folder, flock = tmp_path / "whole" / "a", cache.fcntl.flock
    turns = iter([True, False])

    def removed_first(handle, kind):
        if next(turns):
            remove(folder)
        flock(handle, kind)

    monkeypatch.setattr(cache.fcntl, "flock", removed_first)
    hold(folder)
    assert cache._is_at(cache._held[folder], folder)


def test_what_other_threads_fetch_is_waited_for_and_never_passes_the_bound(tmp_path):
    """Mutation seen to fail: room that was taken, and not used yet, forgotten."""
    room, order = Room(tmp_path, 100), []

    def fetch():
        with room.reserve(60, "b"):
            order.append("second")

    second = threading.Thread(target=fetch)
    with room.reserve(60, "a"):
        second.start()
        second.join(0.2)
        order.append("first")
    second.join()
    assert order == ["first", "second"]
    with pytest.raises(DataError, match="to fit into the cache"), room.reserve(101, "c"):
        pass


def test_more_folders_are_held_than_a_process_may_open_at_first(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    cache._allow_open_files.cache_clear()
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))
    try:
        for number in range(200):
            hold(tmp_path / "whole" / str(number))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len([folder for folder in cache._held if folder.is_relative_to(tmp_path)]) == 200
