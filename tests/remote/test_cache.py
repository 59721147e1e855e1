import os
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from segmeter.data.files.refusals import known_place, read_state, stored_size
from segmeter.data.pairing import scan_folder
from segmeter.errors import ConfigError, DataError
from segmeter.parallel import allow_open_files
from segmeter.records import cache_folder
from segmeter.remote import cache
from segmeter.remote.cache import fetch, fetch_ahead, fetched, list_place, listed_size, unzipped
from segmeter.remote.stores import origin


def listed(url, *names):
    """The path that something behind a URL will have here."""
    place = list_place(Path(url))
    for name in names:
        place = place.inside[name]
    return place.path


def read(path):
    with fetched([path]):
        return path.read_bytes()


def entries():
    return [path for path in (cache_folder() / cache._HOME).iterdir() if path.name[0] != "."]


def test_a_path_of_this_machine_is_itself(tmp_path, monkeypatch):
    assert fetch("runs/a") == Path("runs/a")
    (tmp_path / "x").write_bytes(b"12")
    assert listed_size(tmp_path / "x") is None
    assert stored_size(tmp_path / "x") == 2
    assert read(tmp_path / "x") == b"12"
    assert list_place(tmp_path).inside is None
    monkeypatch.chdir(tmp_path)
    assert known_place("x") == str(tmp_path / "x")
    assert known_place(Path("s3://b/x")) == "s3://b/x"


def test_a_file_behind_a_url_is_a_folder_of_nothing(memory):
    memory.put("a.png", b"one")
    (problem,) = scan_folder(Path(f"{memory.url}/a.png"), role="masks", remedy="Name a folder.").problems
    assert problem.startswith(f"{memory.url}/a.png: expected `masks` to hold .bmp")
    assert problem.endswith("got none. Name a folder.")


def test_listing_reads_nothing_and_each_object_is_fetched_once(memory):
    memory.put("images/a.png", b"one")
    memory.put("images/b.png", b"three")
    path = listed(f"{memory.url}/images", "b.png")
    assert not path.exists()
    assert (path.name, stored_size(path), origin(path)) == ("b.png", 5, f"{memory.url}/images/b.png")
    assert memory.asked == []
    assert read(path) == read(path) == read(listed(f"{memory.url}/images/b.png")) == b"three"
    assert memory.asked == ["images/b.png"]


def test_an_object_that_changes_between_listing_and_reading_is_noticed(memory):
    memory.put("a.png", b"one")
    path = listed(memory.url, "a.png")
    memory.put("a.png", b"two")
    with pytest.raises(DataError, match=r"a.png: expected `object` to stay what it was .*, got another content"):
        read(path)
    assert entries() == []
    memory.drop("a.png")
    with pytest.raises(DataError, match=r"a.png: expected `object` to be there and readable"):
        read(path)


def test_a_changed_object_is_another_path_and_its_neighbours_are_not_read_again(memory):
    for name in "ab":
        memory.put(name, b"one")
    before = {name: listed(memory.url, name) for name in "ab"}
    assert [read(before[name]) for name in "ab"] == [b"one", b"one"]
    memory.put("b", b"two")
    after = {name: listed(memory.url, name) for name in "ab"}
    assert (after["a"], after["b"] != before["b"]) == (before["a"], True)
    assert [read(after[name]) for name in "ab"] == [b"one", b"two"]
    assert memory.asked == ["a", "b", "b"]
    assert read_state(after["a"]) == (3, 0, 0, 0)  # the same before it is fetched, and after


def test_the_cache_stays_below_its_bound_and_forgets_what_was_used_least_recently(memory, of_bytes):
    of_bytes(35)
    for name in "abcdef":
        memory.put(name, name.encode() * 10)
    paths = {name: listed(memory.url, name) for name in "abcdef"}
    for turn, name in enumerate("abacad"):
        assert read(paths[name]) == name.encode() * 10
        os.utime(cache._entry(paths[name]), (turn, turn))
        assert len(entries()) <= 3
    assert {name for name in "abcdef" if paths[name].exists()} == set("acd")
    assert memory.asked == ["a", "b", "c", "d"]
    assert read(paths["b"]) == b"b" * 10
    assert memory.asked[-1] == "b"


