from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.amp import GradScaler

from segmeter.errors import ConfigError
from segmeter.losses.additive import additive
from segmeter.training.config import SgdConfig, TrainingConfig
from segmeter.training.data.batches import Batch
from segmeter.training.learner import build_scaler, compiled
from segmeter.training.optimizers import build_sgd, update_weights
from tests.training.tiny import SPEC, LongTarget, TinyAugment, TinyNetwork, cross_entropy, stepper

CPU = torch.device("cpu")


def make_stepper(model, *, augment=None, scaler=None, **values):
    config = TrainingConfig(precision="float32", **{"clip_norm": None, **values})
    return stepper(
        forward=model,
        loss=additive(LongTarget(cross_entropy()), SPEC),
        optimizer=build_sgd(SgdConfig(lr=0.1, momentum=0.0, nesterov=False, weight_decay=0.0), model=model),
        scaler=scaler,
        augment=augment,
        config=config,
        device=CPU,
    )


def model_without_batch_norm():
    torch.manual_seed(3)
    return nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 3, 1))


def make_batch(indices, ignored=()):
    images, targets = [], []
    for index in indices:
        rng = np.random.default_rng(index)
        images.append(rng.normal(size=(3, 8, 8)).astype(np.float32))
        targets.append(rng.integers(0, 3, (8, 8)).astype(np.uint8))
        if index in ignored:
            targets[-1][: index + 1] = 255
    return Batch(
        image=torch.from_numpy(np.stack(images)),
        target=torch.from_numpy(np.stack(targets)),
        indices=np.array(indices),
    )


def test_a_step_decreases_the_loss_and_leaves_no_gradient():
    model = model_without_batch_norm()
    stepper = make_stepper(model)
    losses = [float(stepper([make_batch(range(8))])[0]) for _ in range(5)]
    assert losses == sorted(losses, reverse=True)
    assert all(p.grad is None for p in model.parameters())


def test_augmentation_gets_the_draws_of_its_batch():
    seen = []

    class Spy(TinyAugment):
        def __call__(self, image, target, draws):
            seen.append((draws.seeds, torch.is_grad_enabled()))
            return super().__call__(image, target, draws)

    draws = TinyAugment().draw(seed=5, epoch=0, indices=np.array([4, 2]), channels=3)
    make_stepper(TinyNetwork(), augment=Spy())([replace(make_batch([4, 2]), draws=draws)])
    assert seen == [((50039, 50037), False)]


@pytest.mark.parametrize(("channels_last", "layout"), [(True, torch.channels_last), (False, torch.contiguous_format)])
def test_images_reach_the_model_in_the_layout_asked_for(channels_last, layout):
    model = model_without_batch_norm()
    seen = []
    model.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].is_contiguous(memory_format=layout)))
    make_stepper(model, channels_last=channels_last)([make_batch([1, 2])])
    assert seen == [True]


def test_a_scaled_step_is_the_plain_step_and_an_overflow_is_left_out():
    plain, scaled = model_without_batch_norm(), model_without_batch_norm()
    scaler = GradScaler("cpu", init_scale=1024.0)
    for clip_norm in (None, 0.05):
        make_stepper(plain, clip_norm=clip_norm)([make_batch(range(4))])
        make_stepper(scaled, scaler=scaler, clip_norm=clip_norm)([make_batch(range(4))])
        for one, other in zip(plain.parameters(), scaled.parameters(), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    before = [p.detach().clone() for p in scaled.parameters()]
    optimizer = torch.optim.SGD(scaled.parameters(), lr=0.1)
    scaler.scale(scaled(make_batch([0]).image).sum()).backward()
    scaled[0].bias.grad[0] = float("inf")
    assert not update_weights(optimizer, scaler=scaler, clip_norm=1.0).isfinite()
    assert all(torch.equal(one, other) for one, other in zip(scaled.parameters(), before, strict=True))
    assert scaler.get_scale() == 512.0


def test_only_float16_needs_a_scaler_and_a_cpu_refuses_it():
    assert build_scaler(CPU, "bfloat16") is None
    assert build_scaler(CPU, "auto") is None
    with pytest.raises(ConfigError, match="precision"):
        build_scaler(CPU, "float16")


def test_compiling_is_for_those_who_ask_and_for_long_runs_on_a_gpu(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda model: "compiled")
    model = TinyNetwork()
    cuda = torch.device("cuda")
    assert compiled(model, TrainingConfig(), device=CPU, steps=1e6) is model
    assert compiled(model, TrainingConfig(), device=cuda, steps=100) is model
    assert compiled(model, TrainingConfig(time_budget="2m"), device=cuda, steps=1e6) is model
    assert compiled(model, TrainingConfig(compile=False), device=cuda, steps=1e6) is model
    assert compiled(model, TrainingConfig(), device=cuda, steps=1e6) == "compiled"
    assert compiled(model, TrainingConfig(compile=True), device=CPU, steps=1) == "compiled"
