"""Fails or "kills" a command at its n-th operation on files, and says what is left afterwards.

A kill is played within the process: from its operation on nothing reaches the disk any more, neither results nor what
would clean up, so that the disk is as SIGKILL leaves it.
"""

import errno
import io
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from PIL import Image

import segmeter.files
from segmeter.cli import app, messages, run_folder
from segmeter.cli.config.compose import Request
from segmeter.cli.main import main
from segmeter.models.checkpoint import read_checkpoint
from segmeter.records import source, versions

NEEDS_ROOM = ("open", "write", "mkdir", "link")
TIMES = ("run.json", "log.txt", ".lock", ".owner", "report.html", "history.jsonl", "config.yaml", "overrides.yaml")


class Killed(BaseException):
    """The process would be gone here."""


@dataclass
class Fault:
    """What happens at operation number `at`.

    `kind` is "full" (no room, that once), "stays full" (no room from then on), "broken" (EIO, that once) or "killed".
    """

    at: int
    kind: str
    count: int = 0
    hit: str = ""

    def __call__(self, operation: str, path: Path) -> None:
        self.count += 1
        late = self.kind in ("killed", "stays full")
        if self.count < self.at or (self.count > self.at and not late):
            return
        if self.kind == "stays full" and operation not in NEEDS_ROOM:
            return
        self.hit = self.hit or f"{operation} {path}"
        if self.kind == "killed":
            raise Killed
        code = errno.EIO if self.kind == "broken" else errno.ENOSPC
        raise OSError(code, os.strerror(code))


@dataclass(frozen=True)
class Outcome:
    """How a command ended: None is the code of a kill."""

    code: int | None
    errors: str
    fault: Fault


_source, _versions = cache(source), cache(versions)


@cache
def _checked(command: str, request: Request, check: Callable[[str, Request], Any]) -> Any:
    return check(command, request)


@contextmanager
def composed_once() -> Iterator[None]:
    """Compose and check a command line once: that writes nothing, and takes longer than a small run."""
    check = app.check
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            app,
            "check",
            lambda command, asked: _checked(command, replace(asked, overrides=tuple(asked.overrides)), check),
        )
        patch.setattr(run_folder, "source", _source)
        patch.setattr(run_folder, "versions", _versions)
        yield


def prepare(line: list[str]) -> None:
    """Within `composed_once`, compose a line for the processes that are forked later."""
    _source(), _versions()
    app.check(line[0], Request(line[0], line[1:], None, False))


@contextmanager
def _replaced(watch: Callable[[str, Path], None]) -> Iterator[None]:
    ended = messages._thread_ended

    def end_thread(fault: threading.ExceptHookArgs) -> None:
        if fault.exc_type is not Killed:  # a thread of a process that is gone says nothing
            ended(fault)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segmeter.files, "watch", watch)
        patch.setattr(messages, "_thread_ended", end_thread)
        yield


def run(arguments: list[str], fault: Fault | None = None) -> Outcome:
    """Run a command line with a fault, in this process and the working folder."""
    fault = fault or Fault(at=10**9, kind="none")
    errors, code = io.StringIO(), 0
    with composed_once(), _replaced(fault), redirect_stdout(io.StringIO()), redirect_stderr(errors):
        try:
            main(arguments)
        except SystemExit as leaving:
            code = int(leaving.code or 0)
        except Killed:
            return Outcome(None, errors.getvalue(), fault)
    return Outcome(None if fault.kind == "killed" and fault.hit else code, errors.getvalue(), fault)


def raise_if_not_whole(folder: Path) -> None:
    """Read every published file of a run's folder."""
    for path in sorted(folder.rglob("*")):
        if any(part.startswith(".tmp-") for part in path.relative_to(folder).parts) or not path.is_file():
            continue
        if path.suffix == ".json":
            json.loads(path.read_bytes())
        elif path.suffix == ".png":
            with Image.open(path) as picture:
                picture.load()
        elif path.suffix == ".parquet":
            pq.read_table(path)
        elif path.name == "report.html":
            assert path.read_text().rstrip().endswith("</html>")
        elif path.name == "state.pt":
            read_checkpoint(path.parent).load_state()


def results(folder: Path) -> dict[str, bytes | str]:
    """What a run leaves but for what the clock decides; of a checkpoint, the hash of its weights."""
    found: dict[str, bytes | str] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = str(path.readlink())
        elif path.name in ("state.pt", "manifest.json") and "checkpoints" in path.parts:
            found[name] = read_checkpoint(path.parent).sha256
        elif path.is_file():
            found[name] = "" if path.name in TIMES else path.read_bytes()
    return found


def state(folder: Path) -> str:
    """What run.json says of how the run ended."""
    path = folder / "run.json"
    return str(json.loads(path.read_bytes())["state"]) if path.is_file() else ""
