"""Commands on six small pictures: their clean runs, a fault or "kill" at an operation on files, and what holds then.

A kill is played within the process: from its operation on nothing reaches the disk any more, neither results nor what
would clean up, so that the disk is as SIGKILL leaves it.
"""

import errno
import io
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

import segmeter.files
from segmeter.cli import app, messages, run_folder
from segmeter.cli.config.compose import Request
from segmeter.cli.main import main
from segmeter.models.checkpoint import read_checkpoint
from segmeter.records import source, versions
from tests.data.crafted import put

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
    check = app.compose_and_validate
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            app,
            "compose_and_validate",
            lambda command, asked: _checked(command, replace(asked, overrides=tuple(asked.overrides)), check),
        )
        patch.setattr(run_folder, "source", _source)
        patch.setattr(run_folder, "versions", _versions)
        yield


def prepare(line: list[str]) -> None:
    """Within `composed_once`, compose a line for the processes that are forked later."""
    _source(), _versions()
    app.compose_and_validate(line[0], Request(line[0], line[1:], None, False))


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


SEED = 3
CASES = 6
DATA = ["data=folder", "data.root=data", "data.task=binary", "data.classes=[ground,cell]"]
MODEL = ["model.encoder=tu-test_resnet", "model.depth=3", "model.decoder_channels=[8,8,4]"]
STEPS = ["training.steps=4", "training.epochs=null", "training.batch_size=2", "training.log_every=1"]
SPLITS = ["data.val_fraction=0.3", "data.test_fraction=0.3"]
REPORT = ["report.overlays=1", "report.worst=1", "report.panel=128"]
COMMANDS = {
    "train": [*DATA, *MODEL, *SPLITS, *STEPS, "training.validate_every=2", "training.validate_unit=steps"],
    "eval": [*DATA, *SPLITS, *REPORT, "metrics.bootstrap=0", "data.split=all", "checkpoint=best"],
    "score": ["predictions=labels", "references=data/masks", "data.num_classes=2", "images=data/images"],
    "predict": ["checkpoint=best", "input=data/images", *REPORT],
    "merge": ["runs=[parts/1,parts/2]", *REPORT],
}
COMMANDS["score"] += [*REPORT, "metrics.bootstrap=0"]


def line(command: str, root: str, *more: str) -> list[str]:
    device = [] if command in ("score", "merge") else ["device=cpu"]
    return [command, *COMMANDS[command], "run.name=x", f"run.root={root}", *device, *more]


def resuming(command: str) -> list[str]:
    """What goes on after a fault; a merge, which takes no time, is made anew."""
    return line(command, "runs", *([] if command == "merge" else ["resume=auto"]))


def make_data_and_clean_runs() -> None:
    """Fill the working folder: pictures of two classes, labels for them, a checkpoint, a clean run of each command."""
    rng = np.random.default_rng(SEED)
    for index in range(CASES):
        mask = (rng.random((16, 16)) < 0.4).astype(np.uint8)
        picture = (mask[..., None] * 120 + rng.integers(0, 99, (16, 16, 3))).astype(np.uint8)
        name = f"case{index:02}.png"
        put(Path("data/images") / name, picture)
        put(Path("data/masks") / name, mask)
        put(Path("labels") / name, mask ^ (picture[..., 0] > 190))
    for command in COMMANDS:
        for number in (1, 2) if command == "merge" else ():  # shards of an evaluation, with every kind of file
            shard = [f"shard={number}/2", "inference.batch_size=2", "export.probs=true"]
            assert run(line("eval", "shards", *shard)).code == 0
            Path("parts").mkdir(exist_ok=True)
            only(Path("shards")).rename(f"parts/{number}")
        outcome = run(line(command, "clean"))
        assert outcome.code == 0, outcome.errors
        if command == "train":
            shutil.copytree((only(Path("clean")) / "checkpoints/best").resolve(), "best")
        Path(f"{command}.count").write_text(str(outcome.fault.count))
        Path("clean").rename(f"clean-{command}")


def count(command: str) -> int:
    """Operations on files of a clean run."""
    return int(Path(f"{command}.count").read_text())


def folders() -> list[Path]:
    return list(Path("runs").glob("*/*"))


def only(root: Path) -> Path:
    """The run folder that was made last."""
    return max(root.glob("*/*"), key=lambda path: path.stat().st_mtime_ns)


def check_files(context: str) -> None:
    """Every published file is whole, whatever happened."""
    for path in sorted(Path("runs").glob("*/*/**/*")):
        if any(part.startswith(".tmp-") for part in path.parts) or not path.is_file():
            continue
        try:
            _read(path)
        except Exception as error:
            raise AssertionError(f"{context}: {path}: {error!r}") from error


def _read(path: Path) -> None:
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


def check_resumed(command: str, outcome: Outcome, context: str) -> None:
    """The run that went on ended like the clean one, to the byte; a training may keep where it was stopped.

    The two newest checkpoints of a training stay, and the older of them may be the one that the stop saved.
    """
    assert outcome.code == 0, (context, outcome.errors)
    folder = only(Path("runs"))
    found, clean = results(folder), results(only(Path(f"clean-{command}")))
    stopped = {name for name in found.keys() - clean.keys() if name.startswith("checkpoints/step-")}
    steps = {name.split("/")[1] for name in stopped}
    assert len(steps) < 2, context
    assert all(step < str(found["checkpoints/last"]) for step in steps), context
    assert {name: content for name, content in found.items() if name not in stopped} == clean, context
    assert state(folder) == "done", context


def check_what_is_said(
    code: int | None, errors: str, context: str, *, about: Iterable[str], unsaid: str = ""
) -> list[str]:
    """One line that names a file or folder, exit code 3, and a record of it, where the fault did any harm.

    `unsaid` is the state that a run may keep, where nothing more can be written.
    """
    assert "Traceback" not in errors, context
    assert "unexpected fault" not in errors, context
    said = [text for text in errors.splitlines() if text.startswith("segmeter: ")]
    states = [state(folder) for folder in folders()]
    if code == 0:  # the log alone suffered, or what is cleared at the next start
        assert (said, states) == ([], ["done"]), context
        return said
    assert (code, len(said)) == (3, 1), context
    assert any(part in said[0] for part in about), context
    assert all(each.startswith("stopped: ") or each in ("", unsaid) for each in states), context
    return said
