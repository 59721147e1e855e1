"""Interrupted scoring: what a killed run leaves, and that going on gives the bytes of an uninterrupted one."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from segmeter.cli.main import main
from segmeter.evaluation.manifest import JOURNAL
from tests.data.crafted import noise, put

FAST = ["metrics.bootstrap=20", "data.num_classes=3", "data.ignore_index=255", "run.name=x", "report.html=false"]
SCORE = ["score", "predictions=predictions", "references=references", *FAST, "metrics.measures=[boundary]"]
RESULTS = ("metrics.json", "cases.parquet", "cases.csv")
CASES = 12
KILLED = """
import os, signal, sys
from segmeter.cli.main import main
from segmeter.evaluation.manifest import Manifest
add, left = Manifest.add, [int(sys.argv.pop(1))]
def add_and_die(self, entry):
    add(self, entry)
    left[0] -= 1
    if not left[0]:
        if sys.argv[1] == "torn":
            os.write(self._file, b"0123abcd {half a li")
        os.kill(os.getpid(), signal.SIGKILL)
Manifest.add = add_and_die
sys.argv.pop(1)
main(sys.argv[1:])
"""


@pytest.fixture(autouse=True)
def _cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for seed in range(CASES):
        target = noise(20, 30, None, seed=seed) % 3
        labels = np.where(noise(20, 30, None, seed=seed + 99) < 60, 0, target).astype(np.uint8)
        put(tmp_path / "references" / f"case{seed:02}.png", target)
        put(tmp_path / "predictions" / f"case{seed:02}.png", labels)
        put(tmp_path / "images" / f"case{seed:02}.png", noise(20, 30, seed=seed))


def run(*arguments: str) -> int:
    try:
        main(arguments)
    except SystemExit as leaving:
        return int(leaving.code or 0)
    return 0


def killed_after(count: int, how: str = "whole") -> Path:
    """Run until so many cases are done; returns the run's folder."""
    command = [sys.executable, "-c", KILLED, str(count), how, *SCORE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    (folder,) = Path("runs/score").iterdir()
    assert not (folder / "metrics.json").exists()
    return folder


@pytest.fixture
def clean(tmp_path: Path) -> dict[str, bytes]:
    """The results of a run that nothing interrupted."""
    assert run(*SCORE, "run.root=clean") == 0
    (folder,) = Path("clean/score").iterdir()
    return {name: (folder / name).read_bytes() for name in RESULTS}


@pytest.mark.parametrize(("count", "how"), [(1, "whole"), (7, "torn"), (CASES, "whole")])
def test_a_killed_run_goes_on_to_the_same_bytes(count: int, how: str, clean: dict[str, bytes]) -> None:
    folder = killed_after(count, how)
    measured = []
    from segmeter.evaluation import manifest

    add = manifest.Manifest.add
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            manifest.Manifest, "add", lambda self, entry: (measured.append(entry.row.case_id), add(self, entry))[1]
        )
        assert run(*SCORE, "resume=auto") == 0
    assert len(measured) == CASES - count
    assert {name: (folder / name).read_bytes() for name in RESULTS} == clean
    state = json.loads((folder / "manifest.json").read_text())
    assert state["state"] == "done"
    assert not (folder / JOURNAL).exists()
    assert len(list(Path("runs/score").iterdir())) == 1


def test_a_finished_run_is_shown_again_and_not_done_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*SCORE, "images=images") == 0
    (folder,) = Path("runs/score").iterdir()
    before = {name: (folder / name).stat().st_ino for name in RESULTS}
    assert run(*SCORE, "images=images", f"resume={folder}") == 0
    assert {name: (folder / name).stat().st_ino for name in RESULTS} == before
    assert capsys.readouterr().out.count("mean IoU") == 2


