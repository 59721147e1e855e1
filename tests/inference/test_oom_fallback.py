"""Errors that say that memory ran out are told from others."""

import pytest
import torch

from segmeter.inference.oom_fallback import is_out_of_memory


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
