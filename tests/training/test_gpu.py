"""What only a CUDA device can show of training."""

import copy

import pytest
import torch

from segmeter.losses.focal import FocalLoss
from segmeter.models.segmenter import build_segmenter
from segmeter.training.data.windows import Resizing, resize_batch
from tests.training.tiny import tiny_card

pytestmark = pytest.mark.gpu


@pytest.fixture
def batch():
    rng = torch.Generator().manual_seed(0)
    image = torch.randint(0, 256, (4, 3, 64, 64), dtype=torch.uint8, generator=rng).cuda()
    return image.contiguous(memory_format=torch.channels_last), torch.randint(0, 3, (4, 64, 64), generator=rng).cuda()


@pytest.fixture
def segmenter():
    torch.manual_seed(0)
    return (
        build_segmenter(tiny_card(name="unet", encoder="resnet18")).train().cuda().to(memory_format=torch.channels_last)
    )


def loss_and_gradient(forward, segmenter, batch):
    image, target = batch
    loss = forward(image, target)
    loss.backward()
    return loss.detach(), torch.cat([p.grad.flatten() for p in segmenter.parameters() if p.grad is not None])


def test_model_and_loss_compile_as_one(segmenter, batch):
    """The compiled pair gives the eager pair's loss and gradient, in channels_last."""
    loss = FocalLoss("multiclass", ignore_index=255).cuda()
    twin = copy.deepcopy(segmenter)
    expected = loss_and_gradient(lambda image, target: loss(segmenter(image), target), segmenter, batch)
    graph = torch.compile(lambda image, target: loss(twin(image), target))
    found = loss_and_gradient(graph, twin, batch)
    torch.testing.assert_close(found[0], expected[0], rtol=1e-3, atol=1e-4)
    cosine = torch.nn.functional.cosine_similarity(found[1], expected[1], dim=0)
    assert cosine > 0.999


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_learns_what_float32_does(segmenter, batch, dtype):
    loss = FocalLoss("multiclass", ignore_index=255).cuda()
    image, target = batch

    def autocast_loss(image, target):
        with torch.autocast("cuda", dtype=dtype):
            return loss(segmenter(image), target)

    with torch.no_grad():
        expected = float(loss(segmenter(image), target))
    found, gradient = loss_and_gradient(autocast_loss, segmenter, (image, target))
    assert float(found) == pytest.approx(expected, rel=0.02)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_windows_are_resized_on_the_device_as_on_the_host_and_without_waiting(dtype):
    image = (torch.rand(2, 3, 40, 52, generator=torch.Generator().manual_seed(0)) * 255).to(dtype)
    target = torch.randint(0, 3, (2, 40, 52), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    resizing = Resizing(((40, 30), (25, 52)), (32, 32))
    wanted, labels = resize_batch(image, target, resizing)
    image, target = image.cuda(), target.cuda()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        found, given = resize_batch(image, target, resizing)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert found.dtype == dtype
    assert (found.cpu().double() - wanted.double()).abs().max() <= (1 if dtype is torch.uint8 else 1e-3)
    assert torch.equal(given.cpu(), labels)
