import zipfile
import zlib

import pytest

from segmeter.errors import ConfigError, DataError, RunError
from segmeter.remote import stores
from segmeter.remote.stores import Store, attempt
from segmeter.remote.trees import open_store
from tests.deadline import deadline


class Broken:
    """Files whose every request fails some times first."""

    def __init__(self, files, times, error):
        self.files, self.times, self.error, self.asked = files, times, error, 0

    def __getattr__(self, name):
        def request(*arguments, **options):
            self.asked += 1
            if self.asked <= self.times:
                raise self.error
            return getattr(self.files, name)(*arguments, **options)

        return request if name != "invalidate_cache" else self.files.invalidate_cache


def store_of(memory, times, error):
    return Store(memory.url, Broken(memory.files, times, error), memory.url.removeprefix("memory:/"))


def test_a_lost_connection_is_tried_again_and_named(memory, caplog):
    memory.put("a", b"123")
    found = store_of(memory, 2, ConnectionError("reset by peer")).look("a")
    assert found is not None
    assert found.size == 3
    assert [record.getMessage() for record in caplog.records] == [
        f"{memory.url}/a: reset by peer; trying again in 0 s."
    ] * 2


def test_what_stays_lost_ends_the_run_with_a_line_that_says_so(memory):
    with pytest.raises(RunError, match=rf"{memory.url}/a: can't be read or written, after 3 attempts \(timed out\)"):
        store_of(memory, 99, TimeoutError("timed out")).look("a")


@pytest.mark.parametrize(
    "error", [FileNotFoundError("gone"), PermissionError("403"), zipfile.BadZipFile("no zip"), zlib.error("torn")]
)
def test_what_is_not_there_or_damaged_is_not_tried_again(memory, error):
    store = store_of(memory, 99, error)
    with pytest.raises(DataError, match=r"to be there and readable, got (gone|403|no zip|torn)"):
        attempt("x", lambda: store._files.info("x"))
    assert store._files.asked == 1


def test_what_may_not_be_looked_at_is_not_taken_for_absent(memory):
    assert store_of(memory, 99, FileNotFoundError("gone")).look("a") is None
    with pytest.raises(DataError, match="to be there and readable, got 403"):
        store_of(memory, 99, PermissionError("403")).look("a")


@pytest.mark.parametrize("name", ["../up", "a/../../up", "a\0b"])
def test_names_that_lead_elsewhere_are_refused(memory, name, monkeypatch):
    store = store_of(memory, 0, OSError())
    info = {"size": 1, "type": "file", "mtime": 1}
    monkeypatch.setattr(memory.files, "info", lambda path: {"type": "directory"})
    monkeypatch.setattr(memory.files, "find", lambda root, detail: {f"{store._root}/{name}": info})
    with pytest.raises(DataError, match="names that can be those of files"):
        store.objects()


def test_s3_is_listed_read_and_written(s3, tmp_path):
    s3.put("data/a.bin", b"one")
    s3.put("data/in/b.bin", bytes(20_000_000))
    for name in ("data/", "data/in/"):  # what consoles make of folders
        s3.put(name, b"")
    store = open_store(f"{s3.url}/data")
    found = store.objects()
    assert [(each.name, each.size) for each in found] == [("a.bin", 3), ("in/b.bin", 20_000_000)]
    assert store.look("a.bin") == found[0]
    assert b"".join(store.read("in/b.bin", 20_000_000)) == bytes(20_000_000)
    (tmp_path / "c").write_bytes(b"three")
    store.write("c", tmp_path / "c")
    assert s3.get("data/c") == b"three"
    assert open_store(s3.url).objects()[0].name == "data/a.bin"
    assert open_store(f"{s3.url}/nothing").objects() == []


@pytest.mark.parametrize("ask", [Store.objects, lambda store: store.look("run.json")], ids=["list", "look"])
def test_a_missing_bucket_is_refused_at_once(ask, s3, caplog):
    """Mutation seen to fail: the answer taken for a lost connection."""
    with pytest.raises(DataError, match="to be there and readable, got NoSuchBucket: The specified bucket does not"):
        ask(open_store("s3://nobucket/x"))
    assert not caplog.records  # nothing was tried again


@pytest.mark.parametrize(
    ("text", "attempts"),
    [
        ("Server returned non-2xx status code: 400 Bad Request: <Code>InvalidBucketName</Code>", 1),
        ("Server returned non-2xx status code: 400 Bad Request: <Code>RequestTimeout</Code>", 3),
        ("Server returned non-2xx status code: 429 Too Many Requests", 3),
        ("Server returned non-2xx status code: 503 Slow Down", 3),
        ("error sending request", 3),
    ],
)
def test_what_a_server_refuses_for_good_is_not_tried_again(text, attempts, memory):
    store = store_of(memory, 99, RuntimeError(text))
    with pytest.raises(DataError if attempts == 1 else RunError):
        attempt("x", lambda: store._files.info("x"))
    assert store._files.asked == attempts


@pytest.mark.parametrize("fresh", [True, False], ids=["new names", "the same page"])
def test_a_listing_without_an_end_is_refused(fresh, endless, monkeypatch):
    """Mutation seen to fail: no bound, so that the names fill the memory."""
    endless.fresh = fresh
    monkeypatch.setattr(stores, "MOST_OBJECTS", 25)
    with (
        deadline(30),
        pytest.raises(DataError, match=r"s3://b/x: expected `objects` to be at most 25, each once, got \d+ and no end"),
    ):
        open_store("s3://b/x").objects()
    assert endless.pages < 50
    assert open_store("s3://b/x").look("run.json") is None  # a folder, as far as the server tells


def test_an_unreachable_server_is_named(monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(RunError, match="s3://b/x: can't be read or written, after 3 attempts"):
        open_store("s3://b/x").objects()


def test_a_web_server_is_found_by_its_name_and_port(web):
    """Mutation seen to fail: the path as it is, whose host the library takes for the scheme of a URL."""
    root, url = web
    (root / "a;b.png").write_bytes(b"123")
    found = open_store(url.replace("127.0.0.1", "localhost")).look("a;b.png")
    assert found is not None
    assert found.size == 3


def test_a_web_server_gives_files(web):
    root, url = web
    (root / "a.bin").write_bytes(b"12345")
    (found,) = open_store(f"{url}/a.bin").objects()
    assert (found.name, found.size) == ("", 5)
    assert found.stamp
    assert b"".join(open_store(f"{url}/a.bin").read("", 5)) == b"12345"
    assert open_store(f"{url}/no.bin").objects() == []


def test_members_of_archives_are_objects(tmp_path, s3):
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("in/a", b"one")
        archive.writestr("b", b"two")
    store = open_store(f"zip://::{tmp_path / 'all.zip'}")
    assert [(each.name, each.size) for each in store.objects()] == [("b", 3), ("in/a", 3)]
    s3.put("all.zip", (tmp_path / "all.zip").read_bytes())
    inner = open_store(f"zip://in::{s3.url}/all.zip")
    assert [each.name for each in inner.objects()] == ["a"]
    assert b"".join(inner.read("a", 3)) == b"one"
    assert inner.place("a") == f"zip://in/a::{s3.url}/all.zip"


def test_a_missing_package_is_said(monkeypatch):
    def lacking(name):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(stores, "import_module", lacking)
    with pytest.raises(ConfigError, match=r"to be installed to read URLs, .*pip install 'segmeter\[s3\]'"):
        open_store("s3://b/x")
