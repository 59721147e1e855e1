"""Equal runs give equal bytes, whatever the hash seed, the threads, the workers, the cache or the batch size."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.children import Children
from tests.faults.commands import line, only
from tests.faults.harness import results

WAYS = {
    "score": [[], ["workers=2"]],
    "eval": [[], ["inference.batch_size=1"], ["inference.batch_size=4", "export.workers=1"]],
    "train": [[], ["training.workers=2"], ["training.workers=0", "training.cache_gb=0"]],
}
RECORDS = ("manifest.json", "data.json")  # name the settings, which differ; a checkpoint's stands for its weights


@pytest.fixture(scope="module")
def children() -> Iterator[Children]:
    with Children(PYTHONHASHSEED="4242", OMP_NUM_THREADS="2") as made:
        yield made


def figures(root: Path) -> dict[str, bytes | str]:
    found = results(only(root))
    return {name: content for name, content in found.items() if name not in RECORDS}


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("command", WAYS)
def test_equal_runs_give_equal_bytes(children: Children, command: str) -> None:
    """The clean runs were made with another hash seed and one thread."""
    for way in WAYS[command]:
        shutil.rmtree("runs", ignore_errors=True)
        ended = children.run(line(command, "runs", *way))
        assert ended.code == 0, ended.errors
        assert figures(Path("runs")) == figures(Path(f"clean-{command}")), way
