"""A fault at each operation on files of each command: whole files, one line, the right code and state, the same end."""

import shutil
from itertools import product

import pytest

from tests.faults.commands import (
    COMMANDS,
    SEED,
    check_files,
    check_resumed,
    check_what_is_said,
    count,
    folders,
    line,
    resuming,
)
from tests.faults.harness import Fault, Outcome, run
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
