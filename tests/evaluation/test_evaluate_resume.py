"""Interrupted evaluations: what is done is not predicted again, and the end is that of an uninterrupted one."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from segmeter.evaluation.evaluate import Evaluation, evaluate
from segmeter.evaluation.manifest import Manifest, read_batches
from segmeter.export.config import ExportConfig
from segmeter.inference.config import InferenceConfig
from segmeter.inference.predictor import Predictor
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.postprocess.config import PostprocessConfig
from tests.training.tiny import LongTarget, TinyCases, cross_entropy, tiny_segmenter

COUNT, BATCH = 11, 3
KILLED = """
import os, signal, sys
from pathlib import Path
from segmeter.evaluation.evaluate import evaluate
from segmeter.evaluation.manifest import Manifest
from tests.evaluation.test_evaluate_resume import job
add, left = Manifest.add, [int(sys.argv[2])]
def add_and_die(self, entry):
    add(self, entry)
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
Manifest.add = add_and_die
evaluate(job(Path(sys.argv[1])))
"""


def job(folder: Path, **changes: object) -> Evaluation:
    predictor = Predictor(tiny_segmenter(), InferenceConfig(precision="float32", batch_size=BATCH), torch.device("cpu"))
    fields = {
        "predictor": predictor,
        "dataset": TinyCases(count=COUNT),
        "loss": LongTarget(cross_entropy()),
        "export": ExportConfig(probs=True),
        "postprocess": PostprocessConfig(),
        "metrics": MetricsConfig(bootstrap=20),
        "folder": folder,
        "identity": {"checkpoint": "0"},
    }
    return Evaluation(**(fields | changes))  # type: ignore[arg-type]


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("clean")
    evaluate(job(folder))
    return files(folder)


def interrupted(folder: Path, after: int, patch: pytest.MonkeyPatch) -> None:
    """Leave when so many cases are noted."""
    add, left = Manifest.add, [after]

    def add_and_leave(self: Manifest, entry: object) -> None:
        add(self, entry)  # type: ignore[arg-type]
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt

    patch.setattr(Manifest, "add", add_and_leave)
    with pytest.raises(KeyboardInterrupt):
        evaluate(job(folder))
    patch.setattr(Manifest, "add", add)
    assert not (folder / "metrics.json").exists()


@pytest.mark.parametrize("after", [1, 3, 5, COUNT])
def test_an_interrupted_run_ends_with_the_same_bytes(
    after: int, clean: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(tmp_path, after, monkeypatch)
    cases = TinyCases(count=COUNT)
    evaluate(job(tmp_path, dataset=cases, resume=True))
    restored = COUNT - len(cases.read)
    done = after if after == COUNT else after // BATCH * BATCH
    assert restored <= done, "files that still waited to be written are written again"
    assert sorted(cases.read) == list(range(restored, COUNT))
    assert files(tmp_path) == clean


@pytest.mark.slow
def test_a_killed_run_ends_with_the_same_bytes(clean: dict[str, bytes], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), "8"], capture_output=True, text=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert 0 < sum(len(batch) for batch, _ in read_batches(tmp_path)) <= 8
    cases = TinyCases(count=COUNT)
    evaluate(job(tmp_path, dataset=cases, resume=True))
    assert min(cases.read, default=COUNT) % BATCH == 0
    assert files(tmp_path) == clean


def test_a_case_whose_file_is_gone_is_predicted_again(
    clean: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave(self: Manifest, results: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Manifest, "finish", leave)
        with pytest.raises(KeyboardInterrupt):
            evaluate(job(tmp_path))
    for path in (tmp_path / "predictions").rglob("case04.*"):
        path.unlink()
    cases = TinyCases(count=COUNT)
    evaluate(job(tmp_path, dataset=cases, resume=True))
    assert sorted(cases.read) == [3, 4, 5], "its batch"
    assert files(tmp_path) == clean


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def replace_by_a_link(path: Path) -> None:
    path.rename(path.parents[3] / "elsewhere")
    path.symlink_to(path.parents[3] / "elsewhere")


@pytest.mark.parametrize("damage", [empty, flip, Path.unlink, replace_by_a_link])
@pytest.mark.parametrize("finished", [True, False])
def test_a_damaged_file_is_named_and_made_again(
    finished: bool,
    damage: Callable[[Path], None],
    clean: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder = tmp_path / "run"
    if finished:
        evaluate(job(folder))
    else:
        interrupted(folder, 7, monkeypatch)
    damage(folder / "predictions/labels/case04.png")
    cases = TinyCases(count=COUNT)
    evaluate(job(folder, dataset=cases, resume=True))
    assert "missing or damaged files of predictions are written again (1: labels/case04.png)" in caplog.text
    assert {3, 4, 5} <= set(cases.read), "its batch"
    assert not finished or len(cases.read) == 3
    assert files(folder) == clean


@pytest.mark.parametrize("name", ["metrics.json", "cases.csv", "cases.parquet"])
def test_a_damaged_result_of_a_finished_run_is_measured_again(
    name: str, clean: dict[str, bytes], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    evaluate(job(tmp_path))
    flip(tmp_path / name)
    evaluate(job(tmp_path, resume=True))
    assert f"missing or damaged results are written again (1: {name})" in caplog.text
    assert files(tmp_path) == clean


def test_a_finished_run_is_not_done_again(tmp_path: Path) -> None:
    summary = evaluate(job(tmp_path))
    cases = TinyCases(count=COUNT)
    assert evaluate(job(tmp_path, dataset=cases, resume=True)) == summary
    assert cases.read == []


def test_calibration_sees_every_case_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = MetricsConfig(bootstrap=0, calibration=True)
    (tmp_path / "whole").mkdir()
    (tmp_path / "resumed").mkdir()
    whole = evaluate(job(tmp_path / "whole", metrics=metrics))
    interrupted(tmp_path / "resumed", 6, monkeypatch)
    cases = TinyCases(count=COUNT)
    assert evaluate(job(tmp_path / "resumed", dataset=cases, metrics=metrics, resume=True)) == whole
    assert len(cases.read) == COUNT
