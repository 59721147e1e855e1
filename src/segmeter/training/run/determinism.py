"""The state of every generator -> plain values for a checkpoint, and back; and what determinism needs."""

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from segmeter.bridge.to_numpy import to_numpy
from segmeter.bridge.to_torch import to_torch


def seed_everything(seed: int) -> None:
    """Seed the global generators of Python, NumPy and torch, which layers such as dropout draw from."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - the legacy generator is what other people's layers draw from
    torch.manual_seed(seed)


def capture_rng(device: torch.device) -> dict[str, Any]:
    """Tensors, numbers and lists alone, as checkpoints hold nothing else; a GPU is asked only where it is used."""
    version, words, gauss = random.getstate()
    legacy = np.random.get_state(legacy=False)  # noqa: NPY002
    return {
        "python": [version, list(words), gauss],
        "numpy": {
            "key": to_torch(legacy["state"]["key"].astype(np.int64)),
            "pos": int(legacy["state"]["pos"]),
            "has_gauss": int(legacy["has_gauss"]),
            "gauss": float(legacy["gauss"]),
        },
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if device.type == "cuda" else [],
        "mps": torch.mps.get_rng_state() if device.type == "mps" else None,
    }


def restore_rng(state: dict[str, Any]) -> None:
    """Put back what `capture_rng` gave; the states of more GPUs than there are here are left out."""
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    key = to_numpy(state["numpy"]["key"], dtype="uint32")
    pos, has_gauss, cached = (state["numpy"][name] for name in ("pos", "has_gauss", "gauss"))
    np.random.set_state(("MT19937", key, pos, has_gauss, cached))  # noqa: NPY002
    torch.set_rng_state(state["torch"])
    for number, generator in enumerate(state["cuda"][: torch.cuda.device_count()] if state["cuda"] else []):
        torch.cuda.set_rng_state(generator, number)
    if state.get("mps") is not None and torch.backends.mps.is_available():
        torch.mps.set_rng_state(state["mps"])


@contextmanager
def kernels(deterministic: bool) -> Iterator[None]:
    """Choose deterministic kernels, or the fastest ones for sizes that do not change, while the block runs."""
    before = (torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark)
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read by cuBLAS when it starts
        torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = not deterministic
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0])
        torch.backends.cudnn.benchmark = before[1]
