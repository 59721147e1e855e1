import threading
from pathlib import Path

from segmeter.remote import trees
from segmeter.remote.ahead import fetch_ahead
from segmeter.remote.trees import local_path


def test_objects_are_fetched_side_by_side_and_given_in_order(memory, monkeypatch):
    """Sixteen requests meet: with fewer at a time the barrier would break."""
    names = [f"{number:02d}" for number in range(48)]
    for name in names:
        memory.put(name, name.encode())
    tree, cat, together = local_path(memory.url), memory.files.cat_file, threading.Barrier(16, timeout=20)

    def meet(path, *more, **options):
        together.wait()
        return cat(path, *more, **options)

    monkeypatch.setattr(memory.files, "cat_file", meet)
    found = []
    for path in fetch_ahead([tree / name for name in names], lambda path: [path]):
        found.append(path.name)
        assert path.read_bytes() == path.name.encode()
    assert found == names


def test_what_can_not_be_fetched_is_left_to_who_reads_it(memory):
    memory.put("a", b"1")
    memory.put("b", b"2")
    tree = local_path(memory.url)
    memory.drop("a")
    assert [path.name for path in fetch_ahead([tree / "a", tree / "b"], lambda path: [path])] == ["a", "b"]
    assert not (tree / "a").exists()
    assert (tree / "b").read_bytes() == b"2"


def test_local_files_are_given_at_once(monkeypatch):
    monkeypatch.setattr(trees, "present", None)
    assert list(fetch_ahead([Path("a"), Path("b")], lambda path: [path])) == [Path("a"), Path("b")]
    assert list(fetch_ahead([], lambda path: [path])) == []
