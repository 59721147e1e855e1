"""`segmeter doctor`: shows versions and devices, and finds faults of the installation."""

import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rich.console import Console
from rich.table import Table

from segmeter.errors import ConfigError, RunError
from segmeter.records import hardware, versions

_OF_TORCH = ("torch", "torchvision", "segmentation-models-pytorch", "timm", "safetensors")
_OF_EXTRAS = ("zarr",)


def run_doctor(arguments: Sequence[str]) -> None:
    """Print the versions and devices of this installation, and every fault in it.

    Raises
    ------
    RunError
        One line per fault, with its remedy.
    """
    if arguments:
        raise ConfigError(f"doctor: expected no arguments, got {' '.join(arguments)!r}.")
    light = is_light()
    checks = (_twice, _folder) if light else (_twice, _torch, _vision, _folder)
    problems = [problem for check in checks if (problem := check())]
    left_out = (*_OF_EXTRAS, *(_OF_TORCH if light else ()))
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in versions().items():
        table.add_row(name, value or ("not installed" if name in left_out else "missing"))
    table.add_row("", "")
    for name, fact in {**hardware(), **({} if light or _torch() else _torch_facts())}.items():
        table.add_row(name, ", ".join(map(str, fact)) or "none" if isinstance(fact, list) else str(fact))
    Console(markup=False, highlight=False).print(table)
    missing = [name for name, found in versions().items() if found is None and name not in left_out]
    problems += [f"{name} is missing. Install segmeter again." for name in missing]
    if problems:
        raise RunError([f"doctor: {problem}" for problem in problems])
    sys.stdout.write("\nNothing is wrong with this install.\n")


def is_light() -> bool:
    """Tell whether this is segmeter-score, which leaves torch out."""
    return _is_installed("segmeter-score") and not _is_installed("segmeter")


def _is_installed(distribution: str) -> bool:
    try:
        return bool(version(distribution))
    except PackageNotFoundError:
        return False


def _twice() -> str | None:
    if not (_is_installed("segmeter-score") and _is_installed("segmeter")):
        return None
    remedy = "Run: pip uninstall segmeter-score; pip install --force-reinstall --no-deps segmeter"
    return f"segmeter and segmeter-score are both installed, and share their files. {remedy}"


def _torch() -> str | None:
    return _import_problem("torch", lambda: __import__("torch").ones(1).sum())


def _vision() -> str | None:
    remedy = "torch and torchvision do not belong together: install the pair that constraints.txt pins."
    problem = _import_problem("torchvision", lambda: __import__("torchvision").ops.nms)
    return f"{problem} {remedy}" if problem else None


def _import_problem(name: str, use: Callable[[], object]) -> str | None:
    try:
        use()
    except Exception as error:  # a broken binary may raise anything
        reason = next(iter(str(error).splitlines()), "no reason given")
        return f"{name} does not work: {type(error).__name__}: {reason}."
    return None


def _folder() -> str | None:
    try:
        with tempfile.TemporaryFile(dir=Path.cwd()):
            return None
    except OSError as error:
        return f"this folder can't be written ({error.strerror}): {Path.cwd()}. Set run.root to one that can."


def _torch_facts() -> dict[str, str]:
    import torch

    from segmeter.inference.device import pick_dtype

    native = pick_dtype(torch.device("cpu"), "auto") is torch.bfloat16
    return {
        "torch build": "CUDA " + torch.version.cuda if torch.version.cuda else "CPU only",
        "bfloat16 on the CPU": "yes" if native else "no (float32 is used)",
    }
