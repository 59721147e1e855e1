"""Command lines run in forked children of one warm process, which meet a fault of the system or a signal.

`python -m tests.faults.children` serves: a line of JSON says what to run, a line of JSON says how it ended.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Self

from tests.faults.harness import COMMANDS, composed_once, prepare

ROOT = Path(__file__).parents[2]
KINDS = {"full": 1, "stays full": 2, "broken": 3, "killed": 4}
NEVER = 10**9
# what a child would import at the cost of its run
LAZY = ["segmentation_models_pytorch", "pyarrow.parquet", "jinja2"]
LAZY += ["safetensors.torch", "skimage.measure", "rich.table"]


@dataclass(frozen=True)
class Ended:
    """How a child ended: its exit code, negative for the signal that killed it, and what it said."""

    code: int
    errors: str
    calls: int
    seconds: float


class Children:
    """A context in whose process children run, one at a time; `library` is what `interpose.c` was compiled to."""

    def __init__(self, library: Path | None = None, **variables: str) -> None:
        path = os.pathsep.join([str(ROOT), *sys.path])
        environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **variables}
        if library is not None:
            environment |= {"LD_PRELOAD": str(library)}
        command = [sys.executable, "-m", "tests.faults.children", str(library or "")]
        self._server = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *ended: object) -> None:
        self._server.communicate(timeout=60)

    def run(self, line: list[str], **options: Any) -> Ended:
        """Run a command line in the working folder.

        Options are `at` and `kind` of a fault below runs/, or `signal`, sent `after` so many seconds, and whether it is
        sent to the whole `group`; and `threads`, one unless it is given.
        """
        assert self._server.stdin
        assert self._server.stdout
        self._server.stdin.write(json.dumps({"line": line, "folder": str(Path.cwd()), **options}) + "\n")
        return Ended(**json.loads(self._server.stdout.readline()))


def serve(library: str) -> None:
    """Answer until the input ends."""
    import torch

    from segmeter.cli.commands import load_command

    torch.set_num_threads(1)  # a process that computed with more could not be forked
    for command in COMMANDS:
        load_command(command)
    for module in LAZY:
        import_module(module)
    faults = ctypes.CDLL(library) if library else None
    with composed_once():
        for text in sys.stdin:
            asked = json.loads(text)
            os.chdir(asked["folder"])
            prepare(asked["line"])
            print(json.dumps(_run(asked, faults)), flush=True)


def _run(asked: dict[str, Any], faults: Any) -> dict[str, Any]:
    start = time.monotonic()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _child(asked, faults, writing)
    os.close(writing)
    if "signal" in asked:
        _send(child, asked)
    _, status = os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as said:
        calls = int(said.read() or 0)
    seconds = time.monotonic() - start
    errors = Path("errors.txt").read_text(errors="replace")
    return {"code": os.waitstatus_to_exitcode(status), "errors": errors, "calls": calls, "seconds": seconds}


def _send(child: int, asked: dict[str, Any]) -> None:
    limit = time.monotonic() + asked["after"]
    while time.monotonic() < limit:
        time.sleep(0.002)
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return
    number = getattr(signal, asked["signal"])
    os.killpg(child, number) if asked.get("group") else os.kill(child, number)


def _child(asked: dict[str, Any], faults: Any, answer: int) -> None:
    """Everything of the forked child; it never returns."""
    from segmeter.cli.main import main

    code = 70
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.modules["torch"].set_num_threads(asked.get("threads", 1))
        errors = os.open("errors.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        os.dup2(errors, 2)
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        if faults:
            faults.fault_arm(
                os.fsencode(Path("runs").absolute()), asked.get("at", NEVER), KINDS[asked.get("kind", "full")]
            )
        main(asked["line"])
        code = 0
    except SystemExit as leaving:
        code = int(leaving.code or 0)
    finally:
        sys.stderr.flush()
        if faults:
            calls = faults.fault_calls()
            os.write(answer, str(calls).encode())
        os._exit(code)


if __name__ == "__main__":
    serve(sys.argv[1])
