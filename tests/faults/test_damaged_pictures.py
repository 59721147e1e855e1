"""Pictures of eval and predict that are missing or damaged: named, and drawn again to the same bytes."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.evaluation.test_evaluate_resume import empty, flip
from tests.faults.commands import count, line, only, resuming
from tests.faults.harness import Fault, results, run

DAMAGES: list[Callable[[Path], None]] = [empty, flip, Path.unlink]


def pictures() -> list[Path]:
    return sorted((only(Path("runs")) / "overlays").iterdir())


def layer(picture: Path) -> Path:
    """One of the layers of a case, which a page puts together."""
    return picture.parents[1] / "pictures" / picture.stem / "prediction.png"


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("command", ["eval", "predict"])
def test_a_damaged_picture_of_a_finished_run_is_drawn_again(command: str, damage: Callable[[Path], None]) -> None:
    shutil.rmtree("runs", ignore_errors=True)
    all_of_them = ["report.overlays=3", "report.worst=1"]
    assert run(line(command, "runs", *all_of_them)).code == 0
    before, (first, second, *_) = results(only(Path("runs"))), pictures()
    damage(first)
    damage(layer(second))
    damaged = [f"overlays/{first.name}", f"pictures/{second.stem}"]
    if command == "eval":  # the worst case has crops too
        (crops,) = (only(Path("runs")) / "worst").iterdir()
        damage(crops / "target.png")
        damaged.append(f"worst/{crops.name}")
    outcome = run([*resuming(command), *all_of_them])
    assert outcome.code == 0, outcome.errors
    said = f"missing or damaged pictures are drawn again ({len(damaged)}: {', '.join(damaged)})"
    assert said in outcome.errors
    assert results(only(Path("runs"))) == before
    assert "damaged" not in run([*resuming(command), *all_of_them]).errors


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("command", ["eval", "predict"])
def test_a_picture_that_was_damaged_while_a_run_lay_interrupted_is_drawn_again(command: str) -> None:
    """Cases are kept by their batches, so one picture each time."""
    shutil.rmtree("runs", ignore_errors=True)
    more = ["inference.batch_size=1", "report.overlays=-1"]
    clean = run(line(command, "runs", *more))
    assert clean.code == 0
    before = results(only(Path("runs")))
    shutil.rmtree("runs")
    run(line(command, "runs", *more), Fault(at=clean.fault.count * 3 // 4, kind="killed"))
    first = pictures()[0]
    flip(first)
    outcome = run([*resuming(command), *more])
    assert outcome.code == 0, outcome.errors
    assert f"pictures are drawn again (1: overlays/{first.name})" in outcome.errors
    assert results(only(Path("runs"))) == before


@pytest.mark.usefixtures("here")
def test_a_damaged_picture_of_a_shard_is_not_merged() -> None:
    shutil.rmtree("runs", ignore_errors=True)
    shutil.copytree("parts", "runs/parts")
    (picture, *_) = sorted(Path("runs/parts/1/overlays").iterdir())
    flip(picture)
    outcome = run([*line("merge", "runs"), "runs=[runs/parts/1,runs/parts/2]"])
    assert outcome.code == 2
    assert f"overlays/{picture.name}" in outcome.errors
    assert count("merge") > 30
