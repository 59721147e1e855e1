"""Lets the processes of a training end together: a fault of one ends all of them, and all name the first cause.

A process that waits for the others inside a library can't be interrupted there. So each process has a thread that
reports every second to a store of torch's: it is alive, and so far is its work. It also reads whether there is a fault.
A process that learns of a fault has a short while to leave by itself, and is then ended.
"""

import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import torch.distributed as dist

from segmeter.distributed.faults import FAULT, Fault, Judge, Seen, exit_code, meeting, read_fault, tell
from segmeter.distributed.place import Place
from segmeter.errors import EXIT_CODES, Interrupted, PeerError, RunError
from segmeter.progress import Pulse

AGENT = "TORCHELASTIC_USE_AGENT_STORE"  # "True" if the program that started the processes has the store (torchrun)
_LOOK_S = 1.0
_DEAF_S = 10.0  # after a signal that the main thread does not hear while there is nothing to save
_BLAME_S = 8.0  # to look for the cause of a broken connection
_GRACE, _LEADERS_GRACE = 8, 18  # looks for a process to leave by itself; the first one has files to write
_DEAF_GRACE = 12  # the same while the main thread waits for others, until those have ended
_LAST_LOOKS = 5  # for the others to leave before the store goes
_ANSWER = timedelta(seconds=20)  # for the store to answer
_FOR_EVER = 10 * 365 * 86400.0
_ROOT = str(Path(__file__).parents[1])
_TCPStore: Any = dist.TCPStore  # type: ignore[attr-defined]
_trainings = count()


def open_store() -> Any:
    """Open a store at a free port of this machine, for processes that are started with `AGENT` and that port."""
    return _TCPStore("127.0.0.1", 0, is_master=True, timeout=_ANSWER, wait_for_workers=False)


@contextmanager
def watched(
    place: Place | None, limit_s: float | None, *, settle: Callable[[], None] = lambda: None
) -> Iterator["Watch | None"]:
    """End together with the other processes while the block runs. A single process has nothing to watch.

    Parameters
    ----------
    limit_s
        Seconds without progress of any process until all of them end; None waits for ever.
    settle
        Called once the block has failed, as a signal that comes now, such as torchrun's, is not the cause.

    Raises
    ------
    PeerError
        Another process failed first. An error of this process is reported to the others and raised unchanged.
    """
    if place is None:
        yield None
        return
    watch = Watch(place, limit_s, settle)
    try:
        watch.meet()
        yield watch
        watch.leave()
    except Interrupted:  # the first process has told the others to leave
        watch.leave()
        raise
    except BaseException as error:
        cause = watch.blame(error)
        if cause is error:
            raise
        raise cause from error
    finally:
        watch.close()


