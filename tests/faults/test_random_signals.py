"""Commands in processes of their own that meet a signal at a random moment, or a read that never ends.

Each ends with its code and its line, and goes on to the same bytes.
"""

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import zarr

from tests.data.crafted import noise, put
from tests.faults.children import Children, Ended
from tests.faults.harness import (
    COMMANDS,
    SEED,
    check_files,
    check_resumed,
    folders,
    line,
    only,
    results,
    resuming,
    run,
    state,
)
from tests.faults.world import write_model
from tests.fuzzing import record, rounds
from tests.models.parts import make_card

ENDS = {
    "SIGKILL": (-9, ""),
    "SIGTERM": (143, "stopped by SIGTERM"),
    "SIGUSR1": (3, "stopped by SIGUSR1"),
    "SIGINT": (130, "interrupted"),
    "SIGHUP": (129, "stopped by SIGHUP"),
}


def check_end(name: str, ended: Ended, context: str) -> None:
    code, word = ENDS[name]
    said = [text for text in ended.errors.splitlines() if text.startswith(("segmeter: ", "Traceback"))]
    states = [state(folder) for folder in folders()]
    if ended.code == 0:  # it came too late
        assert (said, states) == ([], ["done"]), context
        return
    assert ended.code == code, context
    if name == "SIGKILL":
        return
    assert len(said) == 1, context
    assert word in said[0] or name in said[0], context
    assert all(word in each or name in each or not each for each in states), (states, context)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.fuzz
def test_signals_at_random_moments(children: Children, command: str) -> None:
    """Signals in turn, other ones for each command, within the time of a clean run."""
    drawn, seconds = random.Random(f"{SEED} {command}"), children.run(line(command, "runs")).seconds
    first = 2 * list(COMMANDS).index(command)
    for index in range(first, first + rounds(2, 50)):
        name, after = list(ENDS)[index % len(ENDS)], drawn.uniform(0.02, seconds)
        shutil.rmtree("runs", ignore_errors=True)
        ended = children.run(line(command, "runs"), signal=name, after=after)
        context = f"{command}, {name} after {after:.3f} s: {ended}"
        check_files(context)
        check_end(name, ended, context)
        check_resumed(command, run(resuming(command)), context)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("name", "after"), [("SIGINT", 0.2), ("SIGTERM", 1.0)])
@pytest.mark.slow
def test_a_signal_for_the_whole_group_gives_one_line(children: Children, name: str, after: float) -> None:
    """As a terminal or a scheduler sends it, while worker processes start or work."""
    ended = children.run(line("score", "runs", "workers=2"), signal=name, after=after, group=True)
    check_end(name, ended, str(ended))
    check_resumed("score", run(resuming("score")), str(ended))


CASES = 60
COMMON = ["run.name=x", "report.html=false", "report.overlays=0"]
MODEL = ["checkpoint=model", "device=cpu", "inference.precision=float32"]
LINES = {
    "eval": [*MODEL, "data=folder", "data.root=data", "data.split=all", "metrics.bootstrap=10", "export.probs=true"],
    "predict": [*MODEL, "input=large", "inference.tile=64", "export.labels_format=tiff"],
    "score": ["predictions=labels", "references=data/masks", "data.num_classes=3", "metrics.bootstrap=10"],
}
WRITTEN = {"eval": CASES, "predict": 2, "score": 0}  # label maps


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a checkpoint, 60 small cases with other labels beside them, and two pictures that are read by rows."""
    folder = tmp_path_factory.mktemp("killed")
    write_model(str(folder / "model"), make_card())
    for index in range(CASES):
        put(folder / f"data/images/case{index:02}.png", noise(40 + index % 3, 40, seed=index))
        for place, seed in (("data/masks", 99), ("labels", 999)):
            put(folder / place / f"case{index:02}.png", noise(40 + index % 3, 40, None, seed=seed + index) // 86)
    (folder / "large").mkdir()
    for name, height in (("a", 700), ("b", 1100)):
        pixels, path = np.moveaxis(noise(height, 130, seed=height), -1, 0), str(folder / f"large/{name}.zarr")
        zarr.create_array(path, data=pixels, chunks=(3, 128, 128), dimension_names=("c", "y", "x"))
    return folder


@pytest.mark.parametrize("command", LINES)
@pytest.mark.fuzz
def test_a_killed_run_goes_on_to_the_same_bytes(children, world, monkeypatch, command):
    """While it is killed its files are whole; once it has ended, another run begins."""
    kills, cut = rounds(2, 20), 0
    monkeypatch.chdir(world)
    for root in ("clean", "runs"):
        shutil.rmtree(root, ignore_errors=True)
    drawn = random.Random(f"{SEED} {command} {kills}")

    def go(root: str, *more: str, **options: object) -> Ended:
        ended = children.run([command, *COMMON, *LINES[command], f"run.root={root}", *more], **options)
        assert ended.code in (0, -9), ended.errors
        return ended

    first = go("clean")
    assert first.code == 0
    clean = results(only(Path("clean")))
    assert sum(name.startswith("predictions/labels/") for name in clean) == WRITTEN[command]
    while cut < kills:
        after = drawn.uniform(0.02, first.seconds)
        code = go("runs", "resume=auto", signal="SIGKILL", after=after).code
        cut += code == -9
        context = f"{command}, kill {cut} after {after:.3f} s"
        check_files(context)
        if code == 0 or cut == kills:
            go("runs", "resume=auto")
            folder = only(Path("runs"))
            assert results(folder) == clean, context
            assert state(folder) == "done", context
            shutil.rmtree("runs")
    record(f"kills of {command}", kills=kills, seconds_of_a_run=round(first.seconds, 3))


ROOT = Path(__file__).parents[2]
CHECKED = ["data.verify=always"]  # whatever an earlier start has found
READ = [*CHECKED, "training.cache_gb=0"]  # whenever a case is wanted
LIMIT = "data.timeout_s=1.5"
# Command, what more, the file that hangs, and how often it is opened before: for the check at the start, and before the
# first checkpoint
RUNS = {
    "train": ("train", [*READ, "training.workers=2"], "images/case02.png", 3),
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
