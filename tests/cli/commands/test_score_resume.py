"""Interrupted scoring: what a killed run leaves, and that going on gives the bytes of an uninterrupted one."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import chdir
from pathlib import Path

import numpy as np
import pytest

from segmeter.cli import run_folder
from segmeter.errors import RunError
from segmeter.evaluation.manifest import JOURNAL, Entry, Manifest
from tests.cli.sharded import done, make_pairs, newest, run
from tests.data.crafted import put

FAST = ["metrics.bootstrap=20", "data.num_classes=3", "data.ignore_index=255", "run.name=x", "report.html=false"]
SCORE = ["score", "predictions=predictions", "references=references", *FAST, "metrics.measures=[boundary,events]"]
RESULTS = ("metrics.json", "cases.parquet", "cases.csv", "objects.parquet")
CASES = 12
NAMES = [f"case{seed:02}" for seed in range(CASES)]
KILLED = """
import os, signal, sys
from segmeter.cli.main import main
from segmeter.evaluation.manifest import Manifest
add, left, how = Manifest.add, [int(sys.argv.pop(1))], sys.argv.pop(1)
def add_and_die(self, entry):
    add(self, entry)
    left[0] -= 1
    if not left[0]:
        self.flush()
        if how == "torn":
            os.write(self._journal._handle, b"half a batch")
        os.kill(os.getpid(), signal.SIGKILL)
Manifest.add = add_and_die
main(sys.argv[1:])
"""


def results(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in RESULTS}


@pytest.fixture(autouse=True)
def _cases(in_tmp: None) -> None:
    make_pairs(Path(), NAMES, wrong=lambda seed: 60)


def killed_after(count: int, how: str = "whole") -> Path:
    """Run until so many cases are done; returns the run's folder."""
    command = [sys.executable, "-c", KILLED, str(count), how, *SCORE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    folder = newest("runs/score")
    assert not (folder / "metrics.json").exists()
    return folder


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The results of a run that nothing interrupted."""
    root = tmp_path_factory.mktemp("clean")
    make_pairs(root, NAMES, wrong=lambda seed: 60)
    with chdir(root):
        return results(done(*SCORE))


def stopped_after(count: int) -> Path:
    """Run in this process until so many cases are done; returns the run's folder."""
    add, left = Manifest.add, [count]

    def add_and_stop(self: Manifest, entry: Entry) -> None:
        add(self, entry)
        left[0] -= 1
        if not left[0]:
            raise RunError("stopped by the test.")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Manifest, "add", add_and_stop)
        assert run(*SCORE) == 3
    return newest("runs/score")


@pytest.mark.parametrize(("count", "how"), [(7, "torn"), pytest.param(CASES, "whole", marks=pytest.mark.slow)])
def test_a_killed_run_goes_on_to_the_same_bytes(count: int, how: str, clean: dict[str, bytes]) -> None:
    folder = killed_after(count, how)
    assert (folder / JOURNAL).read_bytes().endswith(b"half a batch") == (how == "torn")
    measured, add = list[Entry](), Manifest.add
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Manifest, "add", lambda self, entry: (measured.append(entry), add(self, entry)))
        assert run(*SCORE, "resume=auto") == 0
    assert len(measured) == CASES - count
    assert results(folder) == clean
    assert json.loads((folder / "manifest.json").read_text())["state"] == "done"
    assert not (folder / JOURNAL).exists()
    assert len(list(Path("runs/score").iterdir())) == 1


def test_a_finished_run_is_shown_again_and_not_done_again(capsys: pytest.CaptureFixture[str]) -> None:
    line = [*SCORE, "images=images", "report.overlays=1"]
    folder = done(*line)
    before = {name: (folder / name).stat().st_ino for name in RESULTS}
    assert run(*line, f"resume={folder}") == 0
    assert {name: (folder / name).stat().st_ino for name in RESULTS} == before
    assert capsys.readouterr().out.count("mean IoU") == 2


def test_other_configurations_changed_files_and_new_cases_are_refused(refused) -> None:
    folder = stopped_after(3)
    records = (folder / "config.yaml").read_bytes()
    text = refused(*SCORE, "metrics.background=false", "data.ignore_index=254", f"resume={folder}")
    assert "resume: `metrics.background` was True and is False now." in text
    assert "resume: `data.ignore_index` was 255 and is 254 now." in text
    assert (folder / "config.yaml").read_bytes() == records
    put(Path("predictions/case01.png"), np.zeros((20, 30), np.uint8))
    changed = "the files of cases changed since they were measured (1: case01)"
    assert changed in refused(*SCORE, f"resume={folder}")
    for role in ("references", "predictions"):
        shutil.copy(f"{role}/case00.png", f"{role}/new.png")
    assert "resume: cases that were not there (1: new)." in refused(*SCORE, f"resume={folder}")


