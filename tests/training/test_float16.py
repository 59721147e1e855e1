"""A run in float16, whose loss is scaled: the same loop with a scaler on the CPU, as float16 itself needs a GPU."""

import pytest
from torch.amp import GradScaler

from segmeter.errors import RunError
from segmeter.models.checkpoint import read_checkpoint
from segmeter.records import read_json_lines
from segmeter.training import learner
from segmeter.training.trainer import train
from tests.training.tiny import tiny_job, tiny_segmenter


@pytest.fixture
def scaled(monkeypatch):
    monkeypatch.setattr(learner, "build_scaler", lambda device, precision: GradScaler("cpu", init_scale=1024.0))


def overflowing(segmenter, steps):
    """Make the gradient infinite in these backward passes, counted from 1."""
    passes = iter(range(1, 10**6))
    weight = segmenter.network.layers[0].weight
    weight.register_hook(lambda gradient: gradient * (float("inf") if next(passes) in steps else 1.0))
    return segmenter


def logged(folder):
    return [row for row in read_json_lines(folder / "history.jsonl") if "loss" in row]


def test_skipped_updates_are_counted_in_the_history_and_said(tmp_path, scaled, caplog):
    segmenter = overflowing(tiny_segmenter(), {1, 2, 3, 5})
    train(tiny_job(tmp_path, segmenter=segmenter, epochs=None, steps=9, log_every=3, validate_every=None))
    rows = logged(tmp_path)
    assert [row["skipped_updates"] for row in rows] == [3, 1, 0]
    assert rows[0]["grad_norm"] is None  # no update had one
    assert all(row["grad_norm"] > 0 for row in rows[1:])
    assert "3 of the last 3 updates were skipped" in caplog.text


@pytest.mark.parametrize("log_every", [1, 50])
def test_a_gradient_that_never_becomes_finite_ends_the_run_with_its_cases(tmp_path, scaled, log_every):
    segmenter = overflowing(tiny_segmenter(), range(4, 1000))
    job = tiny_job(tmp_path, segmenter=segmenter, epochs=None, steps=200, max_skipped=6, log_every=log_every)
    message = r"6 updates in a row were skipped .*the last at step 9 \(lr .*, cases 'case\d\d', .*precision=bfloat16"
    with pytest.raises(RunError, match=message):
        train(job)
    assert read_checkpoint(tmp_path / "checkpoints" / "last").progress["step"] <= 9


def test_the_count_of_skipped_updates_outlives_a_resume(tmp_path, scaled):
    options = {"epochs": None, "max_skipped": 6, "log_every": 50, "val_cases": None}
    options |= {"allow_changes": ("training.steps",)}
    train(tiny_job(tmp_path, segmenter=overflowing(tiny_segmenter(), range(3, 1000)), steps=5, **options))
    again = overflowing(tiny_segmenter(), range(1000))
    with pytest.raises(RunError, match=r"6 updates in a row were skipped .*the last at step 8 "):
        train(tiny_job(tmp_path, segmenter=again, steps=50, resume=True, **options))


@pytest.mark.parametrize(
    ("scalers", "words"),
    [
        ((None, GradScaler("cpu")), "the search for that of float16 starts"),
        ((GradScaler("cpu"), None), "the loss scale of float16 is dropped"),
    ],
    ids=["to float16", "from float16"],
)
def test_a_resume_that_may_change_its_precision_restarts_the_scaler_and_says_so(
    tmp_path, monkeypatch, caplog, scalers, words
):
    """It raised TypeError: the state of a run without a scaler is None."""
    options = {"epochs": None, "val_cases": None, "allow_changes": ("training.steps", "training.precision")}
    for steps, scaler in zip((2, 4), scalers, strict=True):
        monkeypatch.setattr(learner, "build_scaler", lambda device, precision, found=scaler: found)
        assert train(tiny_job(tmp_path, steps=steps, resume=steps == 4, **options)).steps == steps
    assert words in caplog.text
