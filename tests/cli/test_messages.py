"""What is said: warnings at once and in the run's log, an error once elsewhere, and streams that may fail."""

import logging
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from segmeter.cli.messages import logged, shown_warnings
from tests.data.crafted import put

LOG = logging.getLogger("segmeter.somewhere")


def test_what_was_said_before_the_run_was_opened_is_in_its_log_and_in_no_later_one(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(logging.getLogger("segmeter"), "level", logging.NOTSET)  # as in a new process
    with shown_warnings():
        LOG.warning("early %d", 1)
        LOG.info("shown early", extra={"shown": True})
        with logged(tmp_path):
            LOG.warning("late")
            LOG.info("quiet")
            LOG.info("shown", extra={"shown": True})
        LOG.warning("after")
        (tmp_path / "two").mkdir()
        with logged(tmp_path / "two"):
            LOG.warning("second")
    assert (
        capsys.readouterr().err
        == "warning: early 1\nshown early\nwarning: late\nshown\nwarning: after\nwarning: second\n"
    )
    logs = [(folder / "log.txt").read_text().splitlines() for folder in (tmp_path, tmp_path / "two")]
    said = [[line.split(" segmeter.somewhere ")[1] for line in lines] for lines in logs]
    assert said == [["early 1", "late", "quiet", "shown"], ["after", "second"]]


def test_what_ends_a_thread_is_one_line(capsys):
    def fail():
        raise ValueError("of this")

    with shown_warnings():
        thread = threading.Thread(target=fail, name="reader")
        thread.start()
        thread.join()
    assert capsys.readouterr().err == "warning: reader ended: ValueError: of this\n"


WAYS = {"both closed": ">&- 2>&-", "full out": ">/dev/full", "full error": "2>/dev/full"}
WAYS |= {"reader gone": "| head -n 1", "closed input": "<&-"}


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=[] if way == "both closed" else [pytest.mark.slow]) for way in WAYS]
)
def test_the_run_is_done_whatever_became_of_its_output(way: str, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        put(tmp_path / folder / "case.png", np.zeros((8, 8), np.uint8))
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
