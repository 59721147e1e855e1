"""Equal runs give equal bytes: with other threads, workers, caches or batches, and after pictures were damaged."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.evaluation.jobs import empty
from tests.faults.children import Children
from tests.faults.harness import Fault, line, only, results, resuming, run
from tests.faults.world import flip

WAYS = {
    "score": [[], ["workers=2"]],
    "eval": [[], ["inference.batch_size=1"], ["inference.batch_size=4", "export.workers=1"]],
    "train": [[], ["training.workers=2"], ["training.workers=0", "training.cache_gb=0"]],
}
pytestmark = pytest.mark.usefixtures("here")
RECORDS = ("manifest.json", "data.json")  # name the settings, which differ; a checkpoint's stands for its weights


def figures(root: Path) -> dict[str, bytes | str]:
    found = results(only(root))
    return {name: content for name, content in found.items() if name not in RECORDS}


@pytest.mark.parametrize("command", WAYS)
@pytest.mark.slow
def test_equal_runs_give_equal_bytes(children: Children, command: str) -> None:
    """The clean runs were made with another hash seed and one thread; a training's bits depend on their number."""
    threads = 1 if command == "train" else 2
    for way in WAYS[command]:
        shutil.rmtree("runs", ignore_errors=True)
        ended = children.run(line(command, "runs", *way), threads=threads)
        assert ended.code == 0, ended.errors
        assert figures(Path("runs")) == figures(Path(f"clean-{command}")), way


@pytest.mark.slow
@pytest.mark.parametrize("command", ["eval", "predict"])
def test_a_resumed_run_computes_with_the_threads_that_it_began_with(children: Children, command: str) -> None:
    """On a CPU the last bits of probabilities depend on their number: begun with one, resumed where there are two."""
    probs = "export.probs=true"
    assert run(line(command, "runs", probs)).code == 0
    folder = only(Path("runs"))
    before = results(folder)
    damaged = next((folder / "predictions/probs").iterdir())
    damaged.unlink()
    ended = children.run([*resuming(command), probs], threads=2)
    assert ended.code == 0, ended.errors
    assert "resume: 1 threads, as the run began with, not 2." in ended.errors
    assert damaged.name in ended.errors
    assert results(folder) == before
    shutil.rmtree("runs")
    assert children.run(line(command, "runs", probs), threads=2).code == 0
    (manifest,) = Path("runs").glob("*/*/manifest.json")
    assert json.loads(manifest.read_bytes())["identity"]["threads"] == 2


@pytest.mark.parametrize(("command", "damage"), [("eval", empty), ("eval", Path.unlink), ("predict", flip)])
def test_a_damaged_picture_of_a_finished_run_is_drawn_again(command: str, damage: Callable[[Path], None]) -> None:
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


@pytest.mark.parametrize("command", ["eval", "predict"])
def test_a_run_killed_while_it_draws_is_drawn_by_the_next_start(command: str) -> None:
    more = ["inference.batch_size=1", "report.overlays=-1"]
    clean = run(line(command, "runs", *more))
    assert clean.code == 0
    before = results(only(Path("runs")))
    shutil.rmtree("runs")
    run(line(command, "runs", *more), Fault(at=clean.fault.count * 3 // 4, kind="killed"))
    outcome = run([*resuming(command), *more])
    assert outcome.code == 0, outcome.errors
    assert results(only(Path("runs"))) == before
