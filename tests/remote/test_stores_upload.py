import os
import re
import socket
from pathlib import Path

import pytest

from segmeter.errors import ConfigError, RunError
from segmeter.remote import fetch, stores
from segmeter.remote.stores import check_target, find_files, upload_folder
from tests.deadline import deadline


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


def test_a_run_is_never_written_over(run, memory):
    upload_folder(run, memory.url, name="a")
    with pytest.raises(ConfigError, match=r"to hold no run of this name, got .*/a"):
        upload_folder(run, memory.url, name="a")


def test_a_folder_of_this_machine_may_be_a_target(run, tmp_path):
    upload_folder(run, f"file://{tmp_path}/there", name=run.name)
    assert (tmp_path / "there" / run.name / "checkpoints" / "best" / "model").read_bytes() == b"weights"


@pytest.mark.parametrize("given", ["runs", "https://host/x", "zip://a::b.zip"])
def test_what_can_not_be_written_is_refused_before_the_run(given):
    with pytest.raises(ConfigError, match=r"run.copy_to` to be a URL that can be written"):
        check_target(given)


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
    assert find_files(run) == {
        "checkpoints/best/model": model,
        "checkpoints/step-1/model": model,
        "newest": model,
        "run.json": run / "run.json",
    }


def test_a_pipe_or_socket_is_refused_by_name(run):
    """Reading a pipe would wait for a writer without end."""
    os.mkfifo(run / "pipe")
    here = Path.cwd()
    os.chdir(run)  # the name of a socket is short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
    os.chdir(here)
    with pytest.raises(RunError) as caught:
        find_files(run)
    assert [line.split(" is ")[0] for line in caught.value.problems] == [
        f"run.copy_to: {run / name}" for name in ("pipe", "socket")
    ]
