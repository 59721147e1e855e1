"""`segmeter demo`: check, train, evaluate and predict on built-in data, with the commands a user would type."""

import shlex
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path

from segmeter.cli.app import run_command
from segmeter.cli.runs.lock import new_root
from segmeter.errors import ConfigError


def run(arguments: Sequence[str]) -> None:
    """Run all steps once, in a new folder.

    Raises
    ------
    ConfigError
        There is more than one argument, or the folder can't be made.
    """
    if len(arguments) > 1 or any("=" in argument for argument in arguments):
        given = " ".join(arguments)
        raise ConfigError(f"demo: expected at most a folder, got {given!r}. Use train and eval to set values.")
    if find_spec("torch") is None:  # before the first step, which needs no torch
        raise ModuleNotFoundError("No module named 'torch'", name="torch")
    start = time.monotonic()
    root = new_root(Path(arguments[0] if arguments else "runs"), f"demo-{datetime.now():%Y-%m-%d_%H%M%S}")
    _step("check", "data=cells")
    _step("train", "experiment=demo", f"run.root={root}")
    checkpoint = f"checkpoint={_newest(root / 'train')}"
    _step("eval", checkpoint, "postprocess=cells", "export.probs=true", "export.instances=true",
          f"run.root={root}")  # fmt: skip
    evaluated = _newest(root / "eval")
    _step("predict", checkpoint, f"input={_images()}", f"run.root={root}")
    sys.stdout.write(
        f"\nAll of it took {time.monotonic() - start:.0f} s.\n"
        f"  metrics   {evaluated / 'metrics.json'}\n"
        f"  overlays  {evaluated / 'overlays'}\n"
        f"  report    {evaluated / 'report.html'}\n"
    )


def _step(command: str, *overrides: str) -> None:
    sys.stdout.write(f"\n$ segmeter {command} {shlex.join(overrides)}\n")
    sys.stdout.flush()
    run_command(command, overrides)


def _newest(folder: Path) -> Path:
    return max(folder.iterdir())


def _images() -> Path:
    """Return the folder of the built-in images."""
    from segmeter.data.config import CellsConfig
    from segmeter.data.verification.report import build_dataset

    return build_dataset(CellsConfig(), split="test").pairs[0].image.parent
