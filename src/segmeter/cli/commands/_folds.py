"""`segmeter train folds=5`: a whole cross-validation in one command, for data sets too small to set cases aside.

One model is trained per fold, and evaluated on the cases that it did not see. The joined rows are the out-of-fold
result, in which each case appears once.
"""

import logging
import os
import subprocess
import sys
import time
from pathlib import Path

from segmeter.checks import expected
from segmeter.cli.commands import read_arguments
from segmeter.cli.config.hydra_rules import quoted, written
from segmeter.cli.config.model_command_configs import TrainConfig
from segmeter.cli.folders import SAVED_STEPS, Job, new_root
from segmeter.data.config import DataConfig
from segmeter.data.dataset import Dataset
from segmeter.data.folds import count_left_right
from segmeter.distributed.shards import find_rank
from segmeter.errors import ConfigError
from segmeter.schema import as_plain, defaults

_LOG = logging.getLogger(__name__)
FEW_IMAGES = 50  # a data set with fewer images gets the hint that folds validate on every image
_READING = ("max_pixels", "allow_links", "timeout_s")  # the keys of data that a checkpoint does not store


def run_folds(config: TrainConfig, job: Job, count: int) -> None:
    """Train, evaluate and merge, each in a process of its own. All runs are below one folder.

    With `resume` set to that folder, the command continues where an earlier one was stopped.

    Raises
    ------
    ConfigError
        The data set has no folds, one is chosen already, or they can't be run or resumed as asked.
    SystemExit
        One of the runs failed. Its message has been shown already.
    """
    _check(config, count)
    name = config.run.name or config.data.name
    root = (
        Path(config.resume)
        if config.resume is not None
        else new_root(config.run.root / "folds", f"{time.strftime('%Y-%m-%d_%H%M%S')}_{name}")
    )
    dropped = ("folds", "resume", "run.root", "run.name")
    train_overrides = [line for line in job.overrides if line.lstrip("+~").partition("=")[0] not in dropped]
    args = read_arguments("train", job.argv[2:])
    files = {"--config-name": args.config_name, "--config-dir": args.config_dir}  # the user's own files
    flags = [f"{flag}={value}" for flag, value in files.items() if value]
    # the evaluation takes these from the configuration of the training, wherever they were set
    shared = {"device": config.device, "plugins": [*config.plugins]}
    for group, keys in (("inference", [*type(config.inference).model_fields]), ("data", _READING)):
        values = as_plain(getattr(config, group))
        usual = defaults(type(getattr(config, group)))
        shared |= {f"{group}.{key}": values[key] for key in keys if key in values and values[key] != usual[key]}
    eval_overrides = [f"{key}={written(value)}" for key, value in shared.items() if value != []]
    run_root = _override("run.root", root)
    for number in range(1, count + 1):
        run_overrides = [run_root, _override("run.name", f"fold{number}")]
        sys.stdout.write(f"fold      {number} of {count}\n")
        run = _find(root / "train", number, holds=SAVED_STEPS)  # None if it was killed before its first checkpoint
        # given even if they are null, as one of the user's files may set them
        resume_overrides = ["folds=null", _override("resume", run) if run else "resume=null"]
        fold = _override("data.fold", f"{number}/{count}")
        _run(["train", *flags, *train_overrides, fold, *run_overrides, *resume_overrides])
        if _find(root / "eval", number, holds="metrics.json") is None:
            trained = _find(root / "train", number, holds=SAVED_STEPS)
            checkpoint = _override("checkpoint", trained)
            _run(["eval", checkpoint, _override("data.split", "val"), *eval_overrides, *run_overrides])
    runs = _override("runs", *(_find(root / "eval", number, holds="metrics.json") for number in range(1, count + 1)))
    _run(["merge", runs, _override("kind", "folds"), run_root, _override("run.name", name)])


def advise(config: DataConfig, data: Dataset, val_data: Dataset, *, validates: bool = True) -> dict[str, str]:
    """Warn if the validation split is too small to choose a checkpoint, and name what helps a small data set.

    Returns
    -------
    The hints that were printed, by their names.
    """
    if len(val_data) in (1, 2) and validates:
        images = "one image" if len(val_data) == 1 else "two images"
        _LOG.warning("validation on %s: the best checkpoint is chosen by chance; set data.val_fraction.", images)
    if getattr(config, "fold", "") is not None or config.name == "camvid":
        return {}
    case_ids = (*data.case_ids, *val_data.case_ids)
    hints: dict[str, str] = {}
    if len(case_ids) < FEW_IMAGES:
        hints["few"] = f"{len(case_ids)} images: `segmeter train folds=5 ...` validates on every one of them"
    pairs = count_left_right(case_ids)
    if pairs and not any(getattr(config, key, None) for key in ("group_by", "group_until")):
        hints["pairs"] = f"{pairs} names with a left and a right side: data.group_by=pair keeps them together"
    sys.stdout.write("".join(f"{name:<10}{hint}\n" for name, hint in hints.items()))
    return hints


def _check(config: TrainConfig, count: int) -> None:
    launch = config.launch.name
    rules = {
        "to be null with data.fold, or without data.fold": getattr(config.data, "fold", "") is not None,
        f"to be null with launch={launch} (local and processes can)": launch in ("slurm", "dask"),
        "to be null where torchrun or srun starts several processes (launch=processes can)": find_rank() is not None,
    }
    problems = [expected("config", "folds", rule, count) for rule, broken in rules.items() if broken]
    folder = Path(config.resume or "")
    is_ours = folder.is_dir() and ((folder / "train").is_dir() or not any(folder.iterdir()))  # or killed at once
    if config.resume is not None and (config.resume == "auto" or not is_ours):
        rule = "with folds to name the folder of a cross-validation, such as runs/folds/<date>_<time>_<name>"
        problems.append(expected("config", "resume", rule, config.resume))
    if problems:
        raise ConfigError(problems)


def _run(arguments: list[str]) -> None:
    """Run a command, and exit with its code if it fails. A signal is passed on, so that a training saves first.

    A second signal would end the training unsaved. So the command has a process group of its own, and Ctrl-C reaches
    only this process.
    """
    sys.stdout.flush()
    process = subprocess.Popen([sys.executable, "-m", "segmeter", *arguments], process_group=0)
    try:
        code = process.wait()
    except BaseException:
        if hasattr(os, "setpgrp"):  # Windows has told the command too, and could only kill it
            process.terminate()
        process.wait()
        raise
    if code:
        raise SystemExit(code)


def _find(folder: Path, number: int, *, holds: str) -> Path | None:
    """Find the newest run of a fold that has a file `holds`, or return None."""
    return max((run for run in folder.glob(f"*_fold{number}") if any(run.glob(holds))), default=None)


def _override(key: str, *values: object) -> str:
    """Write an override with one value or a list of values, each in quotes."""
    texts = [quoted(str(value)) for value in values]
    return f"{key}={texts[0] if len(texts) == 1 else '[' + ','.join(texts) + ']'}"
