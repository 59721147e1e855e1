"""How every benchmark measures. Contenders agree on the values first, then take turns, and each is timed cold and warm.

The processor's time counts on a machine that others use too, as the clock then mostly measures the others. Both are
recorded, with the machine, the versions and the load.
"""

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from record import write_record

Work = Callable[[], object]
Clock = Literal["cpu_ms", "cpu_best_ms", "wall_ms"]


class Spent(NamedTuple):
    """Seconds of one call, by the processor and by the clock. Work that runs in another process returns its own."""

    cpu: float
    wall: float


@dataclass(frozen=True, kw_only=True)
class Time:
    """Milliseconds of one call: median and best of the warm rounds, and the first call, when nothing was warm."""

    cpu_ms: float
    cpu_best_ms: float
    wall_ms: float
    wall_best_ms: float
    cold_cpu_ms: float
    cold_wall_ms: float


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of a table. `ratio` is theirs / ours, unless the work says otherwise; None where not measured."""

    work: str
    against: str = "-"
    needs: str = ""
    met: bool | None = None
    ratio: float | None = None
    ours: Time | None = None
    theirs: Time | None = None
    note: str = ""


def whole_cpu() -> float:
    """CPU seconds of this process and of the processes that it has waited for."""
    return sum(os.times()[:4])


def race(
    work: dict[str, Work],
    rounds: int,
    *,
    repeat_s: float = 0.0,
    seldom_s: float = float("inf"),
    cpu: Callable[[], float] = time.process_time,
) -> dict[str, Time]:
    """Time each contender in turns, after one cold call of each.

    Parameters
    ----------
    repeat_s
        A call that is shorter is repeated until a turn takes that long.
    seldom_s
        A call that is longer has every third turn only.
    cpu
        The processor's clock; `whole_cpu` includes finished processes.
    """

    def measure(call: Work, repeats: int) -> Spent:
        busy, start = cpu(), time.perf_counter()
        for _ in range(repeats):
            own = call()
        if isinstance(own, Spent):
            return own
        return Spent((cpu() - busy) / repeats, (time.perf_counter() - start) / repeats)

    cold = {name: measure(call, 1) for name, call in work.items()}
    first = {name: measure(call, 1).cpu for name, call in work.items()} if repeat_s else {}
    repeats = {name: max(1, round(repeat_s / max(seconds, 1e-6))) for name, seconds in first.items()}
    warm: dict[str, list[Spent]] = {name: [] for name in work}
    for turn in range(rounds):
        for name, call in work.items():
            if not turn % 3 or warm[name][0].cpu <= seldom_s:
                warm[name].append(measure(call, repeats.get(name, 1)))
    return {name: _summarise(cold[name], times) for name, times in warm.items()}


def _summarise(cold: Spent, warm: list[Spent]) -> Time:
    cpu, wall = zip(*warm, strict=True)
    return Time(
        cpu_ms=1e3 * statistics.median(cpu),
        cpu_best_ms=1e3 * min(cpu),
        wall_ms=1e3 * statistics.median(wall),
        wall_best_ms=1e3 * min(wall),
        cold_cpu_ms=1e3 * cold.cpu,
        cold_wall_ms=1e3 * cold.wall,
    )


def compare(
    work: str, times: dict[str, Time], needs: dict[str, float], *, clock: Clock = "cpu_ms", note: str = ""
) -> list[Row]:
    """Compare "segmeter" with everyone else; `needs` has the least ratio, also of those that are not installed."""
    ours = times["segmeter"]
    others = [name for name in times if name != "segmeter"]
    rows = []
    for name in [*others, *(name for name in needs if name not in times)]:
        theirs, least = times.get(name), needs.get(name)
        ratio = getattr(theirs, clock) / getattr(ours, clock) if theirs else None
        rows.append(
            Row(
                work=work,
                against=name,
                needs="" if least is None else f"at least {least:g}x",
                met=None if least is None or ratio is None else ratio >= least,
                ratio=ratio,
                ours=ours,
                theirs=theirs,
                note=note if theirs else "not installed",
            )
        )
    return rows


def demand(condition: bool, message: str) -> None:
    """Stop before anything wrong is timed."""
    if not condition:
        raise SystemExit(message)


def show(row: Row) -> None:
    """Print a row."""
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}x"
    verdict = {None: "", True: "met", False: "NOT MET"}[row.met]
    times = " against ".join(f"{t.cpu_ms:.3f} CPU ms ({t.wall_ms:.3f})" for t in (row.ours, row.theirs) if t)
    line = f"{row.work}\n  against {row.against}: {ratio} ({row.needs}) {verdict} {times} {row.note}"
    print(line.replace(" ()", "").rstrip(), flush=True)


def publish(path: Path, before: dict[str, Any], rows: Iterable[Row], **more: Any) -> None:
    """Print rows as they come, then write the record with the circumstances from before the work."""
    found = []
    for row in rows:
        show(row)
        found.append(asdict(row))
    print(f"load after: {os.getloadavg()[0]:.2f}; over 1 beside this job, times mean little", file=sys.stderr)
    write_record(path, before | more | {"rows": found})


def with_one_thread() -> None:
    """Start again with the environment that libraries read when they are loaded."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    if any(os.environ.get(name) != "1" for name in names):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | dict.fromkeys(names, "1"))
