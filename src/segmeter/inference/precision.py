"""Chooses the number format in which a model computes on a device."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from segmeter.checks import expected
from segmeter.errors import ConfigError
from segmeter.inference.config import Precision

_CPU_BFLOAT16 = ("avx512_bf16", "amx_bf16")
_REFUSED = {"cpu": ("float16", "bfloat16"), "mps": ("bfloat16", "float16")}  # and the alternative


def pick_dtype(device: torch.device, precision: Precision) -> torch.dtype:
    """The dtype that `precision` means on `device`.

    "auto" is bfloat16 if the device computes in it (a CPU with avx512_bf16 or amx_bf16, a GPU since Ampere),
    float16 on older GPUs, else float32.

    Raises
    ------
    ConfigError
        float16 on a CPU, bfloat16 on an Apple GPU.
    """
    if precision == "auto":
        return _fastest(device)
    refused, instead = _REFUSED.get(device.type, ("", ""))
    if precision == refused:
        remedy = f"Use {instead} or float32."
        raise ConfigError(expected("inference", "precision", f"that {device.type} computes in", f"'{refused}'", remedy))
    dtype: torch.dtype = getattr(torch, precision)
    return dtype


def training_precision(device: torch.device, precision: Precision) -> Precision:
    """The meaning of `precision` in training: "auto" is float32 on Intel CPUs that have bfloat16 but no AMX.

    There a step takes a quarter to a third less time in float32. Inference keeps bfloat16, in
    which the labels of an image do not depend on how many others are in its batch.
    """
    capable = torch.cpu.get_capabilities() if device.type == "cpu" else {}
    slow = str(capable.get("cpu_name")).startswith("Intel") and not capable.get("amx_bf16")
    return "float32" if precision == "auto" and slow else precision


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[object]:
    """The context for forward passes (and losses) on `device`; float32 is float32 on a GPU too, not TF32.

    Raises
    ------
    ConfigError
        See `pick_dtype`.
    """
    dtype = pick_dtype(device, precision)
    if dtype is not torch.float32:
        return torch.autocast(device.type, dtype=dtype)
    return without_tf32() if device.type == "cuda" else nullcontext()


@contextmanager
def without_tf32() -> Iterator[None]:
    """Keep all 23 bits of float32's mantissa. TF32, cuDNN's default on GPUs since Ampere, drops 13 of them."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    before = cudnn.allow_tf32, matmul.allow_tf32
    try:
        cudnn.allow_tf32 = matmul.allow_tf32 = False
        yield
    finally:
        cudnn.allow_tf32, matmul.allow_tf32 = before


def has_bfloat16(device: torch.device) -> bool:
    """Whether a device computes in bfloat16 itself, rather than through float32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    capable = torch.cpu.get_capabilities() if device.type == "cpu" else {}
    return any(capable.get(name) for name in _CPU_BFLOAT16)


def _fastest(device: torch.device) -> torch.dtype:
    if has_bfloat16(device):
        return torch.bfloat16
    return torch.float16 if device.type == "cuda" else torch.float32