def contents(folder: Path) -> dict[str, bytes]:
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in (".lock", ".owner")]
    return {str(path): path.read_bytes() for path in paths}


@pytest.mark.parametrize("finished", [True, False])
def test_files_of_another_model_are_refused(finished: bool, refused) -> None:
    """In a folder of their own, and written over those that were measured."""
    assert not finished or run(*SCORE) == 0
    folder = newest("runs/score") if finished else stopped_after(CASES)
    before = contents(folder)
    shutil.copytree("predictions", "modelB")
    for other in ("modelB", "predictions"):
        put(Path(other) / "case03.png", np.ones((20, 30), np.uint8))
        said = refused(*SCORE, f"predictions={other}", "resume=auto")
        assert "the files of cases changed since they were measured (1: case03)" in said
        assert contents(folder) == before


def test_other_probabilities_of_a_finished_run_are_refused(refused) -> None:
    probs = np.full((3, 20, 30), 1 / 3, np.float32)
    for seed in range(CASES):
        put(Path(f"probs/case{seed:02}.npy"), probs)
    again = [*SCORE, "probs=probs", "resume=auto"]
    assert [run(*again[:-1]), run(*again)] == [0, 0]
    put(Path("probs/case05.npy"), probs + np.float32([[[0.1]], [[-0.1]], [[0]]]))
    assert "changed since they were measured (1: case05)" in refused(*again)


def test_a_damaged_result_of_a_finished_run_is_made_again(clean, capsys):
    folder = done(*SCORE)
    for name in RESULTS:
        (folder / name).write_bytes(b"")
        assert run(*SCORE, "resume=auto") == 0
        assert f"warning: resume: missing or damaged files are written again (1: {name})" in capsys.readouterr().err
        assert results(folder) == clean


def test_much_work_before_bad_input_is_kept_and_said(clean, monkeypatch, refused):
    monkeypatch.setattr(run_folder, "KEEP_SECONDS", 0.0)
    good = Path("predictions/case05.png").read_bytes()
    put(Path("predictions/case05.png"), good[:50])
    said = refused(*SCORE)
    folder = newest("runs/score")
    assert f"segmeter: run: the finished work is kept. Go on with resume={folder}." in said
    put(Path("predictions/case05.png"), good)
    assert run(*SCORE, "resume=auto") == 0
    assert results(folder) == clean


@pytest.mark.slow
def test_processes_give_the_same_bytes_as_threads(clean: dict[str, bytes]) -> None:
    assert results(done(*SCORE, "workers=2")) == clean


SLOW = """
import sys, time
from segmeter.cli.main import main
from segmeter.evaluation import pair_maps
read = pair_maps.read_map
pair_maps.read_map = lambda *given, **more: (time.sleep(0.3), read(*given, **more))[1]
main(sys.argv[1:])
"""
ENDS = {"SIGINT": (130, "interrupted"), "SIGTERM": (143, None), "SIGUSR1": (3, None), "SIGHUP": (129, None)}


def stopped_by(name: str, *, times: int = 1) -> tuple[int, str, Path]:
    """Send a signal when the first case is noted; the exit code, what was said, and the run's folder."""
    child = subprocess.Popen([sys.executable, "-c", SLOW, *SCORE], stderr=subprocess.PIPE, text=True)
    limit = time.monotonic() + 60
    while time.monotonic() < limit and not list(Path().glob(f"runs/score/*/{JOURNAL}")):
        time.sleep(0.05)
    for _ in range(times):
        os.kill(child.pid, getattr(signal, name))
    _, errors = child.communicate(timeout=60)
    return child.returncode, errors, newest("runs/score")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "SIGTERM" else [pytest.mark.slow]) for name in ENDS]
)
def test_a_signal_ends_with_its_code_one_line_and_a_true_state(name: str, clean: dict[str, bytes]) -> None:
    code, errors, folder = stopped_by(name)
    expected, state = ENDS[name]
    state = state or f"stopped by {name}"
    assert code == expected, errors
    assert [line for line in errors.splitlines() if not line.startswith("scoring")] == [f"segmeter: {state}."]
    assert json.loads((folder / "run.json").read_text())["state"] == state
    assert run(*SCORE, "resume=auto") == 0
    assert results(folder) == clean


@pytest.mark.slow
def test_a_second_signal_ends_at_once() -> None:
    code, errors, _ = stopped_by("SIGINT", times=2)
    assert code == 130
    assert "Traceback" not in errors
