"""The parts of a job that learn together: weights and their average, the rate, the kernels and the generators."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from segmeter.distributed.ranks import Order
from segmeter.models.checkpoint import plain_state
from segmeter.models.segmenter import Segmenter
from segmeter.training import learner as parts
from segmeter.training.clock import Limits
from segmeter.training.config import AdamWConfig, SgdConfig, TrainingConfig
from segmeter.training.job import identify
from segmeter.training.step import open_batches, run_step, training_environment
from tests.training.tiny import assert_same, tiny_job, tiny_segmenter, weights

CPU = torch.device("cpu")


def learner_of(folder, **changes):
    job = tiny_job(folder, **changes)
    with open_batches(job, step=0, progress=lambda _: 0.0) as batches:
        batch = batches.next_batch()
    return parts.Learner(job, Limits(config=job.settings.training, batches_per_epoch=2)), job, batch


def test_samples_go_into_the_network_as_they_are_and_images_smaller(tmp_path):
    segmenter = tiny_segmenter()
    segmenter.network.downsample = 2
    segmenter = Segmenter(segmenter.network, segmenter.card)
    learner, job, batch = learner_of(tmp_path, segmenter=segmenter)
    seen, size = [], batch.image.shape[-2:]
    learner.segmenter.network.register_forward_pre_hook(lambda network, given: seen.append(given[0].shape[-2:]))
    run_step(job, learner, [batch], Order(0, 0.0, validates=False))
    with torch.no_grad():
        assert learner.published(batch.image).shape[-2:] == size
    assert seen == [size, tuple(side // 2 for side in size)]


def test_average_by_hand_also_of_statistics_while_counters_are_copied():
    model, average = nn.BatchNorm1d(1), nn.BatchNorm1d(1)
    averaged = {name: value for name, value in average.state_dict().items() if value.is_floating_point()}
    ema = parts.WeightAverage(average, model, decay=0.15)
    for name, value in averaged.items():
        nn.init.constant_(value, 1.0)
        nn.init.constant_(model.state_dict()[name], 3.0)
    model.num_batches_tracked.fill_(7)
    ema.update()  # decay (1 + 0) / (10 + 0) = 0.1: 0.1 * 1 + 0.9 * 3
    assert [value.item() for value in averaged.values()] == [torch.tensor(2.8).item()] * 4
    ema.update()  # (1 + 1) / (10 + 1) = 0.18 > 0.15: 0.15 * 2.8 + 0.85 * 3
    torch.testing.assert_close([value.item() for value in averaged.values()], [2.97] * 4, rtol=1e-6, atol=0)
    assert (ema.updates, average.num_batches_tracked.item()) == (2, 7)


def resumed(folder, first, then):
    """Train for a step with one optimizer; the learner that takes the second step with another."""
    before, job, batch = learner_of(folder, segmenter=with_encoder(), optimizer=first)
    run_step(job, before, [batch], Order(0, 0.5, validates=False))
    state = plain_state({**before.state(), "identity": identify(job)})
    after, job, batch = learner_of(folder, segmenter=with_encoder(7), optimizer=then)
    after.load(weights(before.published), state)
    run_step(job, after, [batch], Order(1, 0.5, validates=False))
    return after


def with_encoder(seed=1):
    segmenter = tiny_segmenter(seed)
    segmenter.network.encoder = segmenter.network.layers[0]
    return segmenter


ADAMW, SGD = AdamWConfig(lr=0.01), SgdConfig(nesterov=False)


@pytest.mark.parametrize(("first", "then", "option", "wanted"), [
    (ADAMW, ADAMW.replace(weight_decay=0.5), "weight_decay", [0.5, 0.0]),
    (ADAMW, ADAMW.replace(beta1=0.5), "betas", [(0.5, 0.999)] * 2),
    (ADAMW.replace(encoder_lr=0.5), ADAMW.replace(encoder_lr=0.1), "lr_factor", [1.0, 1.0, 0.1, 0.1]),
    (SGD, SGD.replace(momentum=0.3), "momentum", [0.3, 0.3]),
], ids=["decay", "beta1", "encoder_lr", "momentum"])  # fmt: skip
def test_an_optimizer_goes_on_with_the_options_that_it_has_now(tmp_path, caplog, first, then, option, wanted):
    after = resumed(tmp_path, first, then)
    assert [group[option] for group in after.optimizer.param_groups] == wanted
    assert all(each.get("step", 2) == 2 for each in after.optimizer.state.values())
    assert "anew" not in caplog.text


@pytest.mark.parametrize("then", [SGD, ADAMW.replace(encoder_lr=0.1)], ids=["kind", "groups"])
def test_an_optimizer_of_another_kind_or_with_other_groups_starts_anew_and_says_so(tmp_path, caplog, then):
    after = resumed(tmp_path, ADAMW, then)
    assert "the optimizer starts anew" in caplog.text
    assert all(each.get("step", 1) == 1 for each in after.optimizer.state.values())


@pytest.mark.parametrize(("first", "then"), [(None, 0.9), (0.9, None)])
def test_an_average_starts_from_the_weights_and_leaves_them_when_it_goes(tmp_path, caplog, first, then):
    before, job, batch = learner_of(tmp_path, ema=first)
    run_step(job, before, [batch], Order(0, 0.5, validates=False))
    after, _, _ = learner_of(tmp_path, segmenter=tiny_segmenter(7), ema=then)
    after.load(weights(before.published), before.state())
    for model in (after.segmenter, after.published):
        assert_same(weights(model), weights(before.segmenter))
    assert ("it starts from the weights" if then else "the average of the weights is dropped") in caplog.text


def draws():
    legacy = np.random.standard_normal(3).tolist()  # noqa: NPY002
    return random.gauss(0, 1), legacy, torch.randn(3).tolist(), torch.rand(1).item()


def seed_everything(seed):
    with training_environment(tiny_job(Path(), seed=seed)):
        pass


def test_generators_go_on_where_they_were():
    seed_everything(3)
    draws()  # an odd number of normals leaves the second half of a pair behind, in both generators
    state = plain_state(parts.capture_rng(CPU))
    expected, other = draws(), []
    for seed in (4, 2**63 - 1):
        seed_everything(seed)
        other.append(draws())
    parts.restore_rng(state)
    assert draws() == expected
    assert expected != other[0] != other[1]


def test_kernels_are_chosen_for_the_block_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    before = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    with training_environment(tiny_job(tmp_path, deterministic=True)):
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.backends.cudnn.benchmark
    with training_environment(tiny_job(tmp_path)):
        assert torch.backends.cudnn.benchmark
    assert (torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark) == before


@pytest.mark.parametrize(
    ("device", "values", "steps", "wanted"),
    [
        ("cpu", {}, 1e6, False),
        ("cuda", {}, 100, False),
        ("cuda", {"time_budget": "2m"}, 1e6, False),
        ("cuda", {"compile": False}, 1e6, False),
        ("cuda", {}, 1e6, True),
        ("cpu", {"compile": True}, 1, True),
    ],
)
def test_compiling_is_for_those_who_ask_and_for_long_runs_on_a_gpu(monkeypatch, device, values, steps, wanted):
    monkeypatch.setattr(torch, "compile", lambda model: "compiled")
    found = parts.compiled("model", TrainingConfig(**values), device=torch.device(device), steps=steps)
    assert found == ("compiled" if wanted else "model")
