"""Faults below Python, at the system calls of whoever makes them; needs a C compiler."""

import shutil
import signal
import subprocess
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from tests.faults.children import KINDS, Children
from tests.faults.commands import COMMANDS, SEED, check_files, check_resumed, check_what_is_said, line, resuming
from tests.faults.harness import run
from tests.fuzzing import sampled

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
