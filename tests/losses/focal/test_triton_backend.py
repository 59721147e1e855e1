"""When Triton is chosen and how its launch grid covers the pixels; the kernels themselves are tested beside."""

import pytest
import torch

from segmeter.losses.focal import triton_backend
from segmeter.losses.focal.params import FocalParams


def test_tensors_on_the_cpu_are_not_taken():
    assert not triton_backend.triton_takes(torch.zeros(1, 2, 4, 4), torch.zeros(1, 4, 4, dtype=torch.uint8))


@pytest.mark.parametrize("channels", [1, 2, 19, 64, 1000, 1024])
@pytest.mark.parametrize("pixels", [1, 31, 4096, 100_003])
def test_the_tiles_cover_every_logit_once(channels, pixels):
    (blocks, images), options = triton_backend._tiles(torch.zeros(1, channels, 1, 1).expand(3, -1, pixels, -1))
    side, width = options["BLOCK_P"], options["BLOCK_K"]
    assert images == 3
    assert (blocks - 1) * side < pixels <= blocks * side
    assert channels <= width < 2 * channels
    assert side & (side - 1) == width & (width - 1) == 0  # Triton takes powers of two
    assert side * width <= triton_backend.TILE


def test_the_options_become_constants_of_the_kernel():
    options = triton_backend._options(
        FocalParams(softmax=True, gamma=1.5, smoothing=0.1, ignore_index=255), torch.ones(3)
    )
    assert options["GAMMA"] == 1.5
    assert options["HAS_WEIGHTS"]
    assert options["HAS_IGNORE"]
    assert options["SMOOTH"]
    assert options["ignore"] == 255
    options = triton_backend._options(FocalParams(softmax=False, gamma=0.0, negative=0.75, positive=0.25))
    assert not any(options[name] for name in ("HAS_IGNORE", "SMOOTH", "ELEMENTWISE"))
    assert (options["negative"], options["positive"]) == (0.75, 0.25)
