"""Links that are planted where the next file or folder is about to be made: no writer follows one."""

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from segmeter import files
from segmeter.errors import SegmeterError
from segmeter.export.banded import open_bands
from segmeter.export.formats import write_npy, write_tiff, write_zarr
from segmeter.training.run.loggers import TensorBoardLogger
from tests.faults.commands import check_resumed, only, resuming
from tests.faults.harness import run
from tests.faults.world import write_model
from tests.models.parts import make_card, make_spec

SHAPE = (300, 20)  # two rows of chunks


def write_weights(run: Path) -> None:
    write_model(str(run / "checkpoint"), make_card(make_spec(2, "binary")))


def write_curves(run: Path) -> None:
    pytest.importorskip("tensorboard", reason="the extra `tensorboard` is not installed")
    logger = TensorBoardLogger(run / "tensorboard", step=3)
    logger.write({"step": 4, "loss": 0.5})
    logger.close("finished")


def write_bands(run: Path) -> None:
    with open_bands(run / "bands.zarr", shape=SHAPE, dtype=np.dtype(np.uint8)) as bands:
        bands.write(np.ones(SHAPE, np.uint8))


WRITERS: dict[str, Callable[[Path], None]] = {
    "safetensors": write_weights,
    "tensorboard": write_curves,
    "zarr": lambda run: write_zarr(run / "a.zarr", np.ones((2, *SHAPE), np.float32)),
    "zarr by bands": write_bands,
    "npy": lambda run: write_npy(run / "a.npy", np.ones(SHAPE)),
    "tiff": lambda run: write_tiff(run / "a.tif", np.ones(SHAPE, np.uint8)),
}


class Planter:
    """Puts a link to a file, or a folder, where the n-th new file or folder is to appear."""

    def __init__(self, at: int, elsewhere: Path) -> None:
        self.left, self.elsewhere, self.planted = at, elsewhere, False

    def __call__(self, operation: str, path: Path) -> None:
        if operation not in ("open", "mkdir"):
            return
        self.left -= 1
        if self.left == 0 and not os.path.lexists(path):
            path.symlink_to(self.elsewhere / ("folder" if operation == "mkdir" else "file"))
            self.planted = True


@pytest.mark.parametrize("name", WRITERS)
def test_no_writer_follows_a_planted_link(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for at in range(1, 100):
        run, elsewhere = tmp_path / f"run{at}", tmp_path / f"elsewhere{at}"
        run.mkdir()
        (elsewhere / "folder").mkdir(parents=True)
        (elsewhere / "file").write_bytes(b"theirs")
        planter = Planter(at, elsewhere)
        with monkeypatch.context() as patch, files.confined(run), suppress(SegmeterError, OSError):
            patch.setattr(files, "watch", planter)
            WRITERS[name](run)
        assert (elsewhere / "file").read_bytes() == b"theirs", at
        assert not list((elsewhere / "folder").iterdir()), at
        if planter.left > 0:
            break
    assert 1 < at < 99


FOLDERS = [(command, name) for command in ("eval", "predict") for name in ("predictions", "predictions/labels")]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("command", "name"), [*FOLDERS, ("eval", "overlays"), ("score", "overlays")])
def test_a_link_in_the_place_of_an_inner_folder_is_bad_input(command: str, name: str, tmp_path: Path) -> None:
    """Whichever thread writes there; mutation seen to fail: what a writer's thread refuses taken for a fault."""
    shutil.rmtree("runs", ignore_errors=True)
    shutil.copytree(f"clean-{command}", "runs", symlinks=True)
    folder = only(Path("runs"))
    shutil.rmtree(folder / name)
    (folder / name).symlink_to(tmp_path)
    outcome = run(resuming(command))
    said = f"{name}: is a link, and nothing in a run's folder is read or written through one. Remove it."
    assert [line for line in outcome.errors.splitlines() if line.startswith("segmeter: ")] == [
        f"segmeter: {folder.absolute() / name}{said.removeprefix(name)}"
    ]
    assert outcome.code == 2
    assert not list(tmp_path.iterdir())
    (folder / name).unlink()
    check_resumed(command, run(resuming(command)), command)
