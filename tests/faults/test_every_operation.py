"""A fault at each operation on files of each command: whole files, one line, the right code and state, the same end."""

import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.faults.harness import Fault, Outcome, raise_if_not_whole, results, run, state

SAMPLE = 4  # faults per command, one of each kind, in the usual tests; `-m slow` runs every one
SEED = 3
KINDS = ("full", "stays full", "broken", "killed")
DATA = ["data=folder", "data.root=data", "data.task=binary", "data.classes=[ground,cell]"]
MODEL = ["model.encoder=resnet18", "model.depth=3", "model.decoder_channels=[8,8,8]"]
SPLITS = ["data.val_fraction=0.3", "data.test_fraction=0.3", "report.overlays=2", "metrics.bootstrap=0"]
COMMANDS = {
    "train": [*DATA, *MODEL, *SPLITS[:2], "training.steps=4", "training.epochs=null", "training.batch_size=2"],
    "eval": [*DATA, *SPLITS, "data.split=all", "checkpoint=best"],
    "score": ["predictions=labels", "references=data/masks", "data.num_classes=2", "images=data/images", *SPLITS[2:]],
    "predict": ["checkpoint=best", "input=data/images", "report.overlays=2"],
}
COMMANDS["train"] += ["training.validate_every=2", "training.validate_unit=steps", "training.log_every=1"]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve pictures of two classes, labels for them, a checkpoint, and a clean run of each command."""
    folder, rng = tmp_path_factory.mktemp("faults"), np.random.default_rng(SEED)
    for name in ("data/images", "data/masks", "labels"):
        (folder / name).mkdir(parents=True)
    for index in range(12):
        mask = (rng.random((16, 16)) < 0.4).astype(np.uint8)
        picture = (mask[..., None] * 120 + rng.integers(0, 99, (16, 16, 3))).astype(np.uint8)
        for name, pixels in (
            ("data/images", picture),
            ("data/masks", mask),
            ("labels", mask ^ (picture[..., 0] > 190)),
        ):
            Image.fromarray(pixels.astype(np.uint8)).save(folder / name / f"case{index:02}.png")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for command in COMMANDS:
            outcome = run(line(command, "clean"))
            assert outcome.code == 0, outcome.errors
            if command == "train":
                shutil.copytree((only(Path("clean")) / "checkpoints/best").resolve(), "best")
            Path(f"{command}.count").write_text(str(outcome.fault.count))
            Path("clean").rename(f"clean-{command}")
    return folder


def line(command: str, root: str, *more: str) -> list[str]:
    device = [] if command == "score" else ["device=cpu"]
    return [command, *COMMANDS[command], "run.name=x", f"run.root={root}", *device, *more]


def only(root: Path) -> Path:
    """The run folder that was made last."""
    return max(root.glob("*/*"), key=lambda path: path.stat().st_mtime_ns)


def check(command: str, fault: Fault) -> None:
    """Run into the fault, then run on without one."""
    shutil.rmtree("runs", ignore_errors=True)
    outcome = run(line(command, "runs"), fault)
    folders = list(Path("runs").glob("*/*"))
    context = f"{command}, {fault}: {outcome}"
    for folder in folders:
        raise_if_not_whole(folder)
    if outcome.code is not None:
        check_what_is_said(outcome, folders, context)
    resumed = run(line(command, "runs", *([] if command == "predict" else ["resume=auto"])))
    assert resumed.code == 0, (context, resumed.errors)
    folder = only(Path("runs"))
    assert results(folder) == results(only(Path(f"clean-{command}"))), context
    assert state(folder) == "done", context


def check_what_is_said(outcome: Outcome, folders: list[Path], context: str) -> None:
    said = [line for line in outcome.errors.splitlines() if line.startswith("segmeter: ")]
    assert "Traceback" not in outcome.errors, context
    assert "unexpected fault" not in outcome.errors, context
    if outcome.code == 0:  # the log alone suffered, or what is cleared at the next start
        assert not said, context
        assert [state(folder) for folder in folders] == ["done"], context
        return
    assert outcome.code == 3, context
    assert len(said) == 1, context
    name = outcome.fault.hit.partition(" ")[2]
    assert any(part in said[0] for part in (name, *map(str, folders))), context
    assert "No space left" in said[0] or "Input/output error" in said[0], context
    assert all(state(folder).startswith("stopped: ") or not state(folder) for folder in folders), context
    left = [path for folder in folders for path in folder.rglob(".tmp-*")]
    assert not left or outcome.fault.kind == "broken", context


@pytest.mark.parametrize("command", COMMANDS)
def test_a_fault_at_a_sample_of_operations(command: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(here)
    count = int(Path(f"{command}.count").read_text())
    drawn = random.Random(SEED)
    kinds = drawn.sample(KINDS, len(KINDS))
    for index in range(SAMPLE):
        check(command, Fault(at=drawn.randint(1, count), kind=kinds[index % len(kinds)]))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_fault_at_every_operation(command: str, kind: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(here)
    for at in range(1, int(Path(f"{command}.count").read_text()) + 1):
        check(command, Fault(at=at, kind=kind))
