import pytest

from segmeter.errors import ConfigError, RunError
from segmeter.remote import stores
from segmeter.remote.folders import local_folder
from segmeter.remote.upload import check_target, upload_folder


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
    written, write = [], stores.Store.write
    monkeypatch.setattr(
        stores.Store, "write", lambda self, name, source: (written.append(name), write(self, name, source))
    )
    assert upload_folder(run, f"{s3.url}/runs/", name=run.name) == f"{s3.url}/runs/2026-11-21_a"
    assert s3.names() == [
        f"runs/2026-11-21_a/{name}" for name in ("checkpoints/best/model", "checkpoints/step-1/model", "run.json")
    ]
    assert written[-1] == "run.json"
    back = local_folder(f"{s3.url}/runs/2026-11-21_a")
    assert (back / "checkpoints" / "best" / "model").read_bytes() == b"weights"


def test_a_run_is_never_written_over(run, memory):
    upload_folder(run, memory.url, name="a")
    with pytest.raises(RunError, match=r"to hold no run of this name, got .*/a.\n.* is done and whole"):
        upload_folder(run, memory.url, name="a")


def test_a_folder_of_this_machine_may_be_a_target(run, tmp_path):
    upload_folder(run, f"file://{tmp_path}/there", name=run.name)
    assert (tmp_path / "there" / run.name / "checkpoints" / "best" / "model").read_bytes() == b"weights"


@pytest.mark.parametrize("given", ["runs", "https://host/x", "zip://a::b.zip"])
def test_what_can_not_be_written_is_refused_before_the_run(given):
    with pytest.raises(ConfigError, match=r"run.copy_to` to be a URL that can be written"):
        check_target(given)
