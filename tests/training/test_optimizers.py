"""Steps of the optimizers, against torch's own, schedules by hand, and an encoder and statistics that keep still."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from segmeter.distributed.ranks import Order
from segmeter.models.segmenter import Segmenter
from segmeter.training.config import OPTIMIZERS, SCHEDULES, AdamWConfig, ConstantConfig, SgdConfig
from segmeter.training.optimizers import clip_and_step, parameter_groups
from segmeter.training.step import run_step
from segmeter.training.trainer import train
from tests.training.test_learner import learner_of
from tests.training.tiny import TinyNetwork, assert_same, tiny_card, tiny_job, weights


def with_gradients():
    torch.manual_seed(0)
    model = TinyNetwork()
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    return model


def test_norms_and_biases_do_not_decay_and_frozen_weights_are_left_out():
    model = TinyNetwork()
    model.layers[4].weight.requires_grad_(False)
    decayed, plain = parameter_groups(model, 0.5)
    assert ([tuple(p.shape) for p in decayed["params"]], decayed["weight_decay"]) == ([(8, 3, 3, 3)], 0.5)
    assert ([tuple(p.shape) for p in plain["params"]], plain["weight_decay"]) == ([(8,), (8,), (8,), (3,)], 0.0)


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "not fused"])
@pytest.mark.parametrize("config", [AdamWConfig(weight_decay=0.3), SgdConfig(weight_decay=0.3)], ids=lambda c: c.name)
@pytest.mark.parametrize("clip_norm", [None, 0.5, 1e6])
def test_a_step_is_the_one_that_torch_takes_after_clipping(config, clip_norm, fused):
    ours, theirs = with_gradients(), with_gradients()
    plain = partial(torch.optim.SGD, momentum=0.99, nesterov=True) if config.name == "sgd" else torch.optim.AdamW
    optimizer, reference = (
        plain(parameter_groups(model, 0.3), lr=config.lr, fused=False, foreach=False) for model in (ours, theirs)
    )
    optimizer = OPTIMIZERS.build(config, model=ours) if fused else optimizer
    for _ in range(3):
        expected_norm = torch.cat([p.grad.flatten().double() for p in ours.parameters()]).square().sum().sqrt()
        norm = clip_and_step(optimizer, clip_norm=clip_norm)
        torch.testing.assert_close(norm.double(), expected_norm, rtol=1e-5, atol=0)
        if clip_norm is not None:
            nn.utils.clip_grad_norm_(theirs.parameters(), clip_norm)
        reference.step()
        for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6)
            assert mine.grad is None
            mine.grad = torch.randn_like(mine)
            other.grad = mine.grad.clone()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("clip_norm", [None, 1.0])
@pytest.mark.parametrize("fused", [True, False])
def test_a_gradient_that_is_not_finite_leaves_every_weight_as_it_is(bad, clip_norm, fused):
    model = with_gradients()
    optimizer = OPTIMIZERS.build(AdamWConfig(), model=model) if fused else torch.optim.SGD(model.parameters(), lr=1.0)
    before = weights(model)
    model.layers[0].bias.grad[0] = bad
    assert not clip_and_step(optimizer, clip_norm=clip_norm).isfinite()
    assert_same(weights(model), before)


QUARTER = 0.1 + 0.9 * (1 + np.sqrt(0.5)) / 2  # of the way from 1 to 0.1, where the cosine is that of 45 degrees


@pytest.mark.parametrize(
    ("name", "options", "factors"),
    [
        ("cosine", {"warmup": 0.2, "final": 0.1}, {0.0: 0.01, 0.1: 0.505, 0.2: 1.0, 0.4: QUARTER, 0.6: 0.55, 9: 0.1}),
        ("one_cycle", {"rise": 0.25, "start": 0.2, "final": 0.1}, {0: 0.2, 0.125: 0.6, 0.25: 1, 0.625: 0.55, 9: 0.1}),
        ("poly", {"warmup": 0.5, "power": 2.0}, {0.25: 0.505, 0.5: 1.0, 0.75: 0.25, 9: 0.0}),
        ("constant", {"warmup": 0.5}, {0.25: 0.505, 0.5: 1.0, 9: 1.0}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_schedules_by_hand(name, options, factors):
    factor = SCHEDULES.build(SCHEDULES.schema(name)(**options))
    assert {progress: factor(progress) for progress in factors} == pytest.approx(factors)


class TwoParts(nn.Module):
    size_multiple = 1

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.decoder = nn.Sequential(nn.BatchNorm2d(8), nn.Conv2d(8, 3, 1))

    def forward(self, image):
        return self.decoder(self.encoder(image))


def segmenter():
    torch.manual_seed(1)
    return Segmenter(TwoParts(), tiny_card(name="two parts"))


def run(folder, model, **options):
    """What changed of a network in three steps."""
    before = weights(model.network)
    train(tiny_job(folder, segmenter=model, epochs=None, steps=3, **options))
    return {name for name, value in weights(model.network).items() if not torch.equal(value, before[name])}


KERNELS = {f"{part}.weight" for part in ("encoder.0", "encoder.1", "decoder.0", "decoder.1")}
STATISTICS = {"running_mean", "running_var", "num_batches_tracked"}


def ends_of(names, part):
    return {name.rpartition(".")[2] for name in names if name.startswith(part)}


def test_a_frozen_encoder_changes_in_nothing_until_its_steps_are_over_and_the_decoder_learns(tmp_path):
    changed = run(tmp_path / "frozen", segmenter(), freeze_encoder=3)
    assert not [name for name in changed if name.startswith("encoder.")]
    assert ends_of(changed, "decoder.0") == {"weight", "bias", *STATISTICS}
    assert run(tmp_path / "awake", segmenter(), freeze_encoder=2) >= KERNELS


@pytest.mark.parametrize("part", ["encoder", "all"])
def test_frozen_statistics_stay_while_gains_learn(tmp_path, part):
    changed = run(tmp_path, segmenter(), freeze_norm=part)
    assert changed >= KERNELS
    assert not ends_of(changed, "encoder.1") & STATISTICS
    assert (ends_of(changed, "decoder.0") >= STATISTICS) == (part == "encoder")


def test_validation_does_not_wake_what_is_frozen(tmp_path):
    changed = run(tmp_path, segmenter(), freeze_norm="all", freeze_encoder=3, validate_every=1, validate_unit="steps")
    assert changed == {"decoder.0.weight", "decoder.0.bias", "decoder.1.weight", "decoder.1.bias"}


@pytest.mark.parametrize("stop", [1, 2])
def test_a_resumed_run_is_the_one_that_was_not_stopped(tmp_path, stop):
    options = {"freeze_encoder": 2, "freeze_norm": "encoder", "epochs": None, "schedule": ConstantConfig()}
    options |= {"allow_changes": ("training.steps", "training.epochs")}
    whole, begun, resumed = segmenter(), segmenter(), segmenter()
    train(tiny_job(tmp_path / "whole", segmenter=whole, steps=5, **options))
    train(tiny_job(tmp_path / "parts", segmenter=begun, steps=stop, **options))
    train(tiny_job(tmp_path / "parts", segmenter=resumed, steps=5, resume=True, **options))
    assert_same(weights(resumed), weights(whole))


def test_the_encoder_learns_at_its_own_rate(tmp_path):
    model = segmenter()
    groups = parameter_groups(model, 0.5, encoder_lr=0.1)
    assert [(group["lr_factor"], group["weight_decay"]) for group in groups] == [
        *((1.0, 0.5), (1.0, 0.0), (0.1, 0.5), (0.1, 0.0))
    ]
    assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))
    optimizer, schedule = AdamWConfig(lr=0.4, encoder_lr=0.1), ConstantConfig()
    learner, job, batch = learner_of(tmp_path, segmenter=model, optimizer=optimizer, schedule=schedule)
    run_step(job, learner, [batch], Order(0, 0.0, validates=False))
    rates = {id(p): group["lr"] for group in learner.optimizer.param_groups for p in group["params"]}
    assert {rates[id(p)] for p in model.network.encoder.parameters()} == {0.4 * 0.1}
    assert {rates[id(p)] for p in model.network.decoder.parameters()} == {0.4}
