"""A fault at each operation on files of each command: whole files, one line, the right code and state, the same end.

Operations are those of `segmeter.files` in this process, and the system calls of whoever makes them. Links that are
planted where the next file is about to be made are not followed.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from segmeter import files
from segmeter.data.files.array import ArrayRows
from segmeter.deploy import publish
from segmeter.errors import SegmeterError
from segmeter.export.formats import write_npy, write_tiff
from segmeter.files import TEMPORARY
from tests.faults import harness
from tests.faults.children import KINDS, Children
from tests.faults.harness import COMMANDS, Fault, check_files, check_resumed, folders, line, resuming, run
from tests.faults.world import write_model
from tests.fuzzing import sampled
from tests.models.parts import make_card

REPORT = ["report", "run=copied/eval/x"]
EXPORT = ["export", "checkpoint=best", "input=data/images", "cases=1", "run.name=x", "run.root=runs"]
pytestmark = pytest.mark.usefixtures("here")


def some_of(operations: int, sample: int) -> list[tuple[int, str]]:
    """Where faults happen, and their kinds: every one in `make fuzz`."""
    return sampled(list(product(range(1, operations + 1), KINDS)), sample, seed=harness.SEED)


def check_end(outcome: harness.Outcome, context: str) -> None:
    name = outcome.fault.hit.partition(" ")[2].removesuffix("/.owner")  # the lock holds without it
    unsaid = "" if outcome.fault.kind == "full" else "running"
    about = (name, *map(str, folders()))
    said = harness.check_what_is_said(outcome.code, outcome.errors, context, about=about, unsaid=unsaid)
    if said:
        assert "No space left" in said[0] or "Input/output error" in said[0], context
        left = [path for folder in folders() for path in folder.rglob(".tmp-*")]
        assert not left or outcome.fault.kind == "broken" or outcome.fault.hit.startswith("unlink"), context


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.fuzz
def test_a_fault_at_any_operation(command: str) -> None:
    """Run into the fault, then run on without one."""
    for at, kind in some_of(harness.count(command), 8):
        shutil.rmtree("runs", ignore_errors=True)
        outcome = run(line(command, "runs"), Fault(at=at, kind=kind))
        context = f"{command}, {kind} at {at}: {outcome}"
        check_files(context)
        if outcome.code is not None:
            check_end(outcome, context)
        check_resumed(command, run(resuming(command)), context)


@pytest.fixture(scope="module")
def interposed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Children]:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler: faults below Python are not played")
    library = tmp_path_factory.mktemp("interposer") / "interpose.so"
    source = Path(__file__).with_name("interpose.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    with Children(library) as made:
        yield made


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.fuzz
def test_a_fault_of_the_system_at_any_call(interposed: Children, command: str) -> None:
    calls = interposed.run(line(command, "runs")).calls
    assert calls > 30
    for at, kind in some_of(calls, 2):
        shutil.rmtree("runs", ignore_errors=True)
        ended = interposed.run(line(command, "runs"), at=at, kind=kind)
        context = f"{command}, {kind} at call {at}: {ended}"
        check_files(context)
        if kind == "killed" and ended.code:
            assert (ended.code, "Traceback" in ended.errors) == (-signal.SIGKILL, False), context
        else:
            harness.check_what_is_said(ended.code, ended.errors, context, about=["runs"], unsaid="running")
        check_resumed(command, run(resuming(command)), context)


@pytest.mark.parametrize("kind", KINDS)
def test_a_report_is_the_old_one_or_the_whole_new_one(kind: str) -> None:
    """And nothing else of the run is touched. A killed process leaves a temporary file, which a resume clears."""
    shutil.rmtree("copied", ignore_errors=True)
    shutil.copytree(harness.only(Path("clean-eval")), "copied/eval/x", symlinks=True)
    before, clean = contents(), run(REPORT)
    assert clean.code == 0
    written = contents()
    for at in range(1, clean.fault.count + 1):
        Path("copied/eval/x/report.html").write_bytes(before["report.html"])
        outcome = run(REPORT, Fault(at=at, kind=kind))
        context, found = f"{kind} at {at}: {outcome}", contents()
        if outcome.code is not None:
            said = [line for line in outcome.errors.splitlines() if line.startswith(("segmeter: ", "Traceback"))]
            assert (outcome.code, len(said)) in ((0, 0), (3, 1)), context
            assert all("No space left" in each or "Input/output error" in each for each in said), context
        assert found in ([written] if outcome.code == 0 else [before, written]), context
        assert run(REPORT).code == 0
        assert contents() == written, context
    assert written | {"report.html": b""} == before | {"report.html": b""}


def contents() -> dict[str, bytes]:
    root = Path("copied/eval/x")
    files = (path for path in sorted(root.rglob("*")) if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in files if not path.name.startswith(TEMPORARY)}


def once(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is called the first time harness.only."""
    found: list[Any] = []
    return lambda *given, **options: found[0] if found else found.append(function(*given, **options)) or found[0]


@pytest.mark.fuzz
def test_a_model_is_exported_whole_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes long, and writes nothing, is done once."""
    for package in ("onnxscript", "onnxruntime"):
        pytest.importorskip(package, reason="the extra `onnx` is not installed")
    for place, name in ((publish.onnx_file, "trace"), (publish.onnx_file, "encode"), (publish, "compare")):
        monkeypatch.setattr(place, name, once(getattr(place, name)))
    operations = run(EXPORT).fault.count
    whole = next(Path("runs").glob("export/*/model.onnx")).read_bytes()
    for at, kind in some_of(operations, 8):
        shutil.rmtree("runs", ignore_errors=True)
        outcome = run(EXPORT, Fault(at=at, kind=kind))
        context = f"{kind} at {at} of {operations}: {outcome}"
        check_files(context)
        if outcome.code is not None:
            check_end(outcome, context)
        models = [path.read_bytes() for folder in folders() for path in folder.glob("model.*")]
        assert models in ([], [whole]), context
        assert outcome.code != 0 or models == [whole], context


SHAPE = (300, 20)  # two rows of chunks


LINES = ArrayRows(np.ones(SHAPE, np.uint8))
WRITERS: dict[str, Callable[[Path], None]] = {
    "safetensors": lambda run: write_model(str(run / "checkpoint"), make_card()),
    "tiff by lines": lambda run: write_tiff(run / "lines.tif", LINES),
    "npy": lambda run: write_npy(run / "a.npy", np.ones(SHAPE)),
    "tiff": lambda run: write_tiff(run / "a.tif", np.ones(SHAPE, np.uint8)),
}


@pytest.mark.parametrize("name", WRITERS)
def test_no_writer_follows_a_planted_link(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link to a file is put where the first new file is to appear, then where the second is, and so on."""
    for at in range(1, 100):
        run, elsewhere, opened = tmp_path / f"run{at}", tmp_path / f"elsewhere{at}", list[Path]()
        run.mkdir()
        elsewhere.write_bytes(b"theirs")

        def plant(operation: str, path: Path, at=at, elsewhere=elsewhere, opened=opened) -> None:
            opened += [path] * (operation == "open")
            if operation == "open" and len(opened) == at and not os.path.lexists(path):
                path.symlink_to(elsewhere)

        with monkeypatch.context() as patch, suppress(SegmeterError, OSError):
            patch.setattr(files, "watch", plant)
            WRITERS[name](run)
        assert elsewhere.read_bytes() == b"theirs", at
        if len(opened) < at:
            break
    assert 1 < at < 99
