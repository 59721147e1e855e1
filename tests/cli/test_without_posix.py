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
RUN = f"{LIKE_WINDOWS}from segmeter.cli.main import main\nfor line in sys.argv[1:]: main(line.split())"
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


def python(code: str, *lines: str, at: Path) -> str:
    """What a process prints that runs command lines, one after another."""
    done = subprocess.run([sys.executable, "-c", code, *lines], cwd=at, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_every_module_can_be_imported_without_what_windows_lacks(tmp_path: Path) -> None:
    python(IMPORT_ALL, at=tmp_path)


@pytest.mark.slow
def test_masks_are_scored_and_runs_compared_without_what_windows_lacks(tmp_path: Path) -> None:
    """Mutation seen to fail: a folder opened with O_DIRECTORY, whether the system has it or not."""
    for number, side in enumerate(("base", "new", "references")):
        (tmp_path / side).mkdir()
        for case in "ab":
            (tmp_path / side / f"{case}.png").write_bytes(encoded(noise(40, 50, None, seed=number) // 128))
    score = "score predictions={0} references=references data.num_classes=2 run.name={0}"
    assert python(RUN, *map(score.format, ("base", "new")), at=tmp_path).count("mean IoU") == 2
    base, new = (next((tmp_path / "runs/score").glob(f"*_{side}")) for side in ("base", "new"))
    for run in (base, new):
        assert {path.name for path in run.iterdir()} >= {"metrics.json", "cases.parquet", "report.html", ".owner"}
        assert not list(run.glob(".tmp-*"))
    python(RUN, f"compare runs=[{base},{new}]", at=tmp_path)
    assert next((tmp_path / "runs/compare").iterdir()).joinpath("compare.html").is_file()


@pytest.mark.slow
def test_a_model_is_trained_evaluated_and_run_without_what_windows_lacks(tmp_path: Path) -> None:
    code = f"{TORCH}\n{RUN.replace(LIKE_WINDOWS, LIKE_WINDOWS + NO_LINKS)}"
    small = [f"data.{split}_cases={count}" for split, count in (("train", 8), ("val", 2), ("test", 2))]
    python(code, f"train data=cells {' '.join(small)} data.size=64 training.steps=2", at=tmp_path)
    (run,) = (tmp_path / "runs/train").iterdir()
    assert (run / "checkpoints/best").is_file(), "no link was made"
    (images,) = (tmp_path / "data").glob("cells-*/images")
    use = [f"eval checkpoint={run}", f"predict checkpoint={run}/checkpoints/last input={images}", f"report run={run}"]
    longer = f"train resume={run} training.steps=3 allow_changes=[training.steps]"
    python(code, *use, longer, at=tmp_path)
    assert "step-00000003" in (run / "checkpoints/last").read_text()