def two_of_thirty(memory):
    """Two files, of which a cache of 35 bytes holds one."""
    for name in "ab":
        memory.put(name, name.encode() * 30)
    return [listed(memory.url, name) for name in "ab"]


def test_a_file_that_is_read_is_not_forgotten(memory, of_bytes):
    of_bytes(35)
    first, second = two_of_thirty(memory)
    with fetched([first]):
        with pytest.raises(DataError, match=r"to fit into the cache of 3.5e-08 GB, got 3e-08 GB. Raise SEGMETER_CACHE"):
            read(second)
        assert first.read_bytes() == b"a" * 30
    assert read(second) == b"b" * 30
    assert not first.exists()


def test_what_other_threads_fetch_is_waited_for(memory, of_bytes):
    of_bytes(35)
    first, second = two_of_thirty(memory)
    order = []

    def slow(name):
        if name == "a":
            time.sleep(0.3)
        order.append(name)

    memory.fault = slow
    threads = [threading.Thread(target=read, args=(path,)) for path in (first, second)]
    for thread in threads:
        thread.start()
        time.sleep(0.1)
    for thread in threads:
        thread.join()
    assert order == ["a", "b"]
    assert (first.exists(), second.exists()) == (False, True)


def test_threads_that_push_each_other_out_of_a_small_cache_read_the_right_bytes(memory, of_bytes):
    of_bytes(45)
    names = [f"{number:02d}" for number in range(12)]
    for name in names:
        memory.put(name, name.encode() * 5)
    paths, wrong = {name: listed(memory.url, name) for name in names}, []

    def work(own):
        for name in own:
            if read(paths[name]) != name.encode() * 5:
                wrong.append(name)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, [names[start:] + names[:start] for start in range(4)]))
    assert not wrong
    assert len(entries()) <= 4


def test_what_a_process_that_was_faster_fetched_is_taken(memory):
    memory.put("a", b"one")
    path = listed(memory.url, "a")

    def faster(name):
        memory.fault = lambda name: None
        path.parent.mkdir(parents=True)
        path.write_bytes(b"one")

    memory.fault = faster
    assert read(path) == b"one"
    assert [each.name for each in (cache_folder() / cache._HOME).iterdir()] == [cache._entry(path).name]


def test_what_a_killed_process_left_goes(memory, of_bytes):
    of_bytes(35)
    home = cache_folder() / cache._HOME
    for name in (".tmp-1-ab", ".tmp-2-cd"):
        (home / name).mkdir(parents=True)
    os.utime(home / ".tmp-1-ab", (0, 0))
    for name in "abcd":
        memory.put(name, bytes(10))
        read(listed(memory.url, name))
    assert [path.name for path in home.glob(".tmp-*")] == [".tmp-2-cd"]


@pytest.mark.parametrize("given", ["", "0", "-1", "many", "nan", "inf"])
def test_a_bound_that_is_none_is_refused(given, memory, monkeypatch):
    memory.put("a", b"1")
    monkeypatch.setenv("SEGMETER_CACHE_GB", given)
    with pytest.raises(ConfigError, match=f"SEGMETER_CACHE_GB` to be the size .* above 0, got '{given}'"):
        read(listed(memory.url, "a"))


