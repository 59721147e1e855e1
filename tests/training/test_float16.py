"""A run in float16, whose loss is scaled: the same loop with a scaler on the CPU, as float16 itself needs a GPU."""

import pytest
import torch
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


def test_other_precisions_skip_nothing_and_do_not_speak_of_it(tmp_path):
    train(tiny_job(tmp_path, epochs=1))
    assert "skipped_updates" not in logged(tmp_path)[0]


@pytest.mark.parametrize("log_every", [1, 50])
def test_a_gradient_that_never_becomes_finite_ends_the_run_with_its_cases(tmp_path, scaled, log_every):
    segmenter = overflowing(tiny_segmenter(), range(4, 1000))
    job = tiny_job(tmp_path, segmenter=segmenter, epochs=None, steps=200, max_skipped=6, log_every=log_every)
    with pytest.raises(RunError, match=r"6 updates in a row were skipped .*the last at step 9 .*cases 'case\d\d'"):
        train(job)
    assert read_checkpoint(tmp_path / "checkpoints" / "last").progress["step"] <= 9


def test_the_count_of_skipped_updates_outlives_a_resume(tmp_path, scaled):
    options = {
        "epochs": None,
        "max_skipped": 6,
        "log_every": 50,
        "val_cases": None,
        "allow_changes": ("training.steps",),
    }
    train(tiny_job(tmp_path, segmenter=overflowing(tiny_segmenter(), range(3, 1000)), steps=5, **options))
    again = overflowing(tiny_segmenter(), range(1000))
    with pytest.raises(RunError, match=r"6 updates in a row were skipped .*the last at step 8 "):
        train(tiny_job(tmp_path, segmenter=again, steps=50, resume=True, **options))


@pytest.mark.parametrize("first", ["float32", "float16"])
def test_a_resume_that_may_change_its_precision_restarts_the_scaler_and_says_so(tmp_path, monkeypatch, caplog, first):
    """It raised TypeError: the state of a run without a scaler is None."""
    for precision in (first, "float16" if first == "float32" else "float32"):
        scaler = GradScaler("cpu", init_scale=1024.0) if precision == "float16" else None
        monkeypatch.setattr(learner, "build_scaler", lambda device, precision, found=scaler: found)
        steps = 2 if precision == first else 4
        changes = ("training.steps", "training.precision")
        result = train(
            tiny_job(
                tmp_path, epochs=None, steps=steps, val_cases=None, resume=precision != first, allow_changes=changes
            )
        )
        assert result.steps == steps
    words = "the search for that of float16 starts" if first == "float32" else "the loss scale of float16 is dropped"
    assert words in caplog.text


def test_accumulated_scaled_steps_are_the_plain_ones(tmp_path, scaled, monkeypatch):
    weights = []
    for name, build in (("scaled", learner.build_scaler), ("plain", lambda device, precision: None)):
        monkeypatch.setattr(learner, "build_scaler", build)
        segmenter = tiny_segmenter()
        train(tiny_job(tmp_path / name, segmenter=segmenter, accumulate=2, epochs=2, val_cases=None))
        weights.append(torch.cat([parameter.detach().flatten() for parameter in segmenter.parameters()]))
    torch.testing.assert_close(*weights)
