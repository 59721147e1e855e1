"""What is run at once shrinks when memory runs out: batches first, the tile once, then advice."""

import logging

import pytest
import torch

from segmeter.errors import RunError
from segmeter.inference.config import InferenceConfig
from segmeter.inference.oom_fallback import RunSizes, is_out_of_memory

FULL = MemoryError("full")


def shrink(sizes: RunSizes, images: int = 8, edge: int = 500) -> None:
    sizes.shrink(FULL, images=images, height=edge, width=edge)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"), True),
        (RuntimeError("shapes differ"), False),
        (ValueError("can't allocate memory"), False),
    ],
    ids=range(5),
)
def test_only_errors_of_memory_are_recognised(error, expected):
    assert is_out_of_memory(error) == expected


def test_the_batch_is_halved_until_one_image_is_too_large(caplog):
    sizes = RunSizes(InferenceConfig(batch_size=6, tile=None))
    with caplog.at_level(logging.WARNING):
        shrink(sizes)
        assert sizes.batch_size == 3
        shrink(sizes)
    assert sizes.batch_size == 1
    assert [record.getMessage() for record in caplog.records] == [
        "out of memory: 3 images at a time from here on (the same results)",
        "out of memory: 1 images at a time from here on (the same results)",
    ]
    with pytest.raises(RunError, match=r"one image of 500 x 500\. Set inference\.tile=250"):
        shrink(sizes)


def test_a_batch_larger_than_the_images_there_are_is_halved_from_their_number():
    sizes = RunSizes(InferenceConfig(batch_size=64, tile=None))
    shrink(sizes, images=4)
    assert sizes.batch_size == 2


def test_tiles_are_halved_in_number_and_then_once_in_size():
    sizes = RunSizes(InferenceConfig(batch_size=6, tile=256, tile_batch=2))
    shrink(sizes)
    assert (sizes.batch_size, sizes.tile_batch, sizes.tile) == (6, 1, 256)
    shrink(sizes)
    assert (sizes.tile_batch, sizes.tile) == (1, 128)
    with pytest.raises(RunError, match=r"Set inference\.tile below 128"):
        shrink(sizes)


def test_an_image_within_one_tile_is_run_whole_so_its_batch_shrinks():
    sizes = RunSizes(InferenceConfig(batch_size=4, tile=256, tile_batch=2))
    shrink(sizes, edge=200)
    assert (sizes.batch_size, sizes.tile_batch) == (2, 2)
