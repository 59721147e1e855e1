"""Writes a run's checkpoints in the background, keeps the best and the newest, and finds the one to resume from.

step-00001234/                 complete from its first moment
step-00001234-unvalidated/     stopped in its validation, which is repeated on resuming
last -> step-...               links, replaced by one rename
best -> step-...
"""

import copy
import logging
import math
import re
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from segmeter.errors import CheckpointError, RunError, SegmeterError
from segmeter.files import clear_leftovers, make_folder, remove, rename
from segmeter.inference.device import is_out_of_memory
from segmeter.models.checkpoint import Checkpoint, point, read_checkpoint, write_checkpoint
from segmeter.models.config import ModelCard

LAST, BEST = "last", "best"
RECENT = 2  # this many of the newest checkpoints stay, in case the very newest is damaged
_UNVALIDATED = "-unvalidated"
_NAME = re.compile(rf"step-(\d{{8,}})({_UNVALIDATED})?")
_LOG = logging.getLogger(__name__)

Table = list[tuple[float, str]]


class RunCheckpoints:
    """The folder `checkpoints/` of one run, written in the background: one checkpoint at a time.

    Parameters
    ----------
    folder
        Created if it is missing.
    keep
        How many of the best stay.
    highest
        Whether a higher score is better.
    """

    def __init__(self, folder: Path, *, keep: int, highest: bool) -> None:
        make_folder(folder)
        clear_leftovers(folder)  # what a killed process left half-written
        self.folder = folder
        self.keep = keep
        self.highest = highest
        self.table: Table = []  # (score, name) of the best, best first; no score is NaN
        self.saved: str | None = None
        self._tabled_before: set[str] = set()  # the best by the table of the second-newest checkpoint
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._running: Future[None] | None = None

    def rank(self, score: float | None, step: int) -> bool:
        """Enter a score in the table, and return whether it is the best.

        NaN never enters, and the older score wins a tie.
        """
        if score is None or math.isnan(score):
            return False
        sign = -1.0 if self.highest else 1.0
        entries = [*self.table, (score, step_name(step))]
        self.table = sorted(entries, key=lambda entry: sign * entry[0])[: self.keep]
        return self.table[0][1] == step_name(step)

    @property
    def best(self) -> tuple[float, Path] | None:
        """Score and folder of the best checkpoint."""
        return (self.table[0][0], self.folder / self.table[0][1]) if self.table else None

    def save(
        self,
        step: int,
        *,
        segmenter_state: Mapping[str, Tensor],
        card: ModelCard,
        state: Mapping[str, Any],
        progress: Mapping[str, Any],
        unvalidated: bool = False,
    ) -> None:
        """Take a snapshot and publish it in the background, then update the links and remove old checkpoints.

        This waits for the previous checkpoint. If a GPU has no memory for the snapshot, this one is written at once.

        Raises
        ------
        RunError
            The previous checkpoint could not be written; the message names the one that stays.
        """
        self.wait()
        name = step_name(step, unvalidated=unvalidated)
        if name == self.saved:
            return
        state = {**state, "table": [list(entry) for entry in self.table]}
        device = next((tensor.device for tensor in segmenter_state.values()), torch.device("cpu"))
        write = partial(self._publish, step, name, card=card, progress=progress)
        try:
            snapshot = copy.deepcopy((segmenter_state, state))  # on their device, where the copies are queued
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            write((segmenter_state, state))
        else:
            self._running = self._pool.submit(_on_side_stream(device, partial(write, snapshot)))
        self.saved = name

    def make_room(self, step: int) -> None:
        """Rename a checkpoint of this step that a run resumed from, as the next one has the score of its weights."""
        if self.saved == step_name(step):
            self.saved = step_name(step, unvalidated=True)
            rename(self.folder / step_name(step), self.saved)
            point(self.folder / LAST, self.saved)

    def wait(self, *, only_if_done: bool = False) -> None:
        """Wait until the checkpoint in the background is published; raises, once, if it could not be written."""
        running = self._running
        if running is not None and (running.done() or not only_if_done):
            self._running = None
            running.result()

    def close(self) -> None:
        """Wait for the checkpoint in the background. A failure is only logged, as another error may be on its way."""
        try:
            self.wait()
        except Exception as error:
            _LOG.error("%s", error)
        finally:
            self._pool.shutdown()

    def _publish(
        self, step: int, name: str, snapshot: tuple[Any, Any], *, card: ModelCard, progress: Mapping[str, Any]
    ) -> None:
        weights, state = snapshot
        table = [(score, entry) for score, entry in state["table"]]
        failed = "could not be saved"
        try:
            write_checkpoint(self.folder / name, segmenter_state=weights, card=card, state=state, progress=progress)
            failed = "was saved, but the links and older checkpoints could not be updated"
            self._settle(name, table)
        except (OSError, RunError) as error:
            names = _names(self.folder)
            stays = f"{names[-1]} stays and can be resumed" if names else "there is no earlier one"
            cause = error.problems[0] if isinstance(error, SegmeterError) else f"{error.filename}: {error.strerror}."
            raise RunError(f"training: the checkpoint of step {step} {failed}; {stays}. {cause}") from error

    def newest(self) -> tuple[Path, dict[str, Any]]:
        """Restore the table of the best from the newest undamaged checkpoint, and return its folder and state.

        Newer ones, which are damaged, are renamed, as their names will be needed again.
        """
        checkpoint, state = read_newest(self.folder, say=_LOG.warning)
        self.saved = checkpoint.folder.name
        names = _names(self.folder)
        for name in names[names.index(self.saved) + 1 :]:
            remove(self.folder / f"damaged-{name}")
            rename(self.folder / name, f"damaged-{name}")
        self.table = [(score, name) for score, name in state["table"] if (self.folder / name).is_dir()]
        self._tabled_before = {name for _, name in self.table}
        self._settle(self.saved, self.table)  # a killed process was about to remove what is not needed
        _LOG.info("resume: continuing from %s", checkpoint.folder)
        return checkpoint.folder, state

    def _settle(self, last: str, table: Table) -> None:
        """Update the links, and remove the checkpoints that nothing would resume from or name.

        If the newest one is damaged, a run resumes from the one before, with its table. So the best of that table stay.
        """
        point(self.folder / LAST, last)
        if table:
            point(self.folder / BEST, table[0][1])
        else:
            remove(self.folder / BEST)
        names = _names(self.folder)
        tabled = {name for _, name in table}
        superseded = {f"{name}{_UNVALIDATED}" for name in names}
        recent = [name for name in names if name not in superseded][-RECENT:]
        for name in names:
            if name not in {*recent, *tabled, *self._tabled_before}:
                remove(self.folder / name)
        self._tabled_before = tabled


