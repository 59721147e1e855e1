"""What is run at once shrinks when memory runs out: batches, never the tile, then advice."""

import logging

import pytest
import torch

from segmeter.errors import RunError
from segmeter.inference.oom_fallback import RunSizes, is_out_of_memory

FULL = MemoryError("full")


def sizes(batch_size: int = 6, tile_batch: int = 2) -> RunSizes:
    return RunSizes(batch_size=batch_size, tile_batch=tile_batch)


def shrink(of: RunSizes, count: int = 8, tile: int | None = None, edge: int = 500) -> None:
    of.shrink(FULL, count=count, tile=tile, height=edge, width=edge)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("MPS backend out of memory (MPS allocated: 18.1 GB)"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_NOT_SUPPORTED"), False),
        (RuntimeError("shapes differ"), False),
        (ValueError("can't allocate memory"), False),
    ],
    ids=range(10),
)
def test_only_errors_of_memory_are_recognised(error, expected):
    assert is_out_of_memory(error) == expected


def test_the_batch_is_halved_until_one_image_is_too_large(caplog):
    found = sizes()
    with caplog.at_level(logging.WARNING):
        shrink(found)
        assert found.batch_size == 3
        shrink(found)
    assert (found.batch_size, found.tile_batch) == (1, 2)
    assert [record.getMessage() for record in caplog.records] == [
        "out of memory: 3 images at a time from here on (the same results)",
        "out of memory: 1 images at a time from here on (the same results)",
    ]
    with pytest.raises(RunError, match=r"one image of 500 x 500\. Set inference\.tile=192"):
        shrink(found)


def test_a_batch_larger_than_the_images_there_are_is_halved_from_their_number():
    found = sizes(batch_size=64)
    shrink(found, count=4)
    assert found.batch_size == 2


def test_tiles_are_halved_in_number_but_never_in_size():
    found = sizes()
    shrink(found, tile=256, edge=256)
    assert (found.batch_size, found.tile_batch) == (6, 1)
    with pytest.raises(RunError, match=r"one tile of 256 x 256. Set inference\.tile below 256"):
        shrink(found, tile=256, edge=256)
