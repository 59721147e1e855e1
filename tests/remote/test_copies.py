"""run.copy_to that fails: run.json says so as the exit code does, and a resume copies the run."""

import json
from pathlib import Path

import pytest

from segmeter.errors import RunError
from segmeter.remote import stores
from tests.cli.sharded import SCORE, TRAIN, newest, run

pytestmark = pytest.mark.usefixtures("in_here")

FAST = (*SCORE, "images=null", "metrics.measures=[]", "report.overlays=0", "report.worst=0")


@pytest.fixture
def lossy(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names whose objects can't be written."""
    refused, write = [], stores.write_object

    def fail(url: str, source: Path) -> None:
        if any(part in url for part in refused):
            raise RunError(f"{url}: can't be written.")
        write(url, source)

    monkeypatch.setattr(stores, "write_object", fail)
    return refused


def state_of(folder: Path) -> str:
    return str(json.loads((folder / "run.json").read_bytes())["state"])


def copied(memory, folder: Path, name: str) -> bytes:
    return bytes(memory.content(f"runs/{folder.name}/{name}"))


@pytest.mark.parametrize("lost", ["metrics.json", "run.json"])
def test_a_run_that_could_not_be_copied_says_so_and_a_resume_copies_it(lost: str, memory, lossy, capsys) -> None:
    """Mutation seen to fail: run.json says that the run is done, while the command failed."""
    lossy.append(lost)
    assert run("score", *FAST, f"run.copy_to={memory.url}/runs") == 3
    folder = newest("runs/score")
    lines = capsys.readouterr().err.splitlines()
    assert f"/{lost}: can't be written." in lines[-2]
    assert (
        lines[-1] == f"segmeter: run: the results in {folder} are whole, but not copied: copy it with resume={folder}."
    )
    assert state_of(folder).startswith("stopped: memory://")
    assert json.loads((folder / "run.json").read_bytes())["result"]
    lossy.clear()
    assert run("score", f"resume={folder}") == 0
    assert state_of(folder) == "done"
    assert copied(memory, folder, "run.json") == (folder / "run.json").read_bytes()
    assert copied(memory, folder, "metrics.json") == (folder / "metrics.json").read_bytes()


@pytest.mark.slow
def test_a_training_that_could_not_be_copied_is_copied_by_a_resume(memory, lossy) -> None:
    lossy.append("model.safetensors")
    assert run("train", *TRAIN, "training.epochs=1", f"run.copy_to={memory.url}/runs") == 3
    folder = newest("runs/train")
    assert state_of(folder).startswith("stopped: ")
    lossy.clear()
    assert run("train", f"resume={folder}") == 0
    assert state_of(folder) == "done"
    best = folder / "checkpoints" / "best" / "model.safetensors"
    assert copied(memory, folder, "checkpoints/best/model.safetensors") == best.read_bytes()
