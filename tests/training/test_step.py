"""One update of the weights, the guard that ends a run, and runs in float16, whose loss is scaled."""

import math
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch import nn
from torch.amp import GradScaler

from segmeter.errors import InputError, RunError
from segmeter.losses.additive import additive
from segmeter.models.checkpoint import read_checkpoint
from segmeter.records import read_json_lines
from segmeter.training import learner
from segmeter.training.data.batches import Batch
from segmeter.training.optimizers import clip_and_step
from segmeter.training.step import DivergenceGuard, StepResult
from segmeter.training.trainer import train
from tests.training.tiny import PLAIN, SPEC, CrossEntropy, stepper, tiny_job, tiny_segmenter


def make_stepper(model, *, scaler=None, **values):
    loss = additive(CrossEntropy(), SPEC)
    return stepper(model, loss=loss, lr=0.1, scaler=scaler, config=PLAIN.replace(**values))


def model_without_batch_norm():
    torch.manual_seed(3)
    return nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 3, 1))


def make_batch(indices):
    rngs = [np.random.default_rng(index) for index in indices]
    image = np.stack([rng.normal(size=(3, 8, 8)).astype(np.float32) for rng in rngs])
    target = np.stack([rng.integers(0, 3, (8, 8)).astype(np.uint8) for rng in rngs])
    return Batch(image=torch.from_numpy(image), target=torch.from_numpy(target), indices=np.array(indices))


def test_images_reach_the_model_with_their_channels_last():
    model, seen, layout = model_without_batch_norm(), [], torch.channels_last
    model.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].is_contiguous(memory_format=layout)))
    make_stepper(model)([make_batch([1, 2])])
    assert seen == [True]


def test_a_scaled_step_over_two_batches_is_the_plain_step_and_an_overflow_is_left_out():
    plain, scaled = model_without_batch_norm(), model_without_batch_norm()
    scaler = GradScaler("cpu", init_scale=1024.0)
    for clip_norm in (None, 0.05):
        make_stepper(plain, clip_norm=clip_norm)([make_batch(range(4))])
        make_stepper(scaled, scaler=scaler, clip_norm=clip_norm)([make_batch([0, 1, 2]), make_batch([3])])
        for one, other in zip(plain.parameters(), scaled.parameters(), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    before = [p.detach().clone() for p in scaled.parameters()]
    optimizer = torch.optim.SGD(scaled.parameters(), lr=0.1)
    scaler.scale(scaled(make_batch([0]).image).sum()).backward()
    scaled[0].bias.grad[0] = float("inf")
    assert not clip_and_step(optimizer, scaler=scaler, clip_norm=1.0).isfinite()
    assert all(torch.equal(one, other) for one, other in zip(scaled.parameters(), before, strict=True))
    assert scaler.get_scale() == 512.0


def guard_of(**options):
    return DivergenceGuard(case_id=lambda index: f"case{index}", **options)


def taken(step, loss, norm=1.0, indices=(0, 1)):
    values = {"loss": torch.tensor(loss), "grad_norm": torch.tensor(norm, dtype=torch.float32)}
    return StepResult(step=step, lr=0.5, indices=[np.array(indices)], **values)


def test_figures_are_read_together_and_handed_out_once():
    guard = guard_of(scaled=True)
    for step, loss, norm in ((1, 0.5, 2.0), (2, 0.25, math.inf), (3, 0.75, 4.0)):
        guard.note(taken(step, loss, norm))
    assert guard.pop_log_row() == {}
    guard.read()
    assert guard.pop_log_row() == {"loss": 0.5, "grad_norm": 3.0, "skipped_updates": 1}
    guard.read()
    assert guard.pop_log_row() == {}


@pytest.mark.parametrize(
    ("loss", "norm", "indices", "message"),
    [
        *((bad, 1.0, (4, 2, 4), rf"loss, got {bad} at step 7 \(lr 0\.5, cases 'case4', 'case2'\)\. Earlier checkpoints")
          for bad in (float("nan"), float("inf"), -float("inf"))),
        (1.0, float("nan"), (0,), "gradient, got nan at step 7"),
        (float("nan"), 1.0, range(20), r"'case7' and 12 more\)"),
    ],
    ids=["nan", "inf", "-inf", "gradient", "many cases"],
)  # fmt: skip
def test_what_is_not_finite_is_an_error_with_step_rate_and_cases(loss, norm, indices, message):
    guard = guard_of(scaled=math.isfinite(norm))  # a loss that overflows is no part of the search for its scale
    guard.note(taken(6, 1.0))
    guard.note(taken(7, loss, norm, indices=tuple(indices)))
    guard.note(taken(8, float("nan")))
    with pytest.raises(RunError, match=message):
        guard.read()


def test_bad_labels_are_named_as_the_cause_of_a_loss_that_is_not_finite():
    guard = guard_of(check_labels=Mock(side_effect=InputError("4 other labels")))
    guard.note(taken(1, 1.0))
    guard.read()
    guard.note(taken(2, float("nan")))
    with pytest.raises(InputError, match="4 other labels"):
        guard.read()


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
