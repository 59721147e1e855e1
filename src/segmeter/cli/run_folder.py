"""Opens a run's folder: locked for one process, recorded in run.json, and removed again if the input is refused.

The values of keys that look like secrets become [REDACTED] in everything that a run writes.
"""

import errno
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock
from omegaconf import OmegaConf

from segmeter.cli.config.command_configs import Common
from segmeter.cli.folders import LOCK, OWNER, WORK, Job, not_writable, owner_of, take_lock, try_read_run, usual_folder
from segmeter.cli.messages import LOGGER, logged
from segmeter.errors import EXIT_BAD_INPUT, ConfigError, LateError, PeerError, RunError, SegmeterError, let_finish
from segmeter.files import clear_leftovers, make_folder, new_folder, remove, write_bytes, write_json
from segmeter.metrics.arrays import json_number_or_inf
from segmeter.records import RUN, flatten, hardware, read_run, seal_run, source, versions
from segmeter.remote import check_target, upload_folder
from segmeter.schema import as_plain

# A new run that is refused within this time leaves no folder.
KEEP_SECONDS = 60.0
MASK = "[REDACTED]"
_SECRET = re.compile(
    r"(^|_)(secret|token|credentials?|pat|auth|authorization|cookie|dsn|webhook(_ur[il])?"
    r"|(api|access|private|secret|account|ssh|encryption|signing)_?key)s?$"
    r"|pass(word|wd|phrase|code)?s?$",
    re.IGNORECASE,
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_INNER = re.compile(r"[\w-]+(?=['\"]?\s*[:=])")  # matches keys inside a value
_LOGIN = re.compile(r"(?<=://)[^/\s@]+(?=@)")  # matches user:password in a URL


@contextmanager
def open_run(
    config: Common,
    job: Job,
    *,
    resumed: Path | None = None,
    facts: dict[str, Any],
    accept: Callable[[], object] = lambda: None,
) -> Iterator[Path]:
    """Make the run's folder, or lock the resumed one, write its records, and record how the run ended.

    A new run that is refused because of bad input leaves no folder.

    Parameters
    ----------
    config
        The checked configuration.
    job
        The job as it was requested.
    resumed
        The folder of the run to continue.
    facts
        Further entries of run.json, such as hashes of data and checkpoint.
    accept
        Called when a resumed folder is locked, before anything in it changes. It raises to refuse the resume.

    Raises
    ------
    ConfigError
        The folder can't be made or written, or another process runs in it.
    RunError
        A file can't be written, or the system failed in another way. The line has the file, the cause and the next
        step.
    """
    for key, value in flatten(as_plain(config)).items():
        if MASK in str(value):  # the value was copied from a run folder
            raise ConfigError(f"config: `{key}` is {MASK}, as run folders keep no secrets. Set it again.")
    if config.run.copy_to is not None:
        check_target(config.run.copy_to)
    started = time.monotonic()
    entered = False
    was_unlocked = resumed is not None and not (resumed / LOCK).exists()
    folder, lock = _claim(config, job, resumed)
    try:
        if resumed:
            accept()
            clear_leftovers(folder)
        with logged(folder), _recorded(folder, config, job, facts):
            entered = True
            yield folder
    except BaseException as error:
        fault = _explain(error, config, job, folder if entered or resumed else None)
        refused = isinstance(fault, SegmeterError) and fault.exit_code == EXIT_BAD_INPUT
        if resumed is None and (refused or not entered):
            lock.release()  # Windows can't remove a folder with an open file in it
            fault = _leave(folder, config, fault, time.monotonic() - started)
        if was_unlocked and not entered:  # a refused resume changes nothing
            for name in (LOCK, OWNER):
                with suppress(OSError):
                    remove(folder / name)
        if fault is error:
            raise
        raise fault from error
    finally:
        lock.release()


def _copy(folder: Path, config: Common, target: str) -> None:
    """Copy a finished run. If that fails, the message says how to copy it again."""
    # a folder named by a number is a job of a sweep
    name = f"{folder.parent.name}_{folder.name}" if folder.name.isdigit() else folder.name
    try:
        url = upload_folder(folder, target, name=name)
    except SegmeterError as error:
        remedy = f"copy it with resume={folder}" if hasattr(config, "resume") else "copy the folder"
        line = f"run: the results in {folder} are whole, but not copied: {remedy}."
        raise RunError([*error.problems, line]) from error
    sys.stdout.write(f"copied    {url}\n")


def note_done(folder: Path, result: Mapping[str, float | None]) -> None:
    """Record in run.json that the run is done, and its result. A later failure changes the state again.

    Call it before the report is written, which shows how the run ended.

    Parameters
    ----------
    result
        Named numbers. A sweep compares the first. Integers, such as the number of steps, stay integers. JSON has no
        infinity or NaN, so they are written as the text "inf" and as null.
    """
    plain = {name: json_number_or_inf(value) if isinstance(value, float) else value for name, value in result.items()}
    _record_end(folder, "done", result=plain)


def _record_end(folder: Path, state: str, **entries: Any) -> None:
    """Record in run.json how the run ended."""
    record = {**read_run(folder), **entries, "end": _now(), "state": state}
    write_json(folder / RUN, seal_run(record, folder))


def show_files(folder: Path) -> None:
    """Print where the files of a finished evaluation are."""
    for file in ("metrics.json", "cases.csv", "summary.json", "worst.csv", "overlays", "report.html"):
        if (folder / file).exists():
            name = "nnU-Net" if file == "summary.json" else file.partition(".")[0]
            sys.stdout.write(f"{name:<9} {folder / file}\n")


def _claim(config: Common, job: Job, resumed: Path | None) -> tuple[Path, FileLock]:
    """Return a folder that only this process writes to, and its lock."""
    wanted = resumed or job.folder or usual_folder(config, job)
    try:
        if resumed:
            lock = take_lock(resumed)
            if lock is None:
                raise ConfigError(f"run: {resumed} is in use by {owner_of(resumed)}.")
            return resumed, lock
        folder = wanted
        attempt = 1
        while True:
            make_folder(folder.parent)
            with suppress(FileNotFoundError):  # another process has just removed the empty parent
                if new_folder(folder) and (lock := take_lock(folder)) is not None:
                    return folder, lock
            attempt += 1
            folder = wanted.with_name(f"{wanted.name}-{attempt}")
    except OSError as error:
        refusal = not_writable(error, wanted, "resume" if resumed else "run.root")
        raise _explain(refusal, config, job, None) from error


@contextmanager
def _recorded(folder: Path, config: Common, job: Job, facts: dict[str, Any]) -> Iterator[None]:
    """Write run.json, config.yaml and overrides.yaml. After the block, record in run.json how the run ended."""
    earlier = try_read_run(folder)  # a resumed run keeps its start and its overrides
    start = earlier.get("start")
    plain = as_plain(config)
    values = plain | ({} if job.launch is None else {"launch": dict(job.launch)})
    write_bytes(folder / "config.yaml", OmegaConf.to_yaml(mask(values)).encode())
    lines = [*earlier.get("overrides", ()), *(mask_override(line) for line in job.overrides)]
    overrides = list({line.partition("=")[0]: line for line in lines}.values())
    write_bytes(folder / "overrides.yaml", OmegaConf.to_yaml(overrides).encode())
    record = {
        "command": job.command,
        "argv": [mask_override(argument) for argument in job.argv],
        "overrides": overrides,
        "start": start or _now(),
        **({"resumed": _now()} if start else {}),
        "seeds": {key: value for key, value in flatten(plain).items() if key.endswith("seed")},
        **facts,
        "versions": versions(),
        "hardware": hardware(),
        "source": source(),
        "process": os.getpid(),
        "state": "running",
    }
    write_json(folder / RUN, seal_run(record, folder))
    try:
        yield
        if job.folder is None and config.run.copy_to is None:  # otherwise there is more to do
            let_finish()
        _record_end(folder, "done")
        if config.run.copy_to is not None:
            _copy(folder, config, config.run.copy_to)
    except BaseException as error:
        fault = _explain(error, config, job, folder)
        lines = [f"failed: {type(fault).__name__}: {fault}"]
        if isinstance(fault, SegmeterError):
            lines = [f"stopped: {fault.problems[0]}", *fault.problems[1:]]
        elif isinstance(fault, KeyboardInterrupt):
            lines = [str(fault) or "interrupted"]
        for line in lines:
            LOGGER.error("%s", line)
        with suppress(OSError, SegmeterError):  # only the first fault is reported; on a full disk run.json stays
            _record_end(folder, lines[0])
        raise fault from (error if fault is not error else error.__cause__)


def _explain(error: BaseException, config: Common, job: Job, folder: Path | None) -> BaseException:
    """Return the error to raise: a system error becomes one line that says how to continue in `folder`."""
    can_resume = hasattr(config, "resume") and folder is not None and _holds_work(folder)
    # a shard of launch= is resumed with the run that it belongs to
    run_folder = folder.parent.parent if folder and folder.parent.name == "shards" else folder
    remedy = f"go on with resume={run_folder}" if can_resume else "run it again"
    if isinstance(error, OSError):
        cause = error.strerror or str(error) or type(error).__name__
        where = f"{error.filename}: " if error.filename else ""
        state = f"Every file in {folder} is whole." if folder else "Nothing was begun."
        first_step = "Make room there" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "Remove the cause"
        return RunError(f"{job.command}: {where}{cause}. {state} {first_step} and {remedy}.")
    # another process, a slow file or a disk stopped it, so a resume can succeed
    was_stopped = isinstance(error, LateError | PeerError) or isinstance(error.__cause__, OSError)
    if isinstance(error, RunError) and was_stopped and can_resume and remedy not in str(error):
        *others, last = error.problems
        error_type = PeerError if isinstance(error, PeerError) else RunError
        return error_type([*others, f"{last} Then {remedy}."], exit_code=error.exit_code)
    return error


def _holds_work(folder: Path) -> bool:
    """Tell whether a run's folder holds anything to resume from. Without it, `resume=` would be refused."""
    return any(next(folder.glob(pattern), None) for pattern in WORK)


def _leave(folder: Path, config: Common, error: BaseException, seconds: float) -> BaseException:
    """Remove the folder of a refused run, unless it holds results, or a lot of work that a resume can use."""
    can_resume = hasattr(config, "resume") and _holds_work(folder)
    has_results = (folder / "metrics.json").is_file() or "result" in try_read_run(folder)  # see `note_done`
    if isinstance(error, SegmeterError) and (has_results or (can_resume and seconds > KEEP_SECONDS)):
        line = f"run: the results are kept in {folder}."
        if can_resume:
            line = f"run: the finished work is kept. Go on with resume={folder}."
        return type(error)([*error.problems, line], exit_code=error.exit_code)
    with suppress(OSError):
        remove(folder)
        for parent in (folder.parent, config.run.root):  # rmdir fails, as it should, if one isn't empty
            parent.rmdir()
    return error


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")


def is_secret(key: str) -> bool:
    """Tell whether the name of a key or variable suggests a secret value.

    Examples
    --------
    >>> [name for name in ("GITHUB_PAT", "PGPASS", "apiKey", "path", "key", "tokenizer") if is_secret(name)]
    ['GITHUB_PAT', 'PGPASS', 'apiKey']
    """
    return _SECRET.search(_CAMEL.sub("_", key).replace("-", "_")) is not None


def mask(values: Any, key: str = "") -> Any:
    """Replace secrets at any depth: the values of keys that look secret, and overrides and logins within texts."""
    if isinstance(values, dict):
        return {name: mask(value, str(name)) for name, value in values.items()}
    if isinstance(values, list):
        return [mask(value, key) for value in values]
    if values is not None and is_secret(key):
        return MASK
    return mask_override(values) if isinstance(values, str) else values


def mask_override(line: str) -> str:
    """Replace the value of an override if its key, or a key within its value, looks like a secret.

    Examples
    --------
    >>> mask_override("+logger.api_key=abc"), mask_override("loss.gamma=2")
    ('+logger.api_key=[REDACTED]', 'loss.gamma=2')
    """
    key, equals, value = line.partition("=")
    name = key.rpartition(".")[2].lstrip("+-")
    if equals and (is_secret(name) or any(map(is_secret, _INNER.findall(value)))):
        return f"{key}={MASK}"
    return _LOGIN.sub(MASK, line)
