"""A read that never ends, as on a file server that is gone: with `data.timeout_s` each command says so, and ends."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.harness import check_files, check_resumed, folders, line, resuming, run, state

ROOT = Path(__file__).parents[2]
CHECKED = ["data.verify=always"]  # whatever an earlier start has found
READ = [*CHECKED, "training.cache_gb=0"]  # whenever a case is wanted
LIMIT = "data.timeout_s=1.5"
# Command, what more, the file that hangs, and how often it is opened before: for the check at the start, and before the
# first checkpoint
RUNS = {
    "train": ("train", [*READ, "training.workers=2"], "images/case02.png", 4),
    "validation": ("train", READ, "images/case05.png", 2),
    "eval": ("eval", CHECKED, "masks/case02.png", 1),
    "predict": ("predict", [], "images/case02.png", 2),
    "score": ("score", ["workers=2"], "labels/case02.png", 0),
}


def start(arguments: list[str], file: str, after: int) -> tuple[int, list[str]]:
    """Run a command in a process of its own, which has to end: its code, and what it says of the fault."""
    path = os.pathsep.join([str(ROOT / "tests/faults/hanging_site"), *sys.path])
    hanging = {"PYTHONPATH": path, "HANG": file, "HANG_AFTER": str(after), "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        [sys.executable, "-m", "segmeter", *arguments],
        env={**os.environ, **hanging},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    said = [text for text in ended.stderr.splitlines() if text.startswith("segmeter: ")]  # beside progress and warnings
    return ended.returncode, said


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("command", "more", "file", "after"), RUNS.values(), ids=RUNS)
@pytest.mark.slow
def test_16_a_read_that_never_ends_is_named_and_the_run_can_go_on(command, more, file, after):
    code, said = start(line(command, "runs", LIMIT, *more), file, after)
    (folder,) = folders()
    assert code == 3, said
    assert len(said) == 1
    number = " was " if command == "score" else " (index "  # its cases are pairs of names, without numbers
    assert said[0].startswith(f"segmeter: data: case {Path(file).stem!r}{number}")
    assert file in said[0]
    assert "not read within 1.5 seconds" in said[0]
    # which of the batches that threads read ahead comes too late is theirs to say: the first one has no checkpoint
    saved = command != "train" or any(folder.glob("checkpoints/step-*/manifest.json"))
    assert said[0].endswith(f"Then go on with resume={folder}." if saved else "or raise data.timeout_s.")
    assert state(folder).startswith(f"stopped: data: case {Path(file).stem!r}")
    check_files(command)
    check_resumed(command, run([*resuming(command), "data.timeout_s=60"]), command)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("command", ["predict", "eval"])
@pytest.mark.slow
def test_a_check_that_never_ends_leaves_no_run(command: str) -> None:
    more = [] if command == "predict" else CHECKED
    code, said = start(line(command, "runs", LIMIT, *more), "images/case02.png", 0)
    assert (code, len(said), folders()) == (3, 1, []), said
    assert "case 'case02'" in said[0]
