"""Memory: what is there, what is refused before the work, and what waits for its turn."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from segmeter.cli.main import main
from segmeter.errors import InputError
from segmeter.evaluation import drive as memory
from segmeter.evaluation.drive import SMALL, Room, check_memory
from tests.data.crafted import put


def test_what_can_not_fit_is_refused(monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda: 2**30)
    check_memory(2**30, what="it", remedy="")
    with pytest.raises(InputError, match=r"^it: expected `memory` of about 1\.5 GiB, got 1\.0 GiB free\. Do less\.$"):
        check_memory(3 * 2**29, what="it", remedy="Do less.")


def test_what_fits_only_alone_waits_for_its_turn(monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda: 5 * SMALL)
    room, held, most = Room(), 0, 0
    changed = threading.Lock()

    def work(size):
        nonlocal held, most
        with room.hold(size * SMALL, what="it", remedy=""):
            with changed:
                held += size
                most = max(most, held)
            time.sleep(0.01)
            with changed:
                held -= size

    with ThreadPoolExecutor(7) as pool:
        list(pool.map(work, (3, 2, 4, 1, 5, 2, 2)))
    assert held == 0
    assert 0 < most <= 5


PAIR = "case 'x': expected `memory` of about {} GiB, got 0.0 GiB free. Free memory, cut the pair"
MEASURED = {"[]": 0.2, "[surface]": 0.4, "[instances]": 0.7, "[instances] data.instances=true data.task=binary": 1.3}


@pytest.mark.parametrize(
    ("classes", "measures", "free", "said"),
    [
        (
            65534,
            "[]",
            2**30,
            "counts of 65534 classes: expected `memory` of about 192.0 GiB, got 1.0 GiB free. Name those",
        ),
        *((2, measures, 2**20, PAIR.format(gib)) for measures, gib in MEASURED.items()),
    ],
)
def test_score_refuses_counts_and_pairs_by_their_header_before_a_run_begins(
    classes, measures, free, said, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(memory, "free_bytes", lambda: free)
    for folder in ("a", "b"):
        put(tmp_path / folder / "x.png", np.kron(np.eye(40, dtype=np.uint8), np.ones((160, 160), np.uint8)))
    with pytest.raises(SystemExit) as leaving:
        main(f"score predictions=a references=b data.num_classes={classes} metrics.measures={measures}".split())
    assert leaving.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert not Path("runs").exists()
