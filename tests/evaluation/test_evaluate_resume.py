"""Interrupted evaluations: what is done is not predicted again, and the end is that of an uninterrupted one."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from segmeter.evaluation.manifest import Manifest, read_batches
from segmeter.metrics.config.metrics import MetricsConfig
from tests.evaluation.jobs import empty, evaluated, files, flip, interrupted, predictor
from tests.training.tiny import TinyCases

COUNT, BATCH = 11, 3
KILLED = """
import os, signal, sys
from pathlib import Path
from segmeter.evaluation.manifest import Manifest
from tests.evaluation.test_evaluate_resume import run
add, left = Manifest.add, [int(sys.argv[2])]
def add_and_die(self, entry):
    add(self, entry)
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
Manifest.add = add_and_die
run(Path(sys.argv[1]))
"""


def run(folder, **changes):
    fields = {"predictor": predictor(batch_size=BATCH), "dataset": TinyCases(count=COUNT)}
    return evaluated(folder, **(fields | {"identity": {"checkpoint": "0"}} | changes))


def resume(folder, **changes):
    """Go on with a run; the cases that were read, and the summary."""
    cases = TinyCases(count=COUNT)
    summary = run(folder, dataset=cases, resume=True, **changes)
    return sorted(cases.read), summary


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clean")
    run(folder)
    return files(folder)


@pytest.mark.parametrize("after", [1, 3, 5, COUNT])
def test_an_interrupted_run_ends_with_the_same_bytes(after, clean, tmp_path):
    with interrupted(after):
        run(tmp_path)
    assert not (tmp_path / "metrics.json").exists()
    read, _ = resume(tmp_path)
    restored = COUNT - len(read)
    done = after if after == COUNT else after // BATCH * BATCH
    assert restored <= done, "files that still waited to be written are written again"
    assert read == list(range(restored, COUNT))
    assert files(tmp_path) == clean


@pytest.mark.slow
def test_a_killed_run_ends_with_the_same_bytes(clean, tmp_path):
    command = [sys.executable, "-c", KILLED, str(tmp_path), "8"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert 0 < sum(len(batch) for batch, _ in read_batches(tmp_path)) <= 8
    read, _ = resume(tmp_path)
    assert min(read, default=COUNT) % BATCH == 0
    assert files(tmp_path) == clean


def test_a_case_whose_files_are_gone_is_predicted_again(clean, tmp_path, monkeypatch):
    def leave(self, results):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Manifest, "finish", leave)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path)
    for path in (tmp_path / "predictions").rglob("case04.*"):
        path.unlink()
    assert resume(tmp_path)[0] == [3, 4, 5], "its batch"
    assert files(tmp_path) == clean


def replace_by_a_link(path):
    path.rename(path.parents[3] / "elsewhere")
    path.symlink_to(path.parents[3] / "elsewhere")


@pytest.mark.parametrize("damage", [empty, flip, Path.unlink, replace_by_a_link])
@pytest.mark.parametrize("finished", [True, False])
def test_a_damaged_file_is_named_and_made_again(finished, damage, clean, tmp_path, caplog):
    folder = tmp_path / "run"
    if finished:
        run(folder)
    else:
        with interrupted(7):
            run(folder)
    damage(folder / "predictions/labels/case04.png")
    read, _ = resume(folder)
    assert "missing or damaged files of predictions are written again (1: labels/case04.png)" in caplog.text
    assert {3, 4, 5} <= set(read), "its batch"
    assert not finished or len(read) == 3
    assert files(folder) == clean


@pytest.mark.parametrize("name", ["metrics.json", "cases.csv", "cases.parquet"])
def test_a_damaged_result_of_a_finished_run_is_measured_again(name, clean, tmp_path, caplog):
    run(tmp_path)
    flip(tmp_path / name)
    resume(tmp_path)
    assert f"missing or damaged results are written again (1: {name})" in caplog.text
    assert files(tmp_path) == clean


def test_a_finished_run_is_not_done_again(tmp_path):
    summary = run(tmp_path)
    assert resume(tmp_path) == ([], summary)


def test_calibration_sees_every_case_again(tmp_path):
    metrics = MetricsConfig(bootstrap=0, calibration=True)
    (tmp_path / "whole").mkdir()
    (tmp_path / "resumed").mkdir()
    whole = run(tmp_path / "whole", metrics=metrics)
    with interrupted(6):
        run(tmp_path / "resumed")
    assert resume(tmp_path / "resumed", metrics=metrics) == (list(range(COUNT)), whole)
