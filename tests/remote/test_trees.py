import os
import threading

import pytest

from segmeter.errors import DataError
from segmeter.remote import trees
from segmeter.remote.cache import OBJECTS, SUM, cache_folder
from segmeter.remote.folders import local_folder
from segmeter.remote.trees import local_path, open_present, origin, present, stored_size, stored_state


def read(path):
    handle = open_present(path, os.O_RDONLY)
    try:
        return os.read(handle, 1 << 20)
    finally:
        os.close(handle)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def objects():
    return [path for path in cache_folder().rglob(f"{OBJECTS}/*-*") if path.suffix != SUM]


def test_a_path_of_this_machine_is_itself(tmp_path):
    assert local_path("runs/a") == local_folder("runs/a")
    assert local_path(f"file://{tmp_path}/x") == local_folder(f"file://{tmp_path}/x") == tmp_path / "x"
    (tmp_path / "x").write_bytes(b"12")
    present(tmp_path / "x")
    assert stored_size(tmp_path / "x") == 2
    assert stored_state(tmp_path / "x") is None
    assert origin(tmp_path) == str(tmp_path)


def test_listing_reads_nothing_and_each_object_is_fetched_once(memory, requests):
    memory.put("images/a.png", b"one")
    memory.put("images/b.png", b"three")
    tree = local_path(memory.url)
    assert names(tree / "images") == ["a.png", "b.png"]
    assert stored_size(tree / "images" / "b.png") == 5
    assert origin(tree / "images" / "b.png") == f"{memory.url}/images/b.png"
    assert requests == []
    assert read(tree / "images" / "b.png") == read(tree / "images" / "b.png") == b"three"
    trees._checked.clear()  # as another process
    assert read(local_path(memory.url) / "images" / "b.png") == b"three"
    assert requests == ["b.png"]


def test_what_was_not_fetched_is_missing_and_never_empty(memory):
    memory.put("a.png", b"one")
    with pytest.raises(FileNotFoundError):
        (local_path(memory.url) / "a.png").read_bytes()


def test_a_file_alone_is_given_with_its_name(memory):
    memory.put("x/a.png", b"one")
    memory.put("x/b.png", b"two")
    first, second = local_path(f"{memory.url}/x/a.png"), local_path(f"{memory.url}/x/b.png")
    assert (first.name, second.name) == ("a.png", "b.png")
    assert (read(first), read(second)) == (b"one", b"two")


def test_nothing_at_a_url_is_refused(memory):
    with pytest.raises(DataError, match=rf"{memory.url}/no: expected `folder` to hold something, got nothing there"):
        local_path(f"{memory.url}/no")


def test_an_object_that_changes_between_listing_and_reading_is_noticed(memory):
    memory.put("a.png", b"one")
    path = local_path(memory.url) / "a.png"
    memory.put("a.png", b"two")
    with pytest.raises(DataError, match=r"a.png: expected `object` to stay what it was .*, got another content"):
        read(path)
    assert objects() == []


def test_an_object_that_is_gone_is_noticed(memory):
    memory.put("a.png", b"one")
    memory.put("b.png", b"one")
    path = local_path(memory.url) / "a.png"
    memory.drop("a.png")
    with pytest.raises(DataError, match=r"a.png: expected `object` to be there and readable"):
        read(path)


def test_a_changed_object_is_read_again_and_only_that(memory, requests):
    memory.put("a.png", b"one")
    memory.put("b.png", b"two")
    tree = local_path(memory.url)
    before = {name: stored_state(tree / name) for name in ("a.png", "b.png")}
    assert [read(tree / name) for name in ("a.png", "b.png")] == [b"one", b"two"]
    memory.put("b.png", b"new")
    memory.drop("a.png")
    memory.put("c.png", b"see")
    assert local_path(memory.url) == tree
    assert names(tree) == [OBJECTS, "b.png", "c.png"]
    assert stored_state(tree / "b.png") != before["b.png"]
    assert [read(tree / name) for name in ("b.png", "c.png")] == [b"new", b"see"]
    assert requests == ["a.png", "b.png", "b.png", "c.png"]


def test_a_damaged_object_of_the_cache_is_fetched_again(memory, requests):
    memory.put("a.png", b"one")
    path = local_path(memory.url) / "a.png"
    read(path)
    (found,) = objects()
    found.write_bytes(b"0ne")
    trees._checked.clear()
    assert read(path) == b"one"
    assert len(requests) == 2


