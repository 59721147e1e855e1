"""device, precision -> the context in which a model computes."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from segmeter.checks import expected
from segmeter.errors import ConfigError
from segmeter.inference.config import Precision


def pick_dtype(device: torch.device, precision: Precision) -> torch.dtype:
    """The dtype that `precision` means on `device`.

    "auto" is bfloat16 where that is faster (see `gains_from_bfloat16`), float16 on older GPUs, else float32.

    Raises
    ------
    ConfigError
        float16 without CUDA.
    """
    if precision == "auto":
        return _fastest(device)
    if precision == "float16" and device.type != "cuda":
        remedy = "Use bfloat16 or float32."
        raise ConfigError(expected("inference", "precision", f"that {device.type} computes in", "'float16'", remedy))
    dtype: torch.dtype = getattr(torch, precision)
    return dtype


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[object]:
    """The context for forward passes (and losses) on `device`; float32 is float32 on a GPU too, not TF32.

    Raises
    ------
    ConfigError
        float16 without CUDA.
    """
    dtype = pick_dtype(device, precision)
    if dtype is not torch.float32:
        return torch.autocast(device.type, dtype=dtype)
    return without_tf32() if device.type == "cuda" else nullcontext()


@contextmanager
def without_tf32() -> Iterator[None]:
    """Keep all 23 bits of float32's mantissa, of which TF32, cuDNN's default on GPUs since Ampere, drops 13."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    before = cudnn.allow_tf32, matmul.allow_tf32
    try:
        cudnn.allow_tf32 = matmul.allow_tf32 = False
        yield
    finally:
        cudnn.allow_tf32, matmul.allow_tf32 = before


def gains_from_bfloat16(device: torch.device) -> bool:
    """Whether a network runs faster in bfloat16: on GPUs since Ampere, and CPUs with amx_bf16 or AMD's avx512_bf16.

    Intel's avx512_bf16 alone does not count: there a U-Net's forward passes and training steps take 0 to 60 % more CPU
    time than in float32 (Xeon without AMX, torch 2.15, `benchmarks/precision.py`).
    """
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    capable = torch.cpu.get_capabilities() if device.type == "cpu" else {}
    intel = str(capable.get("cpu_name", "")).startswith("Intel")
    return bool(capable.get("amx_bf16") or (capable.get("avx512_bf16") and not intel))


def _fastest(device: torch.device) -> torch.dtype:
    if gains_from_bfloat16(device):
        return torch.bfloat16
    return torch.float16 if device.type == "cuda" else torch.float32
