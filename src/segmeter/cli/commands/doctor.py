"""`segmeter doctor`: shows versions and devices, and finds faults of the installation."""

import sys
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version

from rich.console import Console
from rich.table import Table

from segmeter.errors import ConfigError, RunError
from segmeter.records import hardware, versions

_WITH_TORCH = ("torch", "torchvision", "segmentation-models-pytorch", "timm", "safetensors")
_TWICE = (
    "segmeter and segmeter-score are both installed, and share their files. "
    "Run: pip uninstall segmeter-score; pip install --force-reinstall --no-deps segmeter"
)
_PAIR = "torch and torchvision do not belong together: install the pair that constraints.txt pins."


def run_doctor(arguments: Sequence[str]) -> None:
    """Print the versions and devices of this installation, and every fault in it.

    Raises
    ------
    RunError
        One line per fault, with its remedy.
    """
    if arguments:
        raise ConfigError(f"doctor: expected no arguments, got {' '.join(arguments)!r}.")
    has_score = _is_installed("segmeter-score")  # the distribution without torch
    has_full = _is_installed("segmeter")
    problems = [_TWICE] if has_score and has_full else []
    torch_facts: dict[str, str] = {}
    optional = ["zarr"]
    if has_score and not has_full:
        optional += _WITH_TORCH
    else:
        torch_fault = _fault("torch", lambda: __import__("torch").ones(1).sum())
        vision_fault = _fault("torchvision", lambda: __import__("torchvision").ops.nms, _PAIR)
        problems += [fault for fault in (torch_fault, vision_fault) if fault]
        torch_facts = {} if torch_fault else _torch_facts()
    facts = hardware() | torch_facts  # asked after torch is loaded, which decides how its threads wait
    installed = versions()
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in installed.items():
        table.add_row(name, value or ("not installed" if name in optional else "missing"))
    table.add_row("", "")
    for name, fact in facts.items():
        table.add_row(name, ", ".join(map(str, fact)) or "none" if isinstance(fact, list) else str(fact))
    Console(markup=False, highlight=False).print(table)
    missing = [name for name, value in installed.items() if value is None and name not in optional]
    problems += [f"{name} is missing. Install segmeter again." for name in missing]
    if problems:
        raise RunError([f"doctor: {problem}" for problem in problems])
    sys.stdout.write("\nNothing is wrong with this install.\n")


def _is_installed(distribution: str) -> bool:
    try:
        return bool(version(distribution))
    except PackageNotFoundError:
        return False


def _fault(name: str, use: Callable[[], object], remedy: str = "") -> str:
    """Say why a library does not work when it is used, or return "" if it works."""
    try:
        use()
    except Exception as error:  # a broken binary may raise anything
        reason = next(iter(str(error).splitlines()), "no reason given")
        return f"{name} does not work: {type(error).__name__}: {reason}. {remedy}".rstrip()
    return ""


def _torch_facts() -> dict[str, str]:
    import torch

    from segmeter.inference.device import pick_dtype

    native = pick_dtype(torch.device("cpu"), "auto") is torch.bfloat16
    return {
        "torch build": "CUDA " + torch.version.cuda if torch.version.cuda else "CPU only",
        "bfloat16 on the CPU": "yes" if native else "no (float32 is used)",
    }
