"""What only POSIX systems have is used where it is there: the commands run without it, as they have to on Windows."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.data.crafted import encoded, noise

# The libraries keep the `os` and `signal` that they have imported; our modules get poorer ones
LIKE_WINDOWS = """
import sys, types
import concurrent.futures.process, multiprocessing.resource_tracker, subprocess
import filelock, hydra, numba, psutil, pyarrow.parquet, rich.progress, scipy.ndimage, skimage.measure
import os, signal

LACKING = {
    os: (
        "O_CLOEXEC O_DIRECTORY O_NOCTTY O_NOFOLLOW O_NONBLOCK fchmod fork getpgid getuid killpg mkfifo pread pwrite "
        "register_at_fork sched_getaffinity sched_setaffinity setpgrp setsid statvfs sysconf uname"
    ),
    signal: "SIGHUP SIGIO SIGKILL SIGPROF SIGUSR1 SIGUSR2 pthread_kill pthread_sigmask setitimer",
}
for module, names in LACKING.items():
    poorer = types.ModuleType(module.__name__)
    vars(poorer).update({name: value for name, value in vars(module).items() if name not in names.split()})
    sys.modules[module.__name__] = poorer
for name in ("fcntl", "grp", "posix", "pwd", "resource", "termios", "tty"):
    sys.modules[name] = None
"""
TORCH = "import torch, torchvision, segmentation_models_pytorch"
RUN = f"{LIKE_WINDOWS}from segmeter.cli.main import main\nmain(sys.argv[1:])"
# Few users may make links there
NO_LINKS = """
import pathlib
def refuse(*given, **more):
    error = OSError(22, "A required privilege is not held by the client")
    error.winerror = 1314
    raise error
pathlib.Path.symlink_to = refuse
"""
IMPORT_ALL = f"""{TORCH}
{LIKE_WINDOWS}
import importlib, pkgutil, segmeter
for module in pkgutil.walk_packages(segmeter.__path__, "segmeter."):
    if "triton" not in module.name and not module.name.startswith(("segmeter.__main__", "segmeter.api.adapters.")):
        importlib.import_module(module.name)
"""


def python(code: str, *line: str, at: Path) -> str:
    done = subprocess.run([sys.executable, "-c", code, *line], cwd=at, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_module_can_be_imported_without_what_windows_lacks(tmp_path: Path) -> None:
    python(IMPORT_ALL, at=tmp_path)


def test_masks_are_scored_and_runs_compared_without_what_windows_lacks(tmp_path: Path) -> None:
    """Mutation seen to fail: a folder opened with O_DIRECTORY, whether the system has it or not."""
    for number, side in enumerate(("base", "new", "references")):
        (tmp_path / side).mkdir()
        for case in "ab":
            (tmp_path / side / f"{case}.png").write_bytes(encoded(noise(40, 50, None, seed=number) // 128))
    for side in ("base", "new"):
        run = ["score", f"predictions={side}", "references=references", "data.num_classes=2", f"run.name={side}"]
        assert "mean IoU" in python(RUN, *run, at=tmp_path)
    base, new = (next((tmp_path / "runs/score").glob(f"*_{side}")) for side in ("base", "new"))
    for run in (base, new):
        assert {path.name for path in run.iterdir()} >= {"metrics.json", "cases.parquet", "report.html", ".owner"}
        assert not list(run.glob(".tmp-*"))
    python(RUN, "compare", f"runs=[{base},{new}]", at=tmp_path)
    assert next((tmp_path / "runs/compare").iterdir()).joinpath("compare.html").is_file()


@pytest.mark.slow
def test_a_model_is_trained_evaluated_and_run_without_what_windows_lacks(tmp_path: Path) -> None:
    code = f"{TORCH}\n{RUN.replace(LIKE_WINDOWS, LIKE_WINDOWS + NO_LINKS)}"
    small = [f"data.{split}_cases={count}" for split, count in (("train", 8), ("val", 2), ("test", 2))]
    python(code, "train", "data=cells", *small, "data.size=64", "training.steps=2", at=tmp_path)
    (run,) = (tmp_path / "runs/train").iterdir()
    assert (run / "checkpoints/best").is_file(), "no link was made"
    python(code, "eval", f"checkpoint={run}", at=tmp_path)
    (images,) = (tmp_path / "data").glob("cells-*/images")
    python(code, "predict", f"checkpoint={run}/checkpoints/last", f"input={images}", at=tmp_path)
    python(code, "report", f"run={run}", at=tmp_path)
    longer = ["training.steps=3", "allow_changes=[training.steps]"]
    python(code, "train", f"resume={run}", *longer, at=tmp_path)
    assert "step-00000003" in (run / "checkpoints/last").read_text()
