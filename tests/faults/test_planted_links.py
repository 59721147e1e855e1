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
from tests.models.parts import make_card

SHAPE = (300, 20)  # two rows of chunks


LINES = ArrayRows(np.ones(SHAPE, np.uint8))
WRITERS: dict[str, Callable[[Path], None]] = {
    "safetensors": lambda run: write_model(str(run / "checkpoint"), make_card()),
    "tiff by lines": lambda run: write_tiff(run / "lines.tif", LINES),
    "npy": lambda run: write_npy(run / "a.npy", np.ones(SHAPE)),
    "tiff": lambda run: write_tiff(run / "a.tif", np.ones(SHAPE, np.uint8)),
}


@pytest.mark.parametrize("name", WRITERS)
def test_no_writer_follows_a_planted_link(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link to a file is put where the first new file is to appear, then where the second is, and so on."""
    for at in range(1, 100):
        run, elsewhere, opened = tmp_path / f"run{at}", tmp_path / f"elsewhere{at}", list[Path]()
        run.mkdir()
        elsewhere.write_bytes(b"theirs")

        def plant(operation: str, path: Path, at=at, elsewhere=elsewhere, opened=opened) -> None:
            opened += [path] * (operation == "open")
            if operation == "open" and len(opened) == at and not os.path.lexists(path):
                path.symlink_to(elsewhere)

        with monkeypatch.context() as patch, suppress(SegmeterError, OSError):
            patch.setattr(files, "watch", plant)
            WRITERS[name](run)
        assert elsewhere.read_bytes() == b"theirs", at
        if len(opened) < at:
            break
    assert 1 < at < 99
