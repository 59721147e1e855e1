"""From what processes say of themselves, look by look, follows whether one is lost, or all of them stand still."""

import signal
from dataclasses import replace
from typing import Any

import pytest

from segmeter.distributed.faults import BROKEN, LEAVING, SILENT, UNSAVED, Fault, Judge, Seen, exit_code
from segmeter.errors import DataError, Interrupted

WAITING, WORKING = "ranks.py:103 (_agree)", "trainer.py:180 (_step)"


def judged(
    count: int, *, rank: int = 0, limit_s: float | None = None, leaving: bool = False, **others: Any
) -> Fault | None:
    """The verdict after so many looks, in which the other process says the same but for what changes with each look."""
    judge, verdict = Judge(rank, 2, limit_s), None
    for look in range(1, count + 1):
        other = {key: value(look) if callable(value) else value for key, value in others.items()}
        mine, theirs = Seen(look, at=WAITING), Seen(**{"looks": look, "at": WORKING} | other)
        verdict = judge({rank: mine, 1 - rank: theirs}, leaving=leaving)
    return verdict


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(("broken", "limit"), [(False, SILENT), (True, BROKEN)])
def test_a_process_without_a_sign_of_life_is_lost(rank: int, broken: bool, limit: int) -> None:
    """Mutation seen to fail: a limit that a broken connection does not shorten."""
    assert judged(limit, rank=rank, looks=7, broken=broken) is None
    lost = judged(limit + 1, rank=rank, looks=7, broken=broken)
    assert lost is not None
    assert lost.lines[0].startswith(f"process {2 - rank} of 2 gives no sign of life")
    assert lost.code == 3


def test_a_process_that_has_not_come_yet_or_has_left_is_not_lost() -> None:
    assert judged(SILENT * 3, looks=0) is None
    assert judged(SILENT * 3, looks=-1) is None


def test_all_that_stand_still_end_and_those_who_are_waited_for_are_named() -> None:
    """Mutation seen to fail: progress of one process that does not count for all."""
    assert judged(9, limit_s=10) is None
    still = judged(11, limit_s=10)
    assert still == Fault(
        (f"training: no process got on for 10 s (training.stall_minutes): process 2 of 2 is at {WORKING}.",)
    )
    assert judged(400, limit_s=10, beats=lambda look: look // 9) is None
    assert judged(400, limit_s=None) is None
    assert judged(400, limit_s=10, rank=1) is None, "the first process decides"
    both = judged(11, limit_s=10, at=WAITING)
    assert both is not None
    assert both.lines[0].endswith(f"process 1 of 2 is at {WAITING}, process 2 of 2 is at {WAITING}.")


def test_after_a_signal_it_is_not_waited_long_for_progress() -> None:
    """Mutation seen to fail: looks since the last progress alone (a signal in a long wait would end it at once)."""
    stopped = judged(UNSAVED + 1, limit_s=1800, signal=int(signal.SIGTERM))
    assert stopped is not None
    assert stopped.code == 143
    assert stopped.lines[0].startswith("training: stopped by SIGTERM; no process got on for 45 s, so it was not saved")
    assert judged(400, limit_s=1800, signal=int(signal.SIGTERM), beats=lambda look: look // 40) is None
    assert judged(400, limit_s=1800, signal=int(signal.SIGTERM), at="checkpointing.py:45 (wait)") is None
    assert judged(400, limit_s=1800, signal=lambda look: 15 if look > 400 - UNSAVED + 1 else 0) is None


def test_the_end_has_a_limit_of_its_own() -> None:
    assert judged(LEAVING - 1, leaving=True, beats=lambda look: look) is None
    late = judged(LEAVING, leaving=True, beats=lambda look: look)
    assert late == Fault((f"training: it is done, but not all processes end: process 2 of 2 is at {WORKING}.",))


@pytest.mark.parametrize(
    ("error", "lines", "code"),
    [
        (DataError(["a.png: is bad.", "b.png too."]), ("process 2 of 2 failed: a.png: is bad.", "b.png too."), 2),
        (
            OSError(28, "No space left on device", "/full"),
            ("process 2 of 2 failed: /full: No space left on device.",),
            3,
        ),
        (RuntimeError("two\nlines"), ("process 2 of 2 failed: RuntimeError: two lines.",), 3),
        (Interrupted("saved.", exit_code=143), ("process 2 of 2 failed: saved.",), 143),
        (KeyboardInterrupt(), ("process 2 of 2: interrupted.",), 130),
    ],
)
def test_a_fault_has_the_words_and_the_code_of_the_error(
    error: BaseException, lines: tuple[str, ...], code: int
) -> None:
    assert Fault.of(error, "process 2 of 2") == Fault(lines, code)


def test_signals_have_the_codes_of_a_process_alone() -> None:
    codes = [exit_code(number) for number in (signal.SIGHUP, signal.SIGINT, signal.SIGUSR1, signal.SIGTERM)]
    assert codes == [129, 130, 3, 143]


def test_what_is_seen_comes_whole_from_the_store() -> None:
    seen = Seen(looks=3, done=True, beats=5, at=WORKING, broken=True, signal=15)
    assert Seen.from_json(seen.to_json().encode()) == seen
    assert replace(seen, looks=4) != seen
