"""Links that are planted where the next file is about to be made: no writer follows one."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from segmeter import files
from segmeter.data.files.array import ArrayRows
from segmeter.errors import SegmeterError
from segmeter.export.formats import write_npy, write_tiff
from tests.faults.world import write_model
from tests.models.parts import make_card, make_spec

SHAPE = (300, 20)  # two rows of chunks


def write_weights(run: Path) -> None:
    write_model(str(run / "checkpoint"), make_card(make_spec(2, "binary")))


LINES = ArrayRows(np.ones(SHAPE, np.uint8))
WRITERS: dict[str, Callable[[Path], None]] = {
    "safetensors": write_weights,
    "tiff by lines": lambda run: write_tiff(run / "lines.tif", LINES),
    "npy": lambda run: write_npy(run / "a.npy", np.ones(SHAPE)),
    "tiff": lambda run: write_tiff(run / "a.tif", np.ones(SHAPE, np.uint8)),
}


class Planter:
    """Puts a link to a file where the n-th new file is to appear."""

    def __init__(self, at: int, elsewhere: Path) -> None:
        self.left, self.elsewhere, self.planted = at, elsewhere, False

    def __call__(self, operation: str, path: Path) -> None:
        if operation != "open":
            return
        self.left -= 1
        if self.left == 0 and not os.path.lexists(path):
            path.symlink_to(self.elsewhere)
            self.planted = True


@pytest.mark.parametrize("name", WRITERS)
def test_no_writer_follows_a_planted_link(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for at in range(1, 100):
        run, elsewhere = tmp_path / f"run{at}", tmp_path / f"elsewhere{at}"
        run.mkdir()
        elsewhere.write_bytes(b"theirs")
        planter = Planter(at, elsewhere)
        with monkeypatch.context() as patch, suppress(SegmeterError, OSError):
            patch.setattr(files, "watch", planter)
            WRITERS[name](run)
        assert elsewhere.read_bytes() == b"theirs", at
        if planter.left > 0:
            break
    assert 1 < at < 99
