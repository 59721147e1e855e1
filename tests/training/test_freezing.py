"""The encoder keeps still for as long as it is told to, and running statistics do."""

import pytest
import torch
from torch import nn

from segmeter.distributed.ranks import Order
from segmeter.errors import ConfigError
from segmeter.models.segmenter import Segmenter
from segmeter.training.config import AdamWConfig, ConstantConfig
from segmeter.training.job import check_job
from segmeter.training.optimizers import parameter_groups
from segmeter.training.step import take_step
from segmeter.training.trainer import train
from tests.training.test_learner import learner_of
from tests.training.tiny import assert_same, tiny_card, tiny_job, weights


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
    take_step(job, learner, [batch], Order(0, 0.0, validates=False))
    rates = {id(p): group["lr"] for group in learner.optimizer.param_groups for p in group["params"]}
    assert {rates[id(p)] for p in model.network.encoder.parameters()} == {0.4 * 0.1}
    assert {rates[id(p)] for p in model.network.decoder.parameters()} == {0.4}


def test_what_can_not_be_frozen_is_refused_at_once(tmp_path):
    with pytest.raises(ConfigError) as caught:
        check_job(tiny_job(tmp_path, freeze_encoder=3, freeze_norm="encoder", optimizer=AdamWConfig(encoder_lr=0.5)))
    assert [line.split(",")[0] for line in caught.value.problems] == [
        f"training: expected `{key}` to be left alone" for key in ("freeze_encoder", "freeze_norm", "encoder_lr")
    ]
