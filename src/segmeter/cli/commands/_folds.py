"""`segmeter train folds=5`: a whole cross-validation in one command, for data sets too small to set cases aside.

Every fold is trained and evaluated on the cases that it did not see; the joined rows are the out-of-fold result, with
each case once.
"""

import subprocess
import sys
import time
from pathlib import Path

from segmeter.checks import expected
from segmeter.cli.config.schema import TrainConfig
from segmeter.cli.runs.run_folder import Job
from segmeter.errors import ConfigError
from segmeter.files import make_folder

FEW_IMAGES = 50  # below this, folds use every image for validation once
_PASSED_ON = ("device", "inference")  # overrides that evaluation takes too


def run_folds(config: TrainConfig, job: Job, count: int) -> None:
    """Train, evaluate and merge, each in a process of its own; all runs are below one folder.

    `resume` takes that folder, and goes on where an earlier start was stopped.

    Raises
    ------
    ConfigError
        The data set has no folds, or one is chosen already.
    SystemExit
        One of the runs failed. Its message is shown already.
    """
    if getattr(config.data, "fold", "") is not None:
        raise ConfigError(expected("config", "folds", "to be null with data.fold, or without data.fold", count))
    name = config.run.name or config.data.name
    new = config.run.root / "folds" / f"{time.strftime('%Y-%m-%d_%H%M%S')}_{name}"
    root = new if config.resume is None else Path(config.resume)
    make_folder(root)
    dropped = ("folds", "resume", "run.root", "run.name")
    given = [line for line in job.overrides if line.lstrip("+~").partition("=")[0] not in dropped]
    evaluated = [line for line in given if line.lstrip("+~").partition("=")[0].partition(".")[0] in _PASSED_ON]
    place = f"run.root={_quoted(root)}"
    for number in range(1, count + 1):
        own = [place, f"run.name=fold{number}"]
        sys.stdout.write(f"fold      {number} of {count}\n")
        run = _find(root / "train", number)
        _run(["train", *given, f"data.fold={number}/{count}", *own, *([f"resume={_quoted(run)}"] if run else [])])
        done = _find(root / "eval", number)
        if done is None or not (done / "metrics.json").is_file():
            trained = _find(root / "train", number)
            _run(["eval", f"checkpoint={_quoted(trained)}", "data.split=val", *evaluated, *own])
    runs = ",".join(_quoted(_find(root / "eval", number)) for number in range(1, count + 1))
    _run(["merge", f"runs=[{runs}]", "kind=folds", place, f"run.name={name}"])


def _run(arguments: list[str]) -> None:
    """Run a command; leave with its exit code if it fails. A signal is passed on, so that a training saves first."""
    sys.stdout.flush()
    process = subprocess.Popen([sys.executable, "-m", "segmeter", *arguments])
    try:
        code = process.wait()
    except BaseException:
        process.terminate()
        process.wait()
        raise
    if code:
        raise SystemExit(code)


def _find(folder: Path, number: int) -> Path | None:
    """The newest run of a fold, or None."""
    return max(folder.glob(f"*_fold{number}"), default=None)


def _quoted(path: Path | None) -> str:
    """A path as an override takes it."""
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
