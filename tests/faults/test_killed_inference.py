"""SIGKILL at random moments of an eval, a score and a predict by rows: resumed, all end with the same bytes."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zarr

from tests.data.crafted import noise, put
from tests.faults.commands import SEED, only
from tests.faults.harness import raise_if_not_whole, results, state
from tests.faults.world import write_model
from tests.fuzzing import record, rounds
from tests.models.parts import make_card

CASES = 60
COMMON = ["run.name=x", "report.html=false", "report.overlays=0"]
MODEL = ["checkpoint=model", "device=cpu", "inference.precision=float32"]
LINES = {
    "eval": [*MODEL, "data=folder", "data.root=data", "data.split=all", "metrics.bootstrap=10", "export.probs=true"],
    "predict": [*MODEL, "input=large", "inference.tile=64", "export.labels_format=tiff"],
    "score": ["predictions=labels", "references=data/masks", "data.num_classes=3", "metrics.bootstrap=10"],
}
WRITTEN = {"eval": CASES, "predict": 2, "score": 0}  # label maps


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a checkpoint, 60 small cases with other labels beside them, and two pictures that are read by rows."""
    folder = tmp_path_factory.mktemp("killed")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_model("model", make_card())
        for index in range(CASES):
            put(Path("data/images") / f"case{index:02}.png", noise(40 + index % 3, 40, seed=index))
            for place, seed in ((Path("data/masks"), 99), (Path("labels"), 999)):
                put(place / f"case{index:02}.png", noise(40 + index % 3, 40, None, seed=seed + index) // 86)
        for name, height in (("a", 700), ("b", 1100)):
            pixels = np.moveaxis(noise(height, 130, seed=height), -1, 0)
            Path("large").mkdir(exist_ok=True)
            zarr.create_array(f"large/{name}.zarr", data=pixels, chunks=(3, 128, 128), dimension_names=("c", "y", "x"))
    return folder


@pytest.mark.parametrize("command", LINES)
@pytest.mark.fuzz
def test_a_killed_run_goes_on_to_the_same_bytes(children, world, monkeypatch, command):
    kills = rounds(2, 20)
    monkeypatch.chdir(world)
    for root in ("clean", "runs"):
        shutil.rmtree(root, ignore_errors=True)
    drawn = random.Random(f"{SEED} {command} {kills}")

    def go(root: str, *more: str, **options: object) -> tuple[int, float]:
        ended = children.run([command, *COMMON, *LINES[command], f"run.root={root}", *more], **options)
        assert ended.code in (0, -9), ended.errors
        return ended.code, ended.seconds

    code, seconds = go("clean")
    assert code == 0
    clean, cut = results(only(Path("clean"))), 0
    assert sum(name.startswith("predictions/labels/") for name in clean) == WRITTEN[command]
    while cut < kills:
        after = drawn.uniform(0.02, seconds)
        code, _ = go("runs", "resume=auto", signal="SIGKILL", after=after)
        cut += code == -9
        check(clean, go, ended=code == 0 or cut == kills, context=f"{command}, kill {cut} after {after:.3f} s")
    record(f"kills of {command}", kills=kills, seconds_of_a_run=round(seconds, 3))


def check(clean: dict[str, bytes | str], go: Callable[..., object], *, ended: bool, context: str) -> None:
    """Demand that all files are whole and, at the end, those of the clean run; another run then begins."""
    for folder in Path("runs").glob("*/*"):
        raise_if_not_whole(folder)
    if not ended:
        return
    go("runs", "resume=auto")
    folder = only(Path("runs"))
    assert results(folder) == clean, context
    assert state(folder) == "done", context
    shutil.rmtree("runs")
