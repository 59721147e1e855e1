"""A fault at each operation on files of each command: whole files, one line, the right code and state, the same end."""

import shutil
import signal
import subprocess
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from segmeter.deploy import publish
from segmeter.files import TEMPORARY
from tests.faults.children import KINDS, Children
from tests.faults.commands import (
    COMMANDS,
    SEED,
    check_files,
    check_resumed,
    check_what_is_said,
    count,
    folders,
    line,
    only,
    resuming,
)
from tests.faults.harness import Fault, Outcome, run
from tests.faults.test_every_operation import KINDS, check_end
from tests.fuzzing import sampled

SAMPLE = 8  # faults per command outside of `make fuzz`, which plays every one
KINDS = ("full", "stays full", "broken", "killed")


def check(command: str, fault: Fault) -> None:
    """Run into the fault, then run on without one."""
    shutil.rmtree("runs", ignore_errors=True)
    outcome = run(line(command, "runs"), fault)
    context = f"{command}, {fault}: {outcome}"
    check_files(context)
    if outcome.code is not None:
        check_end(outcome, context)
    check_resumed(command, run(resuming(command)), context)


def check_end(outcome: Outcome, context: str) -> None:
    name = outcome.fault.hit.partition(" ")[2].removesuffix("/.owner")  # the lock holds without it
    unsaid = "" if outcome.fault.kind == "full" else "running"
    about = (name, *map(str, folders()))
    said = check_what_is_said(outcome.code, outcome.errors, context, about=about, unsaid=unsaid)
    if said:
        assert "No space left" in said[0] or "Input/output error" in said[0], context
        left = [path for folder in folders() for path in folder.rglob(".tmp-*")]
        assert not left or outcome.fault.kind == "broken" or outcome.fault.hit.startswith("unlink"), context


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.fuzz
def test_a_fault_at_any_operation(command: str) -> None:
    for at, kind in sampled(list(product(range(1, count(command) + 1), KINDS)), SAMPLE, seed=SEED):
        check(command, Fault(at=at, kind=kind))


SAMPLE = 2  # faults per command outside of `make fuzz`, which plays every one


@pytest.fixture(scope="module")
def children(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Children]:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler: faults below Python are not played")
    library = tmp_path_factory.mktemp("interposer") / "interpose.so"
    source = Path(__file__).with_name("interpose.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    with Children(library) as made:
        yield made


def check(children: Children, command: str, at: int, kind: str) -> None:
    shutil.rmtree("runs", ignore_errors=True)
    ended = children.run(line(command, "runs"), at=at, kind=kind)
    context = f"{command}, {kind} at call {at}: {ended}"
    check_files(context)
    if kind == "killed" and ended.code:
        assert ended.code == -signal.SIGKILL, context
        assert "Traceback" not in ended.errors, context
    else:
        check_what_is_said(ended.code, ended.errors, context, about=["runs"], unsaid="running")
    check_resumed(command, run(resuming(command)), context)


def calls(children: Children, command: str) -> int:
    shutil.rmtree("runs", ignore_errors=True)
    return children.run(line(command, "runs")).calls


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.fuzz
def test_a_fault_of_the_system_at_any_call(children: Children, command: str) -> None:
    most = calls(children, command)
    assert most > 30
    for at, kind in sampled(list(product(range(1, most + 1), KINDS)), SAMPLE, seed=SEED):
        check(children, command, at, kind)


REPORT = ["report", "run=copied/eval/x"]
EXPORT = ["export", "checkpoint=best", "input=data/images", "cases=1", "run.name=x", "run.root=runs"]


def check_line(outcome: Outcome, context: str) -> None:
    said = [line for line in outcome.errors.splitlines() if line.startswith("segmeter: ")]
    assert "Traceback" not in outcome.errors, context
    assert "unexpected fault" not in outcome.errors, context
    assert (outcome.code, len(said)) in ((0, 0), (3, 1)), context
    assert not said or "No space left" in said[0] or "Input/output error" in said[0], context


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("kind", KINDS)
def test_a_report_is_the_old_one_or_the_whole_new_one(kind: str) -> None:
    """And nothing else of the run is touched. A killed process leaves a temporary file, which a resume clears."""
    shutil.rmtree("copied", ignore_errors=True)
    Path("copied/eval").mkdir(parents=True)
    shutil.copytree(only(Path("clean-eval")), "copied/eval/x", symlinks=True)
    before = contents()
    clean = run(REPORT)
    assert clean.code == 0
    written, names = contents(), set(before)
    assert set(written) == names
    for at in range(1, clean.fault.count + 1):
        Path("copied/eval/x/report.html").write_bytes(before["report.html"])
        outcome = run(REPORT, Fault(at=at, kind=kind))
        context = f"{kind} at {at}: {outcome}"
        found = contents()
        if outcome.code is not None:
            check_line(outcome, context)
        assert found["report.html"] == (written if outcome.code == 0 else found)["report.html"], context
        assert found["report.html"] in (before["report.html"], written["report.html"]), context
        assert {name: found[name] for name in names - {"report.html"}} == {
            name: before[name] for name in names - {"report.html"}
        }, context
        assert run(REPORT).code == 0
        assert contents() == written, context


def contents() -> dict[str, bytes]:
    root = Path("copied/eval/x")
    files = (path for path in sorted(root.rglob("*")) if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in files if not path.name.startswith(TEMPORARY)}


@pytest.fixture
def traced_once(here: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """What takes long, and writes nothing, is done once; gives the operations of a clean export."""
    pytest.importorskip("onnxscript", reason="the extra `onnx` is not installed")
    pytest.importorskip("onnxruntime", reason="the extra `onnx` is not installed")
    for place, name in ((publish.onnx_file, "trace"), (publish.onnx_file, "encode"), (publish, "compare")):
        monkeypatch.setattr(place, name, Once(getattr(place, name)))
    shutil.rmtree("runs", ignore_errors=True)
    return run(EXPORT).fault.count


class Once:
    """A function that is called the first time only."""

    def __init__(self, function: object) -> None:
        self.function, self.found = function, None

    def __call__(self, *given: object, **options: object) -> object:
        self.found = self.found or self.function(*given, **options)
        return self.found


def check_export(count: int, whole: bytes, at: int, kind: str) -> None:
    shutil.rmtree("runs", ignore_errors=True)
    outcome = run(EXPORT, Fault(at=at, kind=kind))
    context = f"{kind} at {at} of {count}: {outcome}"
    check_files(context)
    if outcome.code is not None:
        check_end(outcome, context)
    models = [path.read_bytes() for folder in folders() for path in folder.glob("model.*")]
    assert models in ([], [whole]), context
    assert outcome.code != 0 or models == [whole], context


@pytest.mark.fuzz
def test_a_model_is_exported_whole_or_not_at_all(traced_once: int) -> None:
    whole = next(Path("runs").glob("export/*/model.onnx")).read_bytes()
    for at, kind in sampled(list(product(range(1, traced_once + 1), KINDS)), 8, seed=SEED):
        check_export(traced_once, whole, at, kind)