def test_what_has_no_state_is_fetched_anew_at_each_start(memory, monkeypatch):
    head, get = memory.head, memory.get

    unknown = {"e_tag": None, "last_modified": datetime.fromtimestamp(0, UTC)}
    monkeypatch.setattr(memory, "head", lambda name: {**head(name), **unknown})

    def got(name):
        found = get(name)
        return SimpleNamespace(meta={**found.meta, **unknown}, stream=found.stream)

    monkeypatch.setattr(memory, "get", got)
    memory.put("x/a", b"one")
    assert read(listed(f"{memory.url}/x/a")) == b"one"
    memory.put("x/a", b"two")
    monkeypatch.setattr("segmeter.remote.stores._START", "another")
    assert read(listed(f"{memory.url}/x/a")) == b"two"


def test_a_whole_folder_is_a_copy_of_one_state(memory):
    memory.put("run/run.json", b"{}")
    memory.put("run/in/a", b"one")
    memory.put("run/predictions/a", b"large")
    keep = lambda name: not name.startswith("predictions")  # noqa: E731
    folder = fetch(f"{memory.url}/run", keep=keep)
    assert folder.name == "run"
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*")) == ["in", "in/a", "run.json"]
    assert origin(folder / "in" / "a") == f"{memory.url}/run/in/a"
    assert fetch(f"{memory.url}/run", keep=keep) == folder
    assert sorted(memory.asked) == ["run/in/a", "run/run.json"]
    memory.put("run/in/a", b"two")
    assert (fetch(f"{memory.url}/run") / "in" / "a").read_bytes() == b"two"
    assert (folder / "in" / "a").read_bytes() == b"one"
    with pytest.raises(DataError, match="to hold what is wanted of it"):
        fetch(f"{memory.url}/run", keep=lambda name: False)


def test_threads_that_want_one_folder_fetch_it_once(memory):
    memory.put("run/a", b"one")
    with ThreadPoolExecutor(6) as pool:
        found = set(pool.map(fetch, [f"{memory.url}/run"] * 6))
    assert (len(found), memory.asked) == (1, ["run/a"])


@pytest.mark.slow
def test_more_folders_are_kept_than_a_process_may_open_at_first(memory):
    resource = pytest.importorskip("resource", reason="Windows limits no process so")
    folders = []
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allow_open_files.cache_clear()
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))
    try:
        for number in range(200):
            memory.put(f"{number}/a", b"1")
            folders.append(fetch(f"{memory.url}/{number}"))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert [(folder / "a").read_bytes() for folder in folders] == [b"1"] * 200


def test_an_archive_is_unpacked_and_one_that_is_replaced_is_unpacked_again(tmp_path, s3):
    for content in (b"one", b"another"):
        with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
            archive.writestr("run/run.json", content)
        s3.put("all.zip", (tmp_path / "all.zip").read_bytes())
        for place in (f"{tmp_path}/all.zip", f"{s3.url}/all.zip"):
            folder = fetch(f"zip://run::{place}")
            assert (folder / "run.json").read_bytes() == content
            assert unzipped(Path(f"zip://run::{place}")) == list_place(Path(f"zip://run::{place}")).path == folder
        assert origin(folder / "run.json") == f"zip://run/run.json::{s3.url}/all.zip"


def test_objects_are_fetched_side_by_side_and_given_in_order(memory):
    """Sixteen requests meet: with fewer at a time the barrier would break."""
    names = [f"{number:02d}" for number in range(48)]
    for name in names:
        memory.put(name, name.encode())
    paths, together = [listed(memory.url, name) for name in names], threading.Barrier(16, timeout=20)
    memory.fault = lambda name: together.wait()
    found = []
    for path in fetch_ahead(paths, lambda path: [path]):
        found.append(path.name)
        assert path.read_bytes() == path.name.encode()
    assert found == names


def test_what_can_not_be_fetched_is_left_to_who_reads_it(memory):
    for name in "ab":
        memory.put(name, name.encode())
    first, second = (listed(memory.url, name) for name in "ab")
    memory.drop("a")
    assert list(fetch_ahead([first, second], lambda path: [path])) == [first, second]
    assert (first.exists(), second.read_bytes()) == (False, b"b")
