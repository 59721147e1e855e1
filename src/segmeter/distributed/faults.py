"""Decides when a training of several processes ends: at the first fault, a lost process, or a standstill of all.

A look is one reading of all processes' reports, about a second after the one before. Limits are counted in looks, so
that the time in which a machine sleeps or a job is suspended does not count.
"""

import json
import math
import os
import signal
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch.distributed as dist

from segmeter.errors import EXIT_CODES, EXIT_FAULT, EXIT_INTERRUPTED, SegmeterError

FAULT = "fault"
SILENT = 20  # looks without a sign of life until a process counts as lost
BROKEN = 5  # the same, once a connection has broken
LEAVING = 30  # looks at the end for the last process to leave
UNSAVED = 45  # looks without progress after a signal until nothing is saved any more
_SAVING = "checkpointing.py"  # where the first process waits until a checkpoint is written
_WAITING = ("ranks.py", "watch.py")  # where a process waits for the others


@dataclass(frozen=True)
class Fault:
    """The reason why a training ended: one line per problem, and the exit code of all processes."""

    lines: tuple[str, ...]
    code: int = EXIT_FAULT

    @classmethod
    def of(cls, error: BaseException, name: str) -> "Fault":
        """Describe an error that a process of this name raised."""
        if isinstance(error, SegmeterError):
            first, *others = error.problems
            return cls((f"{name} failed: {first}", *others), error.exit_code)
        if isinstance(error, KeyboardInterrupt):
            return cls((f"{name}: {str(error) or 'interrupted'}.",), getattr(error, "exit_code", EXIT_INTERRUPTED))
        text = " ".join(f"{type(error).__name__}: {error}".split())
        if isinstance(error, OSError):
            text = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error)
        return cls((f"{name} failed: {text}.",))


@dataclass(frozen=True)
class Seen:
    """A process's report: its looks so far, -1 once it has left; its progress; where it is; what it met.

    A process that is `done` waits for the others to be done too.
    """

    looks: int = 0
    done: bool = False
    beats: int = 0
    at: str = "its start"
    broken: bool = False
    signal: int = 0

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: bytes) -> "Seen":
        return cls(**json.loads(text))


def meeting(store: Any, number: int, ranks: range) -> Any:
    """One training's part of a store. torchrun's store outlives restarts and the trainings of a sweep."""
    restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    part = dist.PrefixStore(f"segmeter/{restart}/{number}", store)  # type: ignore[attr-defined]
    part.compare_set(FAULT, "", "")
    for rank in ranks:  # reading a missing key would wait for it
        part.compare_set(str(rank), "", Seen().to_json())
    return part


def tell(part: Any, fault: Fault) -> Fault:
    """Write a fault if there is none yet; return the first one."""
    return read_fault(part.compare_set(FAULT, "", json.dumps(asdict(fault)))) or fault


def read_fault(text: bytes) -> Fault | None:
    """The fault that was written, or None."""
    found = json.loads(text) if text else None
    return Fault(tuple(found["lines"]), found["code"]) if found else None


def exit_code(number: int) -> int:
    """The exit code for a signal, as a shell counts, except where a job that SLURM ends early goes on."""
    return EXIT_CODES.get(number, 128 + number)


class Judge:
    """Decides, look by look, whether a process is lost; in the first process also whether all stand still.

    Parameters
    ----------
    limit_s
        Seconds without progress of any process until they count as hanging; None waits for ever.
    """

    def __init__(self, rank: int, size: int, limit_s: float | None) -> None:
        self._rank, self._size, self._limit_s = rank, size, limit_s
        self._silent: dict[int, tuple[int, int]] = {}  # the looks that a process had, and how often it was seen so
        self._beats = self._still = self._signalled = self._left = 0

    def __call__(self, seen: Mapping[int, Seen], *, leaving: bool) -> Fault | None:
        """Judge the reports of some processes, this one among them. `leaving` says that this one is done."""
        limit = BROKEN if any(each.broken for each in seen.values()) else SILENT
        for rank, each in seen.items():
            looks, times = self._silent.get(rank, (0, 0))
            self._silent[rank] = (each.looks, times + 1 if each.looks == looks > 0 else 0)
            if self._silent[rank][1] >= limit and rank != self._rank:
                text = f"{self._name(rank)} gives no sign of life, as when it is killed, or memory runs out."
                return Fault((f"{text} Remove the cause.",))
        return self._judge_work(seen, leaving) if self._rank == 0 else None

    def _judge_work(self, seen: Mapping[int, Seen], leaving: bool) -> Fault | None:
        beats = sum(each.beats for each in seen.values())
        self._still = self._still + 1 if beats == self._beats else 0
        self._beats = beats
        number = max(each.signal for each in seen.values())
        self._signalled += bool(number)
        self._left += leaving
        places = self._places(seen)
        saving = any(each.at.startswith(_SAVING) for each in seen.values())
        if min(self._signalled, self._still) >= UNSAVED and not saving:
            name = signal.Signals(number).name
            text = f"training: stopped by {name}; no process got on for {UNSAVED} s, so it was not saved: {places}."
            return Fault((text,), exit_code(number))
        limit = math.inf if self._limit_s is None else self._limit_s
        if self._left >= min(LEAVING, limit):
            return Fault((f"training: it is done, but not all processes end: {places}.",))
        if self._still >= limit:
            text = f"training: no process got on for {limit:g} s (training.stall_minutes): {places}."
            return Fault((text,))
        return None

    def _places(self, seen: Mapping[int, Seen]) -> str:
        """The places of the processes that the others wait for, or of all."""
        here = {rank: each for rank, each in seen.items() if not each.done}
        working = {rank: each for rank, each in here.items() if not each.at.startswith(_WAITING)} or here
        named = [f"{self._name(rank)} is at {each.at}" for rank, each in working.items()]
        return ", ".join(named[:4]) + (f" and {len(named) - 4} more" if len(named) > 4 else "")

    def _name(self, rank: int) -> str:
        return f"process {rank + 1} of {self._size}"
