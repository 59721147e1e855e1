"""What a GPU would object to in a step, found on the CPU: a value read, a tensor left elsewhere, float64 at Apple's.

torch's fake tensors have a device and no values, so reading one, as a GPU's host would have to wait for, is an error.
They can't lie on an Apple GPU, so CUDA stands for it.
"""

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from segmeter.bridge.argmax import winners
from segmeter.bridge.transfer import measure
from segmeter.errors import ConfigError
from segmeter.inference.device import pick_dtype
from segmeter.losses import focal, focal_torch
from segmeter.losses.additive import additive, loss_terms
from segmeter.losses.config import LOSSES, build_loss
from segmeter.losses.focal import FocalLoss
from segmeter.losses.targets import widest_float
from segmeter.training.config import AdamWConfig, TrainingConfig
from segmeter.training.data import augment
from segmeter.training.data.augment import Augment
from segmeter.training.data.augment_config import AugmentConfig
from segmeter.training.data.batches import Batch
from segmeter.training.data.windows import Resizing
from segmeter.training.job import check_job
from segmeter.training.learner import WeightAverage
from segmeter.training.optimizers import build_adamw
from tests.training.tiny import SPEC, stepper, tiny_job, tiny_segmenter

MPS, CUDA = torch.device("mps"), torch.device("cuda")
CHANGE = Augment(
    AugmentConfig(flip_vertical=True, rotate=30, shear=5, saturation=0.2, colour=0.2, gamma=0.5, noise=0.1, blur=1.0),
    SPEC,
)
DRAWS = CHANGE.draw(seed=0, epoch=0, indices=np.arange(4), channels=3)
ROOMS = ("losses.additive", "losses.region", "losses.focal_torch")  # where sums take the widest float


@pytest.fixture
def fake_gpu(monkeypatch):
    """The default device; what needs its generator or a real gradient is replaced. Gives a model on it."""
    monkeypatch.setattr(augment, "add_noise", lambda image, share, seeds: image + share[:, None, None, None])
    with FakeTensorMode(), CUDA:
        model = tiny_segmenter().train()  # whose normalisation is computed in float64, on the CPU

        def give_gradients(_):
            for parameter in model.parameters():
                parameter.grad = torch.empty_like(parameter)

        monkeypatch.setattr(torch.Tensor, "backward", give_gradients)
        yield model


class NoFloat64(TorchDispatchMode):
    """Refuses a result that an Apple GPU can't hold."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        for value in tree_leaves(found):
            wide = isinstance(value, torch.Tensor) and value.dtype in (torch.float64, torch.complex128)
            if wide and value.device.type == CUDA.type:
                raise TypeError(f"{func} gives {value.dtype} on an Apple GPU")
        return found


@pytest.fixture
def apple_gpu(monkeypatch, fake_gpu):
    assert widest_float(MPS) == torch.float32
    for room in ROOMS:
        monkeypatch.setattr(f"segmeter.{room}.widest_float", lambda device: widest_float(MPS))
    for room in ("losses.focal", "bridge.argmax"):
        monkeypatch.setattr(f"segmeter.{room}.has_triton", bool)
    with NoFloat64():
        yield fake_gpu


def steps_of(model, loss):
    """Loss and norm of two steps, over one and two batches of windows of several sizes, with every augmentation."""
    batch = Batch(
        image=torch.empty(4, 3, 64, 48, dtype=torch.uint8),
        target=torch.empty(4, 64, 48, dtype=torch.uint8),
        indices=np.arange(4),
        random_numbers=DRAWS._replace(table=torch.empty(DRAWS.table.shape)),
        resizing=Resizing(((64, 48), (40, 40), (32, 32), (20, 48)), (32, 32)),
    )
    config = TrainingConfig(precision="float32", clip_norm=1.0)
    parts = {"scaler": None, "augment": CHANGE, "config": config, "device": CUDA}
    step = stepper(model, loss=loss, optimizer=build_adamw(AdamWConfig(), model=model), **parts)
    return [*step([batch]), *step([batch, batch])]


class Launch:
    """Stands for a Triton kernel: what it would write stays as it is."""

    def __getitem__(self, grid):
        return lambda *arguments, **options: None


def test_every_tensor_of_a_step_is_on_the_gpu(monkeypatch, fake_gpu):
    """Mutations seen to fail: the table of draws left on the CPU; `loss.item()`; a kernel launched wherever."""
    guarded = []
    focal_triton = pytest.importorskip("segmeter.losses.focal_triton", reason="torch brings no Triton on this system")
    monkeypatch.setattr(focal, "has_triton", lambda: True)
    monkeypatch.setattr(focal_triton, "focal", Launch())
    monkeypatch.setattr(torch.cuda, "device_of", lambda tensor: guarded.append(tensor) or nullcontext())
    loss = FocalLoss("multiclass", ignore_index=255)
    loss.register_buffer("class_weights", torch.ones(3), persistent=False)
    values = steps_of(fake_gpu, loss)
    WeightAverage(fake_gpu, fake_gpu, 0.9).update()
    logits, options = torch.empty(4, 3, 32, 32), focal_torch.FocalOptions("multiclass")
    values.append(focal_triton.gradient(logits, logits[:, 0].byte(), options, torch.ones(())))
    assert {value.device.type for value in values} == {"cuda"}
    assert len(guarded) == 4, "the kernels of three losses and of a gradient run where their logits are"


@pytest.mark.parametrize("name", LOSSES.names())
def test_a_step_and_its_validation_read_no_value_and_need_no_float64(name, apple_gpu):
    schema = LOSSES.schema(name)
    config = schema(**{"class_weights": "auto"} if "class_weights" in schema.model_fields else {})
    loss = additive(build_loss(config, SPEC, class_counts=np.array([5, 3, 1])), SPEC).to(CUDA)
    values = steps_of(apple_gpu, loss)
    values.append(loss_terms(loss, torch.empty(2, 3, 32, 32), torch.empty(2, 32, 32, dtype=torch.uint8)))
    assert {value.device.type for value in values} == {"cuda"}


@pytest.mark.usefixtures("apple_gpu")
def test_the_gradient_of_the_loss_and_the_labels_need_no_float64():
    logits, target = torch.empty(2, 3, 32, 32), torch.empty(2, 32, 32, dtype=torch.uint8)
    total, weight, _ = focal_torch.forward_sums(logits, target, focal_torch.FocalOptions("multiclass"))
    assert total.device == weight.device == logits.device
    highs = logits.amax(dim=1)
    assert measure(~highs.isfinite(), logits.amin(dim=1), highs).device == logits.device
    assert winners(logits.flatten(2), torch.uint8)[0].device == logits.device


def test_precision_is_what_an_apple_gpu_takes():
    assert pick_dtype(MPS, "auto") == torch.float32
    assert pick_dtype(MPS, "float16") == torch.float16
    with pytest.raises(ConfigError, match=r"`precision` that mps computes in, got 'bfloat16'. Use float16 or float32"):
        pick_dtype(MPS, "bfloat16")


def test_training_there_is_in_float32(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    check_job(tiny_job(tmp_path, device="mps"))
    with pytest.raises(ConfigError, match="precision` to be float32 on mps, got 'float16'"):
        check_job(tiny_job(tmp_path, device="mps", precision="float16"))
