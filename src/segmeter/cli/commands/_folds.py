"""`segmeter train folds=5`: a whole cross-validation in one command, for data sets too small to set cases aside.

Every fold is trained and evaluated on the cases that it did not see; the joined rows are the out-of-fold result, with
each case once.
"""

import logging
import subprocess
import sys
import time
from pathlib import Path

from segmeter.checks import expected
from segmeter.cli.config.schema import TrainConfig
from segmeter.cli.runs.run_folder import Job
from segmeter.data.dataset import Dataset
from segmeter.data.folders.folds import find_pairs
from segmeter.errors import ConfigError
from segmeter.files import make_folder

_LOG = logging.getLogger(__name__)
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
    place = _override("run.root", root)
    for number in range(1, count + 1):
        own = [place, _override("run.name", f"fold{number}")]
        sys.stdout.write(f"fold      {number} of {count}\n")
        run = _find(root / "train", number)
        resumed = [_override("resume", run)] if run else []
        _run(["train", *given, _override("data.fold", f"{number}/{count}"), *own, *resumed])
        done = _find(root / "eval", number)
        if done is None or not (done / "metrics.json").is_file():
            trained = _find(root / "train", number)
            _run(["eval", _override("checkpoint", trained), _override("data.split", "val"), *evaluated, *own])
    runs = _override("runs", *(_find(root / "eval", number) for number in range(1, count + 1)))
    _run(["merge", runs, _override("kind", "folds"), place, _override("run.name", name)])


def advise(config: TrainConfig, data: Dataset, val_data: Dataset) -> None:
    """Warn of a validation that says little, and offer what a small data set can do about it."""
    if len(val_data) in (1, 2) and config.training.validate_every is not None:
        images = "one image" if len(val_data) == 1 else "two images"
        _LOG.warning("validation on %s: the best checkpoint is chosen by chance; set data.val_fraction.", images)
    if getattr(config.data, "fold", "") is not None or config.data.name == "camvid":
        return
    names = (*data.case_ids, *val_data.case_ids)
    if len(names) < FEW_IMAGES:
        sys.stdout.write(
            f"few       {len(names)} images: `segmeter train folds=5 ...` validates on every one of them\n"
        )
    pairs = find_pairs(names)
    if pairs and not (config.data.group_by or config.data.group_until):
        sys.stdout.write(
            f"pairs     {pairs} names with a left and a right side: data.group_by=pair keeps them together\n"
        )


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


def _override(key: str, *values: object) -> str:
    """An override of one value, or of a list of several, in quotes."""
    quoted = ['"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"' for value in values]
    return f"{key}={quoted[0] if len(quoted) == 1 else '[' + ','.join(quoted) + ']'}"
