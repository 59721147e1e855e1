"""Picks the device on which a model runs, or explains what this machine has instead."""

import re

import torch

from segmeter.checks import expected, shown
from segmeter.errors import ConfigError

_NAME = re.compile(r"cpu|mps|cuda(:\d+)?")


def pick_device(name: str = "auto") -> torch.device:
    """Choose where a model runs.

    Parameters
    ----------
    name
        "cpu", "cuda", "cuda:1", "mps" (an Apple GPU), or "auto": the first CUDA GPU, else the CPU.

    Raises
    ------
    ConfigError
        The name is unknown, or there is no such device here.
    """
    if not (isinstance(name, str) and (name == "auto" or _NAME.fullmatch(name))):
        raise ConfigError(expected("config", "device", 'to be "auto", "cpu", "cuda", "cuda:N" or "mps"', shown(name)))
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    if device.type == "cuda":
        _check_cuda(name, device.index or 0)
    if device.type == "mps" and not torch.backends.mps.is_available():
        built = torch.backends.mps.is_built()
        why = "sees no Apple GPU" if built else "is built without Apple's Metal"
        remedy = f"This torch ({torch.__version__}) {why}: set device=cpu."
        raise ConfigError(expected("config", "device", "to be here", "'mps'", remedy))
    return device


def count_gpus() -> int:
    """The number of GPUs that this process sees."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def _check_cuda(name: str, index: int) -> None:
    found = count_gpus()
    if index < found:
        return
    given = f"{name!r}, with {found} GPUs found"
    if found:
        remedy = f"Use cuda:0 to cuda:{found - 1}."
    elif torch.version.cuda is None:
        remedy = f"This torch ({torch.__version__}) is built without CUDA: install a CUDA build, or set device=cpu."
    else:
        remedy = (
            f"This torch ({torch.__version__}) is built for CUDA {torch.version.cuda} but sees no GPU: "
            "check the driver with nvidia-smi and CUDA_VISIBLE_DEVICES, or set device=cpu."
        )
    raise ConfigError(expected("config", "device", "to be here", given, remedy))
