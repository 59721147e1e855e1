"""Faults that a process of a training meets: which one, in which process, at which moment."""

import errno
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from segmeter.cli.commands import train
from segmeter.distributed.ranks import World
from segmeter.models import networks  # noqa: F401 - takes long to import
from segmeter.training import trainer, validation
from segmeter.training.checkpointing import RunCheckpoints
from segmeter.training.data.batches import Batches

FAULT = "SEGMETER_TEST_FAULT"  # fault, rank, moment, file that gets the time of the fault
MOMENTS: dict[str, tuple[tuple[Any, str], tuple[Any, str], int]] = {  # where rank 0 and rank 1 are, and for which time
    "start": ((train, "build_segmenter"), (train, "build_segmenter"), 1),
    "step": ((trainer, "run_step"), (trainer, "run_step"), 3),
    "validation": ((validation, "count_case"), (validation, "count_case"), 1),
    "checkpoint": ((RunCheckpoints, "_publish"), (World, "next_order"), 4),  # the second one waits for an order then
    "end": ((train, "note_done"), (Batches, "__exit__"), 1),
}


def wait_for_ever() -> None:
    while True:
        time.sleep(600)


def fail() -> None:
    raise RuntimeError("broken on purpose")


def fill_the_disk() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/a/full/disk")


FAULTS: dict[str, Callable[[], None]] = {
    "raise": fail,
    "disk": fill_the_disk,
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "hang": wait_for_ever,
}


def install() -> None:
    """Break the process that is the one, which may be a fork of this."""
    fault, rank, moment, mark = os.environ[FAULT].split(":")
    *places, number = MOMENTS[moment]
    number = 1 if moment == "checkpoint" and rank == "0" else number
    (place, name), calls = places[int(rank)], []
    inner = getattr(place, name)

    def broken(*args: Any, **values: Any) -> Any:
        if os.environ.get("RANK") == rank:
            calls.append(None)
        if len(calls) == number:
            Path(mark).write_text(str(time.time()))
            FAULTS[fault]()
        return inner(*args, **values)

    setattr(place, name, broken)