def read_newest(folder: Path, say: Callable[..., None] = _LOG.debug) -> tuple[Checkpoint, dict[str, Any]]:
    """Read a run's newest undamaged checkpoint and its state, and change nothing.

    Parameters
    ----------
    folder
        The run's `checkpoints/`.
    say
        Logs each damaged one.

    Raises
    ------
    CheckpointError
        There is none.
    """
    names = _names(folder) if folder.is_dir() else []
    damaged: list[str] = []
    for name in reversed(names):
        try:
            checkpoint = read_checkpoint(folder / name)
            return checkpoint, checkpoint.load_state()
        except CheckpointError as error:
            say("resume: %s is damaged, going back to the one before: %s", name, error)
            damaged.append(str(error))
    reason = f"none of its {len(names)} checkpoints is whole" if names else "there is no checkpoint"
    raise CheckpointError([f"{folder}: {reason} to resume from. Start a new run (resume=null).", *damaged])


def _names(folder: Path) -> list[str]:
    """List the names of all checkpoints, oldest first. If a step has two, the validated one is newer."""
    matches = [match for path in folder.iterdir() if (match := _NAME.fullmatch(path.name)) and path.is_dir()]
    return [match[0] for match in sorted(matches, key=lambda match: (int(match[1]), match[2] is None))]


def step_name(step: int, *, unvalidated: bool = False) -> str:
    """Name the checkpoint after `step` steps.

    Examples
    --------
    >>> step_name(1234)
    'step-00001234'
    """
    return f"step-{step:08d}{_UNVALIDATED if unvalidated else ''}"


def _on_side_stream(device: torch.device, work: Callable[[], None]) -> Callable[[], None]:
    """Let `work` run on a GPU after everything that is queued so far, without delaying what is queued later."""
    if device.type != "cuda":
        return work
    ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
    ready.record(torch.cuda.current_stream(device))

    def run() -> None:
        side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        side.wait_event(ready)
        with torch.cuda.stream(side):
            work()

    return run
