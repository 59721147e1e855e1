"""Runs a module under Triton's interpreter, in a process of its own, as Triton reads TRITON_INTERPRET when imported."""

import json
import os
import subprocess
import sys

import pytest


def interpreted(module, *arguments):
    """What the module prints, read as JSON; its error, where it fails, is the test's."""
    pytest.importorskip("triton", reason="torch brings no Triton on this system")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-m", module, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
