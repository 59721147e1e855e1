"""URLs, the requests to their stores, and the copies of runs there."""

import itertools
import os
import re
import socket
import zipfile
from pathlib import Path

import pytest

from segmeter.errors import ConfigError, DataError, RunError
from segmeter.remote import fetch, stores
from segmeter.remote.stores import find_files, upload_folder
from tests.deadline import deadline


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("runs/a", None),
        ("/data/s3/x", None),
        ("C:/data", None),
        ("s3://bucket/a b/c/", "s3://bucket/a b/c"),
        ("S3://bucket", "s3://bucket"),
        ("file:///data/x", "file:///data/x"),
        ("zip://in/side::https://host/all.zip", "zip://in/side::https://host/all.zip"),
        ("zip://::data/all.zip", "zip://::data/all.zip"),
        ("zip://in::data/all.zip/side/a.png", "zip://in/side/a.png::data/all.zip"),
        ("http://host:8080/x@2", "http://host:8080/x@2"),
        ("s3://bucket/x@2", "s3://bucket/x@2"),
    ],
)
def test_a_url_survives_being_a_path(given, url):
    assert stores.url_of(given) == url
    assert stores.url_of(Path(given)) == url


def test_another_scheme_is_refused_with_those_that_are_read_and_an_archive_has_to_be_named():
    with pytest.raises(ConfigError, match=r"a URL of s3, gs, .*, got ftp://"):
        stores.url_of("ftp://host/x")
    with pytest.raises(ConfigError, match=r"name an archive, .zip, after ::"):
        stores.url_of("zip://a/b")


@pytest.mark.parametrize(
    "given",
    [
        "https://me:hidden@host/x",
        "s3://key:hidden@bucket/x",
        "s3://AKIAX:hid/hidden@bucket/x",
        "https:///u:p/hidden@host/x",
        "https://host/x?sig=hidden",
        "https://host/x#sig=hidden",
        "az://c/x?sv=1&sig=hidden",
        "gs://b/x?X-Goog-Signature=hidden",
        "zip://a::s3://b/x.zip?X-Amz-Signature=hidden.zip",
        "s3://key:pass::hidden@bucket/x",
        "zip://a::s3://key:pass::hidden@bucket/x.zip",
    ],
)
def test_a_login_or_signature_is_refused_and_not_repeated(given):
    with pytest.raises(ConfigError, match="Give credentials by the environment") as refused:
        stores.url_of(given)
    assert "hidden" not in str(refused.value)


def test_the_url_of_a_path_that_was_made_from_it_is_said():
    assert stores.origin("/data/a.png") == "/data/a.png"
    assert stores.origin(Path.cwd() / Path("s3://b/x") / "a.png") == "s3://b/x/a.png"
    assert stores.origin("/home/me/zip:/in::s3:/b/all.zip/a.png") == "zip://in/a.png::s3://b/all.zip"
    assert stores.origin("/data/zip:/notes") == "/data/zip:/notes"


class Broken:
    """Work that fails some times first."""

    def __init__(self, times, error):
        self.times, self.error, self.asked = times, error, 0

    def __call__(self, name=""):
        self.asked += 1
        if self.asked <= self.times:
            raise self.error


def test_a_lost_connection_is_tried_again_and_named(memory, caplog):
    memory.put("a", b"123")
    memory.fault = Broken(2, ConnectionError("reset by peer"))
    assert stores.find_object(f"{memory.url}/a").size == 3
    assert caplog.messages == [f"{memory.url}/a: reset by peer; trying again in 0 s."] * 2
    memory.fault = Broken(99, TimeoutError("timed out"))
    with pytest.raises(RunError, match=rf"{memory.url}/a: can't be read or written, after 3 attempts \(timed out\)"):
        stores.find_object(f"{memory.url}/a")


def test_what_may_not_be_looked_at_is_not_taken_for_absent(memory):
    assert stores.find_object(f"{memory.url}/a") is None
    memory.fault = Broken(99, PermissionError("403"))
    with pytest.raises(DataError, match="to be there and readable, got 403"):
        stores.find_object(f"{memory.url}/a")


def test_a_name_that_leads_elsewhere_is_refused(s3):
    s3.put("x/../up", b"1")
    with pytest.raises(DataError, match="to be there and readable, got Encountered object with invalid path"):
        stores.list_objects(f"{s3.url}/x")


