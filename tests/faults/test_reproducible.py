"""Equal runs give equal bytes, whatever the hash seed, the threads, the workers, the cache or the batch size."""

import json
import shutil
from pathlib import Path

import pytest

from tests.faults.children import Children
from tests.faults.commands import line, only, resuming
from tests.faults.harness import results, run

WAYS = {
    "score": [[], ["workers=2"]],
    "eval": [[], ["inference.batch_size=1"], ["inference.batch_size=4", "export.workers=1"]],
    "train": [[], ["training.workers=2"], ["training.workers=0", "training.cache_gb=0"]],
}
RECORDS = ("manifest.json", "data.json")  # name the settings, which differ; a checkpoint's stands for its weights


def figures(root: Path) -> dict[str, bytes | str]:
    found = results(only(root))
    return {name: content for name, content in found.items() if name not in RECORDS}


@pytest.mark.usefixtures("here")
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
@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("command", ["eval", "predict"])
def test_a_resumed_run_computes_with_the_threads_that_it_began_with(children: Children, command: str) -> None:
    """On a CPU the last bits of probabilities depend on their number: begun with one, resumed where there are two."""
    shutil.rmtree("runs", ignore_errors=True)
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
