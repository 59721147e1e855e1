"""Records the versions, source and machine that a result was made with, and names the folder of caches."""

import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

import segmeter
from segmeter.threads import count_cores, describe_waiting

PACKAGES = [
    "torch", "torchvision", "segmentation-models-pytorch", "timm", "numpy", "scipy", "scikit-image", "hydra-core",
    "omegaconf", "pillow", "tifffile", "imagecodecs", "zarr", "safetensors", "pyarrow", "rich", "jinja2",
    "numba",
]  # fmt: skip


def cache_folder() -> Path:
    """Return the folder of caches between runs: $SEGMETER_CACHE, or segmeter/ in $XDG_CACHE_HOME or ~/.cache."""
    usual = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "segmeter")
    return Path(os.environ.get("SEGMETER_CACHE") or usual)


def versions() -> dict[str, str | None]:
    """Return the versions of segmeter, Python and the packages that segmeter uses; None for a missing one."""
    found: dict[str, str | None] = {"segmeter": segmeter.__version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def hardware() -> dict[str, Any]:
    """Describe the processor, the cores that this process may use, memory, and the CUDA devices if torch is loaded."""
    facts: dict[str, Any] = {
        "os": platform.platform(),
        "cpu": _processor(),
        "cores": count_cores(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30, 1),
    }
    torch = sys.modules.get("torch")  # asking about GPUs must not cost a torch import
    if torch is not None:
        facts["threads"] = torch.get_num_threads()
        facts["waiting"] = describe_waiting()
        facts["cuda"] = torch.version.cuda
        facts["gpus"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return facts


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def source() -> dict[str, str | bool | None]:
    """Return the commit of the working folder's repository and whether it has changes; None where unknown."""
    lines = _git("status", "--porcelain=v2", "--branch", "--untracked-files=no")
    if lines is None:  # no repository, or one too large to look through in time
        named = _git("rev-parse", "HEAD")
        return {"commit": named[0].decode() if named else None, "dirty": None}
    name = next((line.split()[-1] for line in lines if line.startswith(b"# branch.oid ")), b"")
    commit = name.decode() if name.isalnum() else None  # "(initial)" before the first one
    return {"commit": commit, "dirty": any(line[:1] != b"#" for line in lines) if commit else None}


def _git(*arguments: str) -> list[bytes] | None:
    """Return the lines that git prints, as bytes: names of branches may be in any encoding."""
    try:
        return subprocess.run(["git", *arguments], capture_output=True, timeout=10, check=True).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return None
