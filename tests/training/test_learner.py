"""The parts of a job that learn together, and how they are put back."""

import logging
from functools import partial

import pytest
import torch
from safetensors.torch import load_file, save_file

from segmeter.distributed.ranks import Order
from segmeter.models.checkpoint import WEIGHTS
from segmeter.models.segmenter import Segmenter
from segmeter.training.clock import Limits
from segmeter.training.data.batches import Batches
from segmeter.training.learner import Learner
from segmeter.training.step import take_step
from tests.training.tiny import tiny_job, tiny_segmenter


def learner_of(folder, **changes):
    job = tiny_job(folder, **changes)
    limits = Limits(config=job.settings.training, batches_per_epoch=len(job.data.source))
    return Learner(job, torch.device("cpu"), limits), job


def open_batches(job, first=0):
    draw = partial(job.data.augment.draw, seed=job.settings.training.seed)
    cpu = torch.device("cpu")
    return Batches(job.data.source, first=first, progress=lambda _: 0.0, workers=0, device=cpu, draw=draw)


def take_steps(learner, job, first, count):
    with open_batches(job, first) as batches:
        return [
            take_step(job, learner, [batches.take()], Order(step, 0.1 * step, validates=False)).loss.item()
            for step in range(first, first + count)
        ]


@pytest.mark.parametrize("ema", [None, 0.9])
def test_a_learner_that_was_put_back_goes_on_bit_for_bit(tmp_path, ema):
    learner, job = learner_of(tmp_path, ema=ema)
    take_steps(learner, job, 0, 2)
    save_file({name: value.contiguous() for name, value in learner.published.state_dict().items()}, tmp_path / WEIGHTS)
    state = learner.state()
    state = {**state, "weights": {k: v.clone() for k, v in state["weights"].items()} if ema else None}
    torch.save(state, tmp_path / "state.pt")
    went_on = take_steps(learner, job, 2, 2)

    other, job = learner_of(tmp_path, ema=ema)
    other.load(load_file(tmp_path / WEIGHTS), torch.load(tmp_path / "state.pt", weights_only=True))
    assert take_steps(other, job, 2, 2) == went_on
    for name, value in learner.published.state_dict().items():
        assert torch.equal(other.published.state_dict()[name], value), name


def test_the_average_is_what_is_published_and_lags_behind(tmp_path):
    learner, job = learner_of(tmp_path, ema=0.99)
    assert learner.published is not learner.segmenter
    take_steps(learner, job, 0, 2)
    weight = "network.layers.0.weight"
    assert not torch.equal(learner.published.state_dict()[weight], learner.segmenter.state_dict()[weight])
    plain, _ = learner_of(tmp_path)
    assert plain.published is plain.segmenter


def test_the_learning_rate_follows_the_schedule(tmp_path):
    learner, job = learner_of(tmp_path)
    with open_batches(job) as batches:
        batch = batches.take()
    for progress in (0.0, 0.5, 0.9):
        lr = take_step(job, learner, [batch], Order(0, progress, validates=False)).lr
        assert lr == job.settings.optimizer.lr * learner.schedule(progress)
        assert [group["lr"] for group in learner.optimizer.param_groups] == [lr] * len(learner.optimizer.param_groups)


def test_a_change_of_precision_on_resuming_is_said(tmp_path, caplog):
    learner, _ = learner_of(tmp_path)
    weights, state = learner.published.state_dict(), learner.state()
    with caplog.at_level(logging.WARNING):
        learner.load(weights, {**state, "scaler": {"scale": 1024.0}})
    assert "the loss scale of float16 is dropped" in caplog.text
    learner.scaler = torch.amp.GradScaler("cpu")
    with caplog.at_level(logging.WARNING):
        learner.load(weights, state)
    assert "the search for that of float16 starts" in caplog.text


def test_samples_go_into_the_network_as_they_are_and_images_smaller(tmp_path):
    """Mutation seen to fail: the segmenter itself trained, which shrinks the samples once more."""
    segmenter = tiny_segmenter()
    segmenter.network.downsample = 2
    segmenter = Segmenter(segmenter.network, segmenter.card)
    learner, job = learner_of(tmp_path, segmenter=segmenter)
    seen = []
    learner.segmenter.network.register_forward_pre_hook(lambda network, given: seen.append(given[0].shape[-2:]))
    with open_batches(job) as batches:
        batch = batches.take()
        take_step(job, learner, [batch], Order(0, 0.0, validates=False))
    size = batch.image.shape[-2:]
    assert seen == [size]
    with torch.no_grad():
        assert learner.published(batch.image).shape[-2:] == size
    assert [2 * side for side in seen[1]] == [*size]
