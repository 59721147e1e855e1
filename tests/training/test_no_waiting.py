"""A step reads no value off the device: whatever would wait for a GPU is found on the CPU, operation by operation."""

from contextlib import nullcontext
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from segmeter.bridge import read_scalars
from segmeter.distributed.ranks import Order
from segmeter.losses import focal
from segmeter.losses.config import LOSSES, build_loss
from segmeter.losses.focal import FocalLoss
from segmeter.losses.focal_torch import FocalOptions
from segmeter.models.segmenter import build_segmenter
from segmeter.training.clock import Limits
from segmeter.training.config import AdamWConfig, SgdConfig, TrainingConfig
from segmeter.training.data import augment
from segmeter.training.data.augment import Augment
from segmeter.training.data.augment_config import AugmentConfig
from segmeter.training.data.batches import Batch
from segmeter.training.data.windows import Resizing
from segmeter.training.learner import Average, Learner
from segmeter.training.optimizers import build_adamw
from segmeter.training.step import open_batches, take_step
from tests.training.tiny import SPEC, TinyCases, stepper, tiny_card, tiny_job, tiny_segmenter

EVERYTHING = AugmentConfig(
    flip_vertical=True, rotate=30, shear=5, saturation=0.2, colour=0.2, gamma=0.5, noise=0.1, blur=1.0
)
CHANGE = Augment(EVERYTHING, SPEC)
DRAWS = CHANGE.draw(seed=0, epoch=0, indices=np.arange(4), channels=3)
CHECKS = [import_module(f"segmeter.losses.{name}") for name in ("region", "focal")]
# What gives the host a value, or a shape that depends on one
WAITING = ("_local_scalar_dense", "item", "nonzero", "masked_select", "_unique2", "unique_dim", "is_nonzero", "equal")


class NoWaiting(TorchDispatchMode):
    """Refuses the operations that a GPU's host would have to wait for."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        masks = name == "index" and any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1])
        if name in WAITING or masks:
            raise AssertionError(f"{func} waits for the device")
        return func(*args, **(kwargs or {}))


def learner_of(folder, loss, **values):
    job = tiny_job(
        folder,
        cases=TinyCases(size=32),
        augment=Augment(EVERYTHING, SPEC),
        optimizer=SgdConfig() if values.get("clip_norm") is None else AdamWConfig(),
        segmenter=build_segmenter(tiny_card(name="unet", encoder="resnet18"), initialise=False),
        loss=build_loss(loss, spec=SPEC, class_counts=np.array([5, 3, 1])),
        **{"accumulate": 2, "ema": 0.9, **values},
    )
    return job, Learner(job, torch.device("cpu"), Limits(config=job.settings.training, batches_per_epoch=2))


@pytest.mark.parametrize(
    ("loss", "clip_norm"),
    [(LOSSES.schema("focal")(backend="torch", class_weights="auto"), 12.0), (LOSSES.schema("dice")(), None)],
    ids=["focal", "dice"],
)
def test_a_step_waits_for_nothing(tmp_path, loss, clip_norm, monkeypatch):
    for room in CHECKS:  # it returns at once but on the CPU
        monkeypatch.setattr(room, "refuse_bad_labels", lambda *args, **values: None)
    job, learner = learner_of(tmp_path, loss, clip_norm=clip_norm)
    with open_batches(job, torch.device("cpu"), step=0, progress=lambda _: 0.0) as batches:
        taken = [[batches.take(), batches.take()] for _ in range(2)]
    losses = []
    with NoWaiting():
        for step, parts in enumerate(taken):
            losses.append(take_step(job, learner, parts, Order(step + 1, 0.1 * step, validates=False)).loss)
    assert all(np.isfinite(read_scalars(losses)))


class Launch:
    """Stands for a Triton kernel: what it would write stays as it is."""

    def __getitem__(self, grid):
        return lambda *arguments, **options: None


def test_every_tensor_of_a_step_is_on_the_gpu(monkeypatch):
    """With torch's fake tensors, which have a device and no values: a tensor left on the CPU, or a value read, is an
    error. Mutations seen to fail: the table of draws left on the CPU; `loss.item()`; a kernel launched wherever.
    """
    guarded = []
    focal_triton = pytest.importorskip("segmeter.losses.focal_triton", reason="torch brings no Triton on this system")
    monkeypatch.setattr(focal, "has_triton", lambda: True)
    monkeypatch.setattr(focal_triton, "focal", Launch())
    monkeypatch.setattr(torch.cuda, "device_of", lambda tensor: guarded.append(tensor) or nullcontext())
    monkeypatch.setattr(augment, "add_noise", lambda image, share, seeds: image + share[:, None, None, None])
    with FakeTensorMode(), torch.device("cuda"):
        model, loss = tiny_segmenter().train(), FocalLoss("multiclass", ignore_index=255)
        loss.register_buffer("class_weights", torch.ones(3), persistent=False)
        monkeypatch.setattr(torch.Tensor, "backward", lambda _: give_gradients(model))  # which needs a real GPU
        step = step_of(model, loss, torch.device("cuda"))
        values = [*step([empty_batch()]), *step([empty_batch(), empty_batch()])]
        Average(model, model, 0.9).update()
        logits = torch.empty(4, 3, 32, 32)
        options = FocalOptions("multiclass")
        values += focal_triton.compute(logits, logits[:, 0].byte(), options, torch.ones(()))
    assert {value.device.type for value in values} == {"cuda"}
    assert len(guarded) == 4, "the kernels of three losses and of a gradient run where their logits are"


def empty_batch():
    """Windows of several sizes, on the device that is the default."""
    return Batch(
        image=torch.empty(4, 3, 64, 48, dtype=torch.uint8),
        target=torch.empty(4, 64, 48, dtype=torch.uint8),
        indices=np.arange(4),
        draws=replace(DRAWS, table=torch.empty(DRAWS.table.shape)),
        resizing=Resizing(((64, 48), (40, 40), (32, 32), (20, 48)), (32, 32)),
    )


def step_of(model, loss, device):
    """A step with every augmentation and clipped gradients."""
    return stepper(
        forward=model,
        loss=loss,
        optimizer=build_adamw(AdamWConfig(), model=model),
        scaler=None,
        augment=CHANGE,
        config=TrainingConfig(precision="float32", clip_norm=1.0),
        device=device,
    )


def give_gradients(model):
    for parameter in model.parameters():
        parameter.grad = torch.empty_like(parameter)


WAITS = {
    "item": lambda x: x.sum().item(),
    "bool": lambda x: bool(x.any()),
    "mask": lambda x: x[x > 0],
    "nonzero": torch.nonzero,
}


@pytest.mark.parametrize("name", WAITS)
def test_what_waits_is_found(name):
    with pytest.raises(AssertionError, match="waits for the device"), NoWaiting():
        WAITS[name](torch.ones(3))
