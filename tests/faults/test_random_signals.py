"""SIGKILL, SIGTERM, SIGUSR1 and SIGINT at random moments of the four commands, in processes of their own."""

import random
import shutil
from collections.abc import Iterator

import pytest

from tests.faults.children import Children
from tests.faults.commands import COMMANDS, SEED, check_files, check_resumed, folders, line, resuming
from tests.faults.harness import run, state
from tests.fuzzing import rounds

ENDS = {
    "SIGKILL": (-9, ""),
    "SIGTERM": (143, "stopped by SIGTERM"),
    "SIGUSR1": (3, "stopped by SIGUSR1"),
    "SIGINT": (130, "interrupted"),
    "SIGHUP": (129, "stopped by SIGHUP"),
}


def check(children: Children, command: str, name: str, after: float) -> None:
    shutil.rmtree("runs", ignore_errors=True)
    ended = children.run(line(command, "runs"), signal=name, after=after)
    context = f"{command}, {name} after {after:.3f} s: {ended}"
    check_files(context)
    check_end(name, ended.code, ended.errors, context)
    check_resumed(command, run(resuming(command)), context)


def check_end(name: str, ended: int, errors: str, context: str) -> None:
    code, word = ENDS[name]
    said = [text for text in errors.splitlines() if text.startswith(("segmeter: ", "Traceback"))]
    states = [state(folder) for folder in folders()]
    if ended == 0:  # it came too late
        assert (said, states) == ([], ["done"]), context
        return
    assert ended == code, context
    if name == "SIGKILL":
        return
    assert len(said) == 1, context
    assert word in said[0] or name in said[0], context
    assert all(word in each or name in each or not each for each in states), (states, context)


def moments(children: Children, command: str, count: int) -> Iterator[tuple[str, float]]:
    """Signals in turn, other ones for each command, and when to send them within a run as long as a clean one."""
    shutil.rmtree("runs", ignore_errors=True)
    drawn, seconds = random.Random(f"{SEED} {command}"), children.run(line(command, "runs")).seconds
    first = 2 * list(COMMANDS).index(command)
    for index in range(first, first + count):
        yield list(ENDS)[index % len(ENDS)], drawn.uniform(0.02, seconds)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.fuzz
def test_signals_at_random_moments(children: Children, command: str) -> None:
    for name, after in moments(children, command, rounds(2, 50)):
        check(children, command, name, after)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("name", "after"), [("SIGINT", 0.2), ("SIGTERM", 1.0)])
@pytest.mark.slow
def test_a_signal_for_the_whole_group_gives_one_line(children: Children, name: str, after: float) -> None:
    """As a terminal or a scheduler sends it, while worker processes start or work."""
    shutil.rmtree("runs", ignore_errors=True)
    ended = children.run(line("score", "runs", "workers=2"), signal=name, after=after, group=True)
    check_end(name, ended.code, ended.errors, str(ended))
    check_resumed("score", run(resuming("score")), str(ended))