def test_the_cache_stays_below_its_bound_and_forgets_what_was_used_least_recently(memory, requests, monkeypatch):
    monkeypatch.setenv("SEGMETER_CACHE_GB", str(35e-9))
    for name in "abcdef":
        memory.put(name, name.encode() * 10)
    tree = local_path(memory.url)
    for turn, name in enumerate("abacad"):
        assert read(tree / name) == name.encode() * 10
        (used,) = (path for path in objects() if path.read_bytes()[:1] == name.encode())
        os.utime(used, (turn, turn))
        assert sum(path.stat().st_size for path in objects()) <= 35
    assert sorted(path.read_bytes()[:1] for path in objects()) == [b"a", b"c", b"d"]
    assert requests == ["a", "b", "c", "d"]
    assert read(tree / "b") == b"b" * 10
    assert requests[-1] == "b"


def test_an_object_larger_than_the_cache_is_refused(memory, monkeypatch):
    monkeypatch.setenv("SEGMETER_CACHE_GB", str(35e-9))
    memory.put("a", bytes(36))
    with pytest.raises(DataError, match=r"the cache of 3.5e-08 GB, got 3.6e-08 GB. Raise SEGMETER_CACHE_GB"):
        read(local_path(memory.url) / "a")


def test_threads_that_push_each_other_out_of_a_small_cache_read_the_right_bytes(memory, monkeypatch):
    monkeypatch.setenv("SEGMETER_CACHE_GB", str(25e-9))
    names = [f"{number:02d}" for number in range(12)]
    for name in names:
        memory.put(name, name.encode() * 5)
    tree, wrong = local_path(memory.url), []

    def work(own):
        for name in own:
            try:
                if read(tree / name) != name.encode() * 5:
                    wrong.append(name)
            except DataError as error:  # a cache that is too small for all threads may say so, and never lies
                if "to stay in the cache" not in str(error):
                    raise

    threads = [threading.Thread(target=work, args=(names[start:] + names[:start],)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert sum(path.stat().st_size for path in objects()) <= 25 + 4 * 10  # what is being fetched comes on top


def test_an_object_in_the_place_of_the_cache_is_refused(memory):
    """Mutation seen to fail: such an object listed as any other (its link is one of the cache's own files)."""
    memory.put(f"masks/{OBJECTS}/a.png", b"one")
    tree = local_path(memory.url)
    assert read(tree / "masks" / OBJECTS / "a.png") == b"one"
    memory.drop(f"masks/{OBJECTS}/a.png")
    memory.put(f"{OBJECTS}/a.png", b"one")
    with pytest.raises(DataError, match=r"`names` not to begin with \.o, got '\.o/a.png'"):
        local_path(memory.url)


def test_a_name_that_is_file_and_folder_is_refused(memory, monkeypatch):
    listed = [trees.Stored("a", 1, "x"), trees.Stored("a/b", 1, "x")]
    monkeypatch.setattr(trees.Store, "objects", lambda self: listed)
    with pytest.raises(DataError, match="both of 'a'"):
        local_path(memory.url)


def test_objects_of_one_size_and_state_are_told_apart(memory, monkeypatch):
    """As where a store knows the second of a change only. Mutation seen to fail: a key without the name."""
    info, listed = memory.files.info, memory.files.find
    monkeypatch.setattr(memory.files, "info", lambda path: {**info(path), "created": 1.0})
    found = lambda root, detail: {path: {**each, "created": 1.0} for path, each in listed(root, detail=True).items()}  # noqa: E731
    monkeypatch.setattr(memory.files, "find", found)
    for name in ("a", "in/a", "b"):
        memory.put(name, name.encode()[-1:] + name.encode()[:1])
    tree = local_path(memory.url)
    assert [read(tree / name) for name in ("a", "in/a", "b")] == [b"aa", b"ai", b"bb"]


def test_what_has_no_state_is_fetched_anew_at_each_start(memory, requests, monkeypatch):
    info = memory.files.info
    monkeypatch.setattr(memory.files, "info", lambda path: {**info(path), "created": None})
    memory.put("x/a", b"one")
    assert read(local_path(f"{memory.url}/x/a")) == b"one"
    memory.put("x/a", b"two")
    assert read(local_path(f"{memory.url}/x/a")) == b"two"
    assert requests == ["a", "a"]
