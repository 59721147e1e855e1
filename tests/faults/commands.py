"""Five commands on six small pictures, a clean run of each, and what must hold after any other run."""

import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from tests.data.crafted import put
from tests.faults.harness import Outcome, raise_if_not_whole, results, run, state

SEED = 3
CASES = 6
DATA = ["data=folder", "data.root=data", "data.task=binary", "data.classes=[ground,cell]"]
MODEL = ["model.encoder=tu-test_resnet", "model.depth=3", "model.decoder_channels=[8,8,4]"]
STEPS = ["training.steps=4", "training.epochs=null", "training.batch_size=2", "training.log_every=1"]
SPLITS = ["data.val_fraction=0.3", "data.test_fraction=0.3"]
REPORT = ["report.overlays=1", "report.worst=1", "report.panel=128"]
COMMANDS = {
    "train": [*DATA, *MODEL, *SPLITS, *STEPS, "training.validate_every=2", "training.validate_unit=steps"],
    "eval": [*DATA, *SPLITS, *REPORT, "metrics.bootstrap=0", "data.split=all", "checkpoint=best"],
    "score": ["predictions=labels", "references=data/masks", "data.num_classes=2", "images=data/images"],
    "predict": ["checkpoint=best", "input=data/images", *REPORT],
    "merge": ["runs=[parts/1,parts/2]", *REPORT],
}
COMMANDS["score"] += [*REPORT, "metrics.bootstrap=0"]


def line(command: str, root: str, *more: str) -> list[str]:
    device = [] if command in ("score", "merge") else ["device=cpu"]
    return [command, *COMMANDS[command], "run.name=x", f"run.root={root}", *device, *more]


def resuming(command: str) -> list[str]:
    """What goes on after a fault; a merge, which takes no time, is made anew."""
    return line(command, "runs", *([] if command == "merge" else ["resume=auto"]))


def make_data_and_clean_runs() -> None:
    """Fill the working folder: pictures of two classes, labels for them, a checkpoint, a clean run of each command."""
    rng = np.random.default_rng(SEED)
    for index in range(CASES):
        mask = (rng.random((16, 16)) < 0.4).astype(np.uint8)
        picture = (mask[..., None] * 120 + rng.integers(0, 99, (16, 16, 3))).astype(np.uint8)
        name = f"case{index:02}.png"
        put(Path("data/images") / name, picture)
        put(Path("data/masks") / name, mask)
        put(Path("labels") / name, mask ^ (picture[..., 0] > 190))
    for command in COMMANDS:
        if command == "merge":
            _make_shards()
        outcome = run(line(command, "clean"))
        assert outcome.code == 0, outcome.errors
        if command == "train":
            shutil.copytree((only(Path("clean")) / "checkpoints/best").resolve(), "best")
        Path(f"{command}.count").write_text(str(outcome.fault.count))
        Path("clean").rename(f"clean-{command}")


def _make_shards() -> None:
    """What is merged: two shards of an evaluation, with every kind of file."""
    for number in (1, 2):
        more = [f"shard={number}/2", "inference.batch_size=2", "export.probs=true"]
        outcome = run(line("eval", "shards", *more))
        assert outcome.code == 0, outcome.errors
        Path("parts").mkdir(exist_ok=True)
        only(Path("shards")).rename(f"parts/{number}")


def count(command: str) -> int:
    """Operations on files of a clean run."""
    return int(Path(f"{command}.count").read_text())


def folders() -> list[Path]:
    return list(Path("runs").glob("*/*"))


def only(root: Path) -> Path:
    """The run folder that was made last."""
    return max(root.glob("*/*"), key=lambda path: path.stat().st_mtime_ns)


def check_files(context: str) -> None:
    """Every published file is whole, whatever happened."""
    for folder in folders():
        try:
            raise_if_not_whole(folder)
        except Exception as error:
            raise AssertionError(f"{context}: {error!r}") from error


def check_resumed(command: str, outcome: Outcome, context: str) -> None:
    """The run that went on ended like the clean one, to the byte; a training may keep where it was stopped.

    The two newest checkpoints of a training stay, and the older of them may be the one that the stop saved.
    """
    assert outcome.code == 0, (context, outcome.errors)
    folder = only(Path("runs"))
    found, clean = results(folder), results(only(Path(f"clean-{command}")))
    stopped = {name for name in found.keys() - clean.keys() if name.startswith("checkpoints/step-")}
    steps = {name.split("/")[1] for name in stopped}
    assert len(steps) < 2, context
    assert all(step < str(found["checkpoints/last"]) for step in steps), context
    assert {name: content for name, content in found.items() if name not in stopped} == clean, context
    assert state(folder) == "done", context


def check_what_is_said(
    code: int | None, errors: str, context: str, *, about: Iterable[str], unsaid: str = ""
) -> list[str]:
    """One line that names a file or folder, exit code 3, and a record of it, where the fault did any harm.

    `unsaid` is the state that a run may keep, where nothing more can be written.
    """
    assert "Traceback" not in errors, context
    assert "unexpected fault" not in errors, context
    said = [text for text in errors.splitlines() if text.startswith("segmeter: ")]
    states = [state(folder) for folder in folders()]
    if code == 0:  # the log alone suffered, or what is cleared at the next start
        assert (said, states) == ([], ["done"]), context
        return said
    assert (code, len(said)) == (3, 1), context
    assert any(part in said[0] for part in about), context
    assert all(each.startswith("stopped: ") or each in ("", unsaid) for each in states), context
    return said
