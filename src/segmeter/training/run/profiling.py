"""Some steps of a run -> a table of where their time went, and a trace of it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from segmeter.files import fresh_folder, remove, write_bytes

FOLDER, TABLE, TRACE = "profile", "table.txt", "trace.json"
SKIPPED = 3  # steps before the first recorded one: they allocate, compile and fill caches
_ROWS = 40


@contextmanager
def profiled(folder: Path, steps: int) -> Iterator[Callable[[], None]]:
    """Record steps with torch's profiler while the block runs; what is yielded is to be called after each step.

    Writes profile/table.txt, the operations that took the longest, and profile/trace.json, which chrome://tracing and
    Perfetto show, once the last step is recorded, or the block ends before.

    Parameters
    ----------
    folder
        The run's.
    steps
        To be recorded after the first `SKIPPED` ones; 0 records none.
    """
    if not steps:
        yield lambda: None
        return
    on_gpu = torch.cuda.is_available()
    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    plan = schedule(wait=SKIPPED - 1, warmup=1, active=steps, repeat=1)

    def write(found: profile) -> None:
        order = "self_device_time_total" if on_gpu else "self_cpu_time_total"
        table = found.key_averages().table(sort_by=order, row_limit=_ROWS, max_name_column_width=60)
        remove(folder / FOLDER)  # that of a run that was stopped and resumed
        with TemporaryDirectory() as place, fresh_folder(folder / FOLDER) as fresh:
            found.export_chrome_trace(str(Path(place) / TRACE))  # it takes a path, so one outside of the run's folder
            write_bytes(fresh / TABLE, f"{table}\n".encode())
            write_bytes(fresh / TRACE, (Path(place) / TRACE).read_bytes())

    with profile(activities=kinds, schedule=plan, on_trace_ready=write) as recorder:
        yield recorder.step