def test_another_configuration_is_refused_with_the_difference(capsys: pytest.CaptureFixture[str]) -> None:
    folder = killed_after(3)
    records = (folder / "config.yaml").read_bytes()
    assert run(*SCORE, "metrics.background=false", "data.ignore_index=254", f"resume={folder}") == 2
    text = capsys.readouterr().err
    assert "resume: `metrics.background` was True and is False now." in text
    assert "resume: `data.ignore_index` was 255 and is 254 now." in text
    assert (folder / "config.yaml").read_bytes() == records


def test_changed_files_and_other_cases_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    folder = killed_after(3)
    put(Path("predictions/case01.png"), np.zeros((20, 30), np.uint8))
    assert run(*SCORE, f"resume={folder}") == 2
    assert "the files of cases changed since they were measured (1: case01)" in capsys.readouterr().err
    for role in ("references", "predictions"):
        shutil.copy(f"{role}/case00.png", f"{role}/new.png")
    assert run(*SCORE, f"resume={folder}") == 2
    assert "resume: cases that were not there (1: new)." in capsys.readouterr().err


def test_a_case_that_was_not_done_may_be_repaired(clean: dict[str, bytes]) -> None:
    good = Path("predictions/case05.png").read_bytes()
    put(Path("predictions/case05.png"), good[:50])
    assert run(*SCORE) == 2
    put(Path("predictions/case05.png"), good)
    assert run(*SCORE, "resume=auto") == 0
    (folder,) = Path("runs/score").iterdir()
    assert {name: (folder / name).read_bytes() for name in RESULTS} == clean


@pytest.mark.parametrize(
    ("resume", "message"), [("auto", "found no run named 'x'"), ("predictions", "a run folder with manifest.json")]
)
def test_nothing_to_go_on_with_is_said(resume: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*SCORE, f"resume={resume}") == 2
    assert message in capsys.readouterr().err


def test_a_run_whose_name_only_starts_alike_is_another_run(capsys: pytest.CaptureFixture[str]) -> None:
    for other in ("xy", "a_x"):
        put(Path(f"runs/score/2026-01-01_000000_{other}/manifest.json"), b"{}")
    assert run(*SCORE, "resume=auto") == 2
    assert "found no run named 'x'" in capsys.readouterr().err


def test_processes_give_the_same_bytes_as_threads(clean: dict[str, bytes]) -> None:
    assert run(*SCORE, "workers=2") == 0
    (folder,) = Path("runs/score").iterdir()
    assert {name: (folder / name).read_bytes() for name in RESULTS} == clean


def test_ctrl_c_ends_with_130_without_a_traceback_and_can_be_resumed(clean: dict[str, bytes]) -> None:
    slow = "import time; from segmeter.evaluation import cases; read = cases.read_map\n"
    slow += "cases.read_map = lambda *given: (time.sleep(0.3), read(*given))[1]\n"
    code = f"{slow}import sys; from segmeter.cli.main import main; main(sys.argv[1:])"
    child = subprocess.Popen([sys.executable, "-c", code, *SCORE], stderr=subprocess.PIPE, text=True)
    limit = time.monotonic() + 60
    while time.monotonic() < limit and not list(Path().glob(f"runs/score/*/{JOURNAL}")):
        time.sleep(0.05)
    os.kill(child.pid, signal.SIGINT)
    _, errors = child.communicate(timeout=60)
    assert child.returncode == 130, errors
    assert errors.strip().splitlines()[-1] == "segmeter: interrupted."
    assert "Traceback" not in errors
    assert run(*SCORE, "resume=auto") == 0
    (folder,) = Path("runs/score").iterdir()
    assert {name: (folder / name).read_bytes() for name in RESULTS} == clean


def test_auto_goes_on_with_the_newest_run_of_the_name(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("2026-01-02_030405_x", "2026-01-02_030406_x", "2026-01-02_030407_other"):
        folder = Path("runs/score") / name
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text('{"schema": 1, "state": "running", "identity": {}, "cases": {}}')
    assert run(*SCORE, "resume=auto") == 2
    text = capsys.readouterr().err
    assert "resuming runs/score/2026-01-02_030406_x\n" in text
    assert "this is another run" in text
