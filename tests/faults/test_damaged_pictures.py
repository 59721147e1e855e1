"""Pictures are drawn from the finished run: a resumed run draws all of them again, to the same bytes."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.evaluation.jobs import empty, flip
from tests.faults.commands import line, only, resuming
from tests.faults.harness import Fault, results, run


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("command", "damage"), [("eval", empty), ("eval", Path.unlink), ("predict", flip)])
def test_a_damaged_picture_of_a_finished_run_is_drawn_again(command: str, damage: Callable[[Path], None]) -> None:
    shutil.rmtree("runs", ignore_errors=True)
    all_of_them = ["report.overlays=3", "report.worst=1"]
    assert run(line(command, "runs", *all_of_them)).code == 0
    folder = only(Path("runs"))
    before, (first, second, *_) = results(folder), sorted((folder / "overlays").iterdir())
    damage(first)
    damage(folder / "pictures" / second.stem / "prediction.png")
    if command == "eval":  # the worst case has crops too
        (crops,) = (folder / "worst").iterdir()
        damage(crops / "target.png")
    outcome = run([*resuming(command), *all_of_them])
    assert outcome.code == 0, outcome.errors
    assert results(only(Path("runs"))) == before


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("command", ["eval", "predict"])
def test_a_run_killed_while_it_draws_is_drawn_by_the_next_start(command: str) -> None:
    shutil.rmtree("runs", ignore_errors=True)
    more = ["inference.batch_size=1", "report.overlays=-1"]
    clean = run(line(command, "runs", *more))
    assert clean.code == 0
    before = results(only(Path("runs")))
    shutil.rmtree("runs")
    run(line(command, "runs", *more), Fault(at=clean.fault.count * 3 // 4, kind="killed"))
    outcome = run([*resuming(command), *more])
    assert outcome.code == 0, outcome.errors
    assert results(only(Path("runs"))) == before