class Watch:
    """The thread of one process that watches the others through a shared `store`.

    Signals reach it through a socket, as Python's own handlers only run once the main thread is back from the library
    that it waits in.
    """

    def __init__(self, place: Place, limit_s: float | None, settle: Callable[[], None]) -> None:
        self.place, self.limit_s = place, limit_s
        self.store: Any = None
        self._hosts = place.rank == 0 and os.environ.get(AGENT) != "True"
        self._by_segmeter = multiprocessing.parent_process() is not None  # with launch=processes
        self._board: Any = None  # the same store, by a connection of the thread's own
        self._settle = settle
        self._judge = Judge(place.rank, place.size, limit_s)
        self._fault: Fault | None = None
        self._own: Fault | None = None
        self._raises = True  # whether the main thread may be interrupted
        self._broken = self._leaving = False
        self._looks = self._since_fault = self._signal = 0
        self._signalled = 0.0
        self._settled, self._over = threading.Event(), threading.Event()
        self._inner, self._outer = socket.socketpair()
        self._inner.settimeout(_LOOK_S)
        self._outer.setblocking(False)
        self._handler = signal.signal(signal.SIGUSR2, self._interrupt)
        self._wakeup = signal.set_wakeup_fd(self._outer.fileno(), warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def meet(self) -> None:
        """Connect to the store at MASTER_ADDR and MASTER_PORT; the first process hosts it unless torchrun does."""
        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        rank, size, number = self.place.rank, self.place.size, next(_trainings)
        patience = timedelta(seconds=self.limit_s or _FOR_EVER)
        ranks = range(size) if rank == 0 else range(rank, rank + 1)
        try:
            store = _TCPStore(address, port, size, self._hosts, patience, wait_for_workers=False, multi_tenant=True)
            board = _TCPStore(address, port, size, False, _ANSWER, wait_for_workers=False)
            self.store, met = meeting(store, number, ranks), meeting(board, number, range(1))
            self._looks = 1  # reported at once, as only a process that has reported can be missed
            met.set(str(rank), Seen(self._looks).to_json())
            self._board = met
        except RuntimeError as error:
            text = str(error).splitlines()[0]
            raise RunError(f"training: {self._name} found nobody to train with at {address}:{port}: {text}.") from error

    def leave(self) -> None:
        """Wait until all processes are done: the first for the others, and the others for its last files."""
        self._leaving = True
        self._settled.wait()
        if self._fault is not None:
            raise _peer_error(self._fault)

    def blame(self, error: BaseException) -> BaseException:
        """Report an error of this process to the others; return the first cause, which may be another process's."""
        self._raises = False
        self._settle()
        if isinstance(error, PeerError) or self._board is None:
            return error
        # it may come from a connection that another process closed, or from torchrun, which stops all if one is lost
        doubtful = RuntimeError if self._by_segmeter else (RuntimeError, KeyboardInterrupt)
        if isinstance(error, doubtful) and self._own is None:
            self._broken = True
            self._settled.wait(_BLAME_S)
        self._own = self._own or Fault.of(error, self._name)
        first = self._fault
        with suppress(RuntimeError):  # the store is gone, and with it the processes to tell
            first = first or tell(self.store, self._own)
        return error if first in (None, self._own) else _peer_error(first)

    def close(self) -> None:
        """End the thread, and restore the signals' handlers."""
        self._raises = False
        self._over.set()
        self._thread.join()
        signal.set_wakeup_fd(self._wakeup)
        signal.signal(signal.SIGUSR2, self._handler)
        self._inner.close()
        self._outer.close()

    @property
    def _name(self) -> str:
        return f"process {self.place.rank + 1} of {self.place.size}"

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._raises and self._fault is not None:
            self._raises = False
            raise _peer_error(self._fault)

    def _run(self) -> None:
        while not self._over.is_set():
            self._hear()
            fault = self._fault or self._look()
            if fault is not None:
                self._end(fault)
        if self._leaving and self._fault is None:
            self._part()

    def _hear(self) -> None:
        """Wait a second for signals; a second one ends the process, whatever its main thread is in."""
        try:
            heard = [number for number in self._inner.recv(64) if number in EXIT_CODES]
        except TimeoutError:
            return
        if heard and self._signal and time.monotonic() > self._signalled + _LOOK_S:
            os._exit(exit_code(self._signal))
        if heard and not self._signal:
            self._signal, self._signalled = min(heard), time.monotonic()

    def _look(self) -> Fault | None:
        """Report on this process, read the others' reports, and report a fault if there is one."""
        fault = self._deaf()
        if self._board is None:
            return fault
        try:
            mine = self._say()
            fault = read_fault(self._board.get(FAULT)) or fault
            if fault is not None:
                return tell(self._board, fault)
            others = range(self.place.size) if self.place.rank == 0 else range(1)
            seen = {rank: Seen.from_json(self._board.get(str(rank))) for rank in others} | {self.place.rank: mine}
            fault = self._judge(seen, leaving=self._leaving)
            if self._leaving and all(each.done for each in seen.values()):
                self._settled.set()
            return None if fault is None else tell(self._board, fault)
        except RuntimeError:
            self._settled.set()
            lost = "training: the connection to the other processes broke; the first one, or what started it, ended."
            return None if self._leaving else Fault((lost,))

    def _say(self, *, left: bool = False) -> Seen:
        self._looks += 1
        looks = -1 if left else self._looks
        mine = Seen(looks, self._leaving, Pulse.beats, _whereabouts(), self._broken, self._signal)
        self._board.set(str(self.place.rank), mine.to_json())
        return mine

    def _part(self) -> None:
        """Report that this process has left; the one that hosts the store leaves last."""
        with suppress(RuntimeError):
            self._say(left=True)
            for _ in range(_LAST_LOOKS if self._hosts else 0):
                if all(Seen.from_json(self._board.get(str(rank))).looks < 0 for rank in range(self.place.size)):
                    return
                time.sleep(_LOOK_S)

    def _deaf(self) -> Fault | None:
        """A signal that must end the process, as there is nothing to save, but that its main thread does not hear."""
        stop = getattr(signal.getsignal(self._signal), "__self__", None) if self._signal else None
        raises = getattr(stop, "raises", False) and not getattr(stop, "received", None)
        if not raises or time.monotonic() < self._signalled + _DEAF_S:
            return None
        return Fault((f"{self._name}: stopped by {signal.Signals(self._signal).name}.",), exit_code(self._signal))

    def _end(self, fault: Fault) -> None:
        """Interrupt the main thread, and end the process when its time is up."""
        if self._fault is None:
            self._fault = fault
            self._settled.set()
            if self._raises:
                signal.pthread_kill(_main(), signal.SIGUSR2)
        self._since_fault += 1
        grace = _GRACE if self.place.rank else _DEAF_GRACE if self._raises else _LEADERS_GRACE
        if self._since_fault > grace:
            if not self._by_segmeter:  # which would name the fault itself
                sys.stderr.write("".join(f"segmeter: {line}\n" for line in fault.lines))
                sys.stderr.flush()
            os._exit(fault.code)


def _peer_error(fault: Fault) -> PeerError:
    return PeerError(fault.lines, exit_code=fault.code)


def _main() -> int:
    return threading.main_thread().ident or 0


def _whereabouts() -> str:
    """The innermost line of segmeter's code that the main thread is in."""
    frame = sys._current_frames().get(_main())
    while frame is not None and not frame.f_code.co_filename.startswith(_ROOT):
        frame = frame.f_back
    if frame is None:
        return "its start"
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} ({frame.f_code.co_name})"