def test_s3_is_listed_read_and_written(s3, tmp_path):
    s3.put("data/a.bin", b"one")
    s3.put("data/in/b.bin", bytes(20_000_000))
    for name in ("data/", "data/in/"):  # what consoles make of folders
        s3.put(name, b"")
    found = stores.list_objects(f"{s3.url}/data")
    assert [(each.name, each.size) for each in found] == [("a.bin", 3), ("in/b.bin", 20_000_000)]
    assert stores.read_object(f"{s3.url}/data/in/b.bin", tmp_path / "b", "in/b.bin") == found[1]
    assert (tmp_path / "b").read_bytes() == bytes(20_000_000)
    (tmp_path / "c").write_bytes(b"three")
    stores.write_object(f"{s3.url}/data/c", tmp_path / "c")
    assert s3.get("data/c") == b"three"
    assert stores.list_objects(s3.url)[0].name == "data/a.bin"
    with pytest.raises(DataError, match="to hold something, got nothing there"):
        stores.list_objects(f"{s3.url}/nothing")


@pytest.mark.parametrize("ask", [stores.list_objects, stores.find_object, stores.check_target])
def test_a_missing_bucket_is_refused_at_once(ask, s3, caplog):
    with pytest.raises(DataError, match="got NoSuchBucket: The specified bucket does not"):
        ask("s3://nobucket/x")
    assert not caplog.records  # nothing was tried again


STATUS = "Server returned non-2xx status code: "


@pytest.mark.parametrize(
    ("error", "attempts"),
    [
        (FileNotFoundError("gone"), 1),
        (PermissionError("403"), 1),
        (RuntimeError(f"{STATUS}400 Bad Request: <Code>InvalidBucketName</Code>"), 1),
        (RuntimeError(f"{STATUS}400 Bad Request: <Code>RequestTimeout</Code>"), 3),
        (RuntimeError(f"{STATUS}429 Too Many Requests: <Code>TooManyRequests</Code>"), 3),
        (RuntimeError(f"{STATUS}503 Slow Down"), 3),
        (RuntimeError("error sending request"), 3),
    ],
    ids=str,
)
def test_what_is_not_there_or_refused_for_good_is_not_tried_again(error, attempts):
    work, line = Broken(99, error), "after 3 attempts" if attempts == 3 else "to be there and readable, got "
    with pytest.raises(RunError if attempts == 3 else DataError, match=line) as caught:
        stores.retry("memory://x", lambda store, inner: work())
    assert str(error)[:40] in str(caught.value)
    assert work.asked == attempts


@pytest.mark.parametrize("fresh", [True, False], ids=["new names", "the same page"])
def test_a_listing_without_an_end_is_refused(fresh, memory, monkeypatch):
    memory.put("x/a", b"1")
    page, asked = next(iter(memory.store.list("x"))), []

    def pages(name, **options):
        for number in itertools.count():
            asked.append(number)
            yield [{**page[0], "path": f"x/{number * fresh}"}]

    monkeypatch.setattr(memory, "list", pages)
    monkeypatch.setattr(stores, "MOST_OBJECTS", 25)
    with pytest.raises(DataError, match=r"expected `objects` to be at most 25, each once, got \d+ and no end"):
        stores.list_objects(f"{memory.url}/x")
    assert len(asked) < 50


