"""A fault at each operation on files of each command: whole files, one line, the right code and state, the same end."""

import shutil
from itertools import product

import pytest

from tests.faults.commands import COMMANDS, SEED, check_files, check_resumed, count, folders, line, resuming
from tests.faults.harness import Fault, Outcome, run, state
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
        check_what_is_said(outcome, context)
    check_resumed(command, run(resuming(command)), context)


def check_what_is_said(outcome: Outcome, context: str) -> None:
    said = [line for line in outcome.errors.splitlines() if line.startswith("segmeter: ")]
    assert "Traceback" not in outcome.errors, context
    assert "unexpected fault" not in outcome.errors, context
    if outcome.code == 0:  # the log alone suffered, or what is cleared at the next start
        assert not said, context
        assert [state(folder) for folder in folders()] == ["done"], context
        return
    assert outcome.code == 3, context
    assert len(said) == 1, context
    name = outcome.fault.hit.partition(" ")[2].removesuffix("/.owner")  # the lock holds without it
    assert any(part in said[0] for part in (name, *map(str, folders()))), context
    assert "No space left" in said[0] or "Input/output error" in said[0], context
    unsaid = ("", "running") if outcome.fault.kind != "full" else ("",)  # where nothing more can be written
    assert all(state(folder).startswith("stopped: ") or state(folder) in unsaid for folder in folders()), context
    left = [path for folder in folders() for path in folder.rglob(".tmp-*")]
    assert not left or outcome.fault.kind == "broken" or outcome.fault.hit.startswith("unlink"), context


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.fuzz
def test_a_fault_at_any_operation(command: str) -> None:
    for at, kind in sampled(list(product(range(1, count(command) + 1), KINDS)), SAMPLE, seed=SEED):
        check(command, Fault(at=at, kind=kind))
