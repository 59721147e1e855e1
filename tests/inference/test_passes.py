import logging

import pytest
import torch

from segmeter.errors import RunError
from segmeter.inference.config import InferenceConfig
from segmeter.inference.passes import Passes
from segmeter.progress import Stages
from tests.models.parts import make_tiny

CPU = torch.device("cpu")


def passes_of(segmenter, *, batch_size=4, tile_batch=4, stages=None):
    config = InferenceConfig(precision="float32", batch_size=batch_size, tile_batch=tile_batch)
    return Passes(segmenter, config, CPU, stages=stages or Stages())


def batch(count=5, side=32):
    return torch.randint(0, 256, (count, 3, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


def test_a_batch_in_parts_has_the_logits_of_the_whole():
    segmenter, images = make_tiny(), batch()
    whole = passes_of(segmenter, batch_size=8).run(images)
    torch.testing.assert_close(passes_of(segmenter, batch_size=2).run(images), whole, rtol=1e-5, atol=1e-5)
    assert whole.shape == (5, 3, 32, 32)
    assert whole.dtype == torch.float32


def test_tiles_have_a_batch_size_of_their_own():
    sizes, segmenter = [], make_tiny()
    segmenter.register_forward_pre_hook(lambda module, inputs: sizes.append(len(inputs[0])))
    passes = passes_of(segmenter, batch_size=4, tile_batch=2)
    passes.run(batch())
    passes.run(batch(), tile=32)
    assert sizes == [4, 1, 2, 2, 1]


def test_modules_return_to_the_modes_they_had():
    segmenter = make_tiny().train()
    frozen = next(module for module in segmenter.modules() if isinstance(module, torch.nn.BatchNorm2d))
    frozen.eval()
    modes = [module.training for module in segmenter.modules()]
    with passes_of(segmenter).evaluating():
        assert not any(module.training for module in segmenter.modules())
    assert [module.training for module in segmenter.modules()] == modes
    assert not frozen.training


def test_memory_that_runs_out_halves_the_batch_once_and_then_fails():
    segmenter = make_tiny()

    def fail_above(most):
        def hook(module, inputs):
            if len(inputs[0]) > most:
                raise torch.OutOfMemoryError("no memory")

        return segmenter.register_forward_pre_hook(hook)

    handle = fail_above(2)
    passes, images = passes_of(segmenter, batch_size=4), batch(4)
    found = passes.run(images)
    handle.remove()
    assert passes.batch_size == 2
    torch.testing.assert_close(found, passes_of(segmenter, batch_size=2).run(images), rtol=0, atol=0)
    fail_above(0)
    with pytest.raises(RunError, match=r"memory"):
        passes.run(images)


def test_other_errors_pass_through():
    segmenter = make_tiny()

    def fail(module, inputs):
        raise RuntimeError("a fault of another kind")

    segmenter.register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="another kind"):
        passes_of(segmenter).run(batch(1))


def test_the_time_of_passes_is_added_up():
    stages = Stages()
    passes = passes_of(make_tiny(), stages=stages)
    passes.run(batch(1))
    first = stages.seconds()["forward"]
    passes.run(batch(1))
    assert stages.seconds()["forward"] > first > 0


def failing_above(most):
    """A segmenter that has no memory for more than `most` images or tiles at a time."""
    segmenter = make_tiny()

    def hook(module, inputs):
        if len(inputs[0]) > most:
            raise MemoryError("full")

    segmenter.register_forward_pre_hook(hook)
    return segmenter


def test_the_batch_is_halved_from_the_images_there_are_until_one_is_too_large(caplog):
    passes = passes_of(failing_above(1), batch_size=64)
    with caplog.at_level(logging.WARNING):
        passes.run(batch(6))
    assert (passes.batch_size, passes.tile_batch) == (1, 4)
    assert [record.getMessage() for record in caplog.records] == [
        "out of memory: 3 images at a time from here on (the same results)",
        "out of memory: 1 images at a time from here on (the same results)",
    ]
    with pytest.raises(RunError, match=r"one image of 160 x 160\. Set inference\.tile=64 and"):
        passes_of(failing_above(0)).run(batch(1, side=160))


def test_tiles_are_halved_in_number_but_never_in_size():
    passes = passes_of(failing_above(1), tile_batch=2)
    passes.run(batch(2), tile=32)
    assert (passes.batch_size, passes.tile_batch) == (4, 1)
    with pytest.raises(RunError, match=r"one tile of 32 x 32. Set inference\.tile below 32"):
        passes_of(failing_above(0)).run(batch(2), tile=32)