def test_an_unreachable_server_is_named(monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(RunError, match="s3://b/x: can't be read or written, after 3 attempts"):
        stores.list_objects("s3://b/x")


def test_a_web_server_gives_files_by_its_name_and_port(web, tmp_path):
    root, url = web
    (root / "a;b.png").write_bytes(b"123")
    here = f"{url.replace('127.0.0.1', 'localhost')}/a;b.png"
    (found,) = stores.list_objects(here)
    assert (found.name, found.size) == ("", 3)
    assert found.stamp
    assert stores.read_object(here, tmp_path / "a") == found
    with pytest.raises(DataError, match=r"nothing there. A web server lists nothing: name a file, or zip"):
        stores.list_objects(f"{url}/no.bin")


def test_a_missing_package_is_said(monkeypatch):
    def lacking(name):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(stores, "import_module", lacking)
    with pytest.raises(ConfigError, match=r"to be installed to read URLs, .*pip install 'segmeter\[s3\]'"):
        stores.list_objects("s3://b/x")


def test_an_archive_that_is_none_is_refused(tmp_path):
    (tmp_path / "all.zip").write_bytes(b"no")
    with pytest.raises(DataError, match="to be a ZIP file that can be read, got File is not a zip file"):
        fetch(f"zip://in::{tmp_path}/all.zip")
    with zipfile.ZipFile(tmp_path / "all.zip", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a", bytes(100))
    damaged = bytearray((tmp_path / "all.zip").read_bytes())
    damaged[40] = 255
    (tmp_path / "all.zip").write_bytes(damaged)
    with pytest.raises(DataError, match="to be a ZIP file that can be read, got Corrupt input data"):
        fetch(f"zip://::{tmp_path}/all.zip")
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("../../up", b"one")
    assert [path.name for path in fetch(f"zip://::{tmp_path}/all.zip").rglob("*")] == ["up"]


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "2026-11-21_a"
    (folder / "checkpoints" / "step-1").mkdir(parents=True)
    (folder / "checkpoints" / "best").symlink_to("step-1")
    (folder / "checkpoints" / "step-1" / "model").write_bytes(b"weights")
    (folder / "run.json").write_bytes(b"{}")
    (folder / ".lock").write_bytes(b"mine")
    return folder


def test_a_run_is_copied_with_what_its_links_lead_to_and_run_json_last(run, s3, monkeypatch):
    written, write = [], stores.write_object
    monkeypatch.setattr(stores, "write_object", lambda url, source: (written.append(url), write(url, source)))
    assert upload_folder(run, f"{s3.url}/runs/", name=run.name) == f"{s3.url}/runs/2026-11-21_a"
    assert s3.names() == [
        f"runs/2026-11-21_a/{name}" for name in ("checkpoints/best/model", "checkpoints/step-1/model", "run.json")
    ]
    assert written[-1].endswith("/run.json")
    back = fetch(f"{s3.url}/runs/2026-11-21_a")
    assert (back / "checkpoints" / "best" / "model").read_bytes() == b"weights"
    with pytest.raises(ConfigError, match=r"to hold no run of this name, got .*/2026-11-21_a"):
        upload_folder(run, f"{s3.url}/runs", name=run.name)


def test_folders_of_this_machine_have_urls_too(run, tmp_path):
    upload_folder(run, f"file://{tmp_path}/there", name=run.name)
    assert (tmp_path / "there" / run.name / "checkpoints" / "best" / "model").read_bytes() == b"weights"
    names = ["checkpoints/best/model", "checkpoints/step-1/model", "run.json"]
    assert [each.name for each in stores.list_objects(f"file://{tmp_path}/there/{run.name}")] == names


@pytest.mark.parametrize("given", ["runs", "https://host/x", "zip://a::b.zip"])
def test_what_can_not_be_written_is_refused_before_the_run(given):
    with pytest.raises(ConfigError, match=r"run.copy_to` to be a URL that can be written"):
        stores.check_target(given)


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("shadow", "/etc/passwd"),
        ("up", "../outside"),
        ("checkpoints/step-1/here", ".."),
        ("deep", "checkpoints/step-1"),
        ("itself", "."),
        ("lost", "nowhere"),
        ("round", "round"),
        ("checkpoints/step-1/out", "../../../folder"),
    ],
)
def test_a_link_that_leaves_the_run_or_leads_to_a_folder_is_refused_by_name(name, target, run, memory):
    (run.parent / "outside").write_text("secret")
    (run.parent / "folder").mkdir()
    (run / name).symlink_to(target)
    refused = f"run.copy_to: {run / name} is a link that leads out of the run, to a folder, or nowhere"
    with pytest.raises(RunError, match=re.escape(refused)), deadline(30):
        upload_folder(run, memory.url, name="a")
    assert not memory.names()


def test_a_link_to_a_file_of_the_run_is_that_file(run):
    (run / "newest").symlink_to("checkpoints/best/model")
    model = run / "checkpoints" / "step-1" / "model"
    links = dict.fromkeys(("checkpoints/best/model", "checkpoints/step-1/model", "newest"), model)
    assert find_files(run) == links | {"run.json": run / "run.json"}


def test_a_pipe_or_socket_is_refused_by_name(run, monkeypatch):
    """Reading a pipe would wait for a writer without end."""
    os.mkfifo(run / "pipe")
    monkeypatch.chdir(run)  # the name of a socket is short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
    with pytest.raises(RunError) as caught:
        find_files(run)
    names = [line.split(" is ")[0] for line in caught.value.problems]
    assert names == [f"run.copy_to: {run / name}" for name in ("pipe", "socket")]
