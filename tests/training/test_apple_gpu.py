"""What can be known of an Apple GPU without one: no float64 on the device, and what is refused.

torch's fake tensors, which have a device and no values, can't lie on an Apple GPU, so CUDA stands for it.
"""

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from segmeter.bridge.argmax import winners
from segmeter.bridge.transfer import measure
from segmeter.distributed.ranks import World
from segmeter.errors import ConfigError
from segmeter.inference.device import pick_dtype
from segmeter.losses import focal_torch
from segmeter.losses.additive import additive, loss_terms
from segmeter.losses.config import LOSSES, build_loss
from segmeter.losses.targets import widest_float
from segmeter.training.data import augment
from segmeter.training.job import check_job
from tests.training.test_no_waiting import empty_batch, give_gradients, step_of
from tests.training.tiny import SPEC, tiny_job, tiny_segmenter

MPS, STAND_IN = torch.device("mps"), torch.device("cuda")
ROOMS = ("losses.additive", "losses.region", "losses.focal_torch")  # where sums take the widest float


class NoFloat64(TorchDispatchMode):
    """Refuses a result that an Apple GPU can't hold."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        for value in tree_leaves(found):
            wide = isinstance(value, torch.Tensor) and value.dtype in (torch.float64, torch.complex128)
            if wide and value.device.type == STAND_IN.type:
                raise TypeError(f"{func} gives {value.dtype} on an Apple GPU")
        return found


@pytest.fixture
def apple_gpu(monkeypatch):
    """Fake tensors lie on the stand-in; what needs its generator or Triton is replaced."""
    assert widest_float(MPS) == torch.float32
    for room in ROOMS:
        monkeypatch.setattr(f"segmeter.{room}.widest_float", lambda device: widest_float(MPS))
    monkeypatch.setattr("segmeter.losses.focal.has_triton", bool)
    monkeypatch.setattr("segmeter.bridge.argmax.has_triton", bool)
    monkeypatch.setattr(augment, "add_noise", lambda image, share, seeds: image + share[:, None, None, None])
    with FakeTensorMode(), STAND_IN:
        model = tiny_segmenter().train()  # whose normalisation is computed in float64, on the CPU
        with NoFloat64():
            yield model


@pytest.mark.parametrize("name", LOSSES.names())
def test_a_step_and_its_validation_need_no_float64(name, monkeypatch, apple_gpu):
    """Mutation seen to fail: the sum of a denominator in float64."""
    loss = additive(build_loss(LOSSES.schema(name)(), SPEC, class_counts=np.array([5, 3, 1])), SPEC).to(STAND_IN)
    monkeypatch.setattr(torch.Tensor, "backward", lambda _: give_gradients(apple_gpu))
    step = step_of(apple_gpu, loss, STAND_IN)
    values = [*step([empty_batch()]), *step([empty_batch(), empty_batch()])]
    logits, target = torch.empty(2, 3, 32, 32), torch.empty(2, 32, 32, dtype=torch.uint8)
    values.append(loss_terms(loss, logits, target))
    assert {value.device.type for value in values} == {"cuda"}


@pytest.mark.usefixtures("apple_gpu")
def test_the_gradient_of_the_loss_and_the_labels_need_no_float64():
    logits, target = torch.empty(2, 3, 32, 32), torch.empty(2, 32, 32, dtype=torch.uint8)
    total, weight, _ = focal_torch.compute(logits, target, focal_torch.FocalOptions("multiclass"))
    assert total.device == weight.device == logits.device
    highs = logits.amax(dim=1)
    assert measure(~highs.isfinite(), logits.amin(dim=1), highs).device == logits.device
    assert winners(logits.flatten(2), torch.uint8)[0].device == logits.device


def test_precision_is_what_an_apple_gpu_takes():
    assert pick_dtype(MPS, "auto") == torch.float32
    assert pick_dtype(MPS, "float16") == torch.float16
    with pytest.raises(ConfigError, match=r"`precision` that mps computes in, got 'bfloat16'. Use float16 or float32"):
        pick_dtype(MPS, "bfloat16")


def test_training_there_is_in_float32_and_in_one_process(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    check_job(tiny_job(tmp_path, device="mps"))
    with pytest.raises(ConfigError, match="precision` to be float32 on mps, got 'float16'") as error:
        check_job(tiny_job(tmp_path, device="mps", precision="float16", world=World(0, 2)))
    assert "expected `device` to be cpu or cuda for several processes, got 'mps'" in str(error.value)
