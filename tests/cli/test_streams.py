"""A closed or full standard output or error changes neither the files nor the exit code."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

WAYS = {"both closed": ">&- 2>&-", "full out": ">/dev/full", "full error": "2>/dev/full"}
WAYS |= {"reader gone": "| head -n 1", "closed input": "<&-"}


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=[] if way == "both closed" else [pytest.mark.slow]) for way in WAYS]
)
def test_the_run_is_done_whatever_became_of_its_output(way: str, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        Image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / folder / "case.png")
    command = f"{sys.executable} -m segmeter score predictions=a references=b \"data.classes=['grün',b]\""
    shell = ["bash", "-c", f"set -o pipefail; {command} {WAYS[way]}"]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(shell, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    (folder,) = (tmp_path / "runs/score").iterdir()
    assert {"metrics.json", "cases.csv", "cases.parquet", "report.html"} <= {path.name for path in folder.iterdir()}
    assert "grün" in (folder / "metrics.json").read_text("utf-8")
    assert '"state": "done"' in (folder / "run.json").read_text()
