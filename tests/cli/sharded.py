"""A data set whose size no count of shards divides, a checkpoint for it, and command lines on them."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from segmeter.cli.main import main
from segmeter.evaluation.manifest import RECORDS
from segmeter.files import describe_file, write_json
from segmeter.models.checkpoint import write_checkpoint
from segmeter.models.config import ModelCard
from segmeter.models.segmenter import build_segmenter
from segmeter.records import read_run, seal_run
from tests.data.crafted import THREE, noise, put
from tests.models.parts import TINY

CASES = 11
PLAIN = ["predictions=predictions", "references=masks", "data.num_classes=3", "data.ignore_index=255"]
SCORE = [
    *(*PLAIN, "images=images", "metrics.bootstrap=20", "metrics.measures=[events]"),
    *("report.overlays=4", "report.worst=2", "report.html=false"),
]
EVAL = [
    *("checkpoint=net", "data.root=.", "data.split=all", "inference.batch_size=2", "device=cpu"),
    *("metrics.bootstrap=20", *SCORE[-3:]),
]
PREDICT = ["checkpoint=net", "input=images", "inference.batch_size=2", "device=cpu", *EVAL[-3:]]
TRAIN = [
    *("data=cells", "data.size=64", "data.train_cases=8", "data.samples_per_epoch=8", "data.val_cases=2"),
    *("data.test_cases=2", "model.encoder=tu-test_resnet", "model.depth=3", "model.decoder_channels=[8,8,4]"),
    *("model.norm=group", "training.epochs=2", "training.batch_size=4", "training.precision=float32", "device=cpu"),
]
RESULTS = ("metrics.json", "cases.parquet", "cases.csv", "objects.parquet", "calibration.npz", "manifest.json")


def run(*arguments: str) -> int:
    """The exit code of a command line."""
    try:
        main(arguments)
    except SystemExit as leaving:
        return int(leaving.code or 0)
    return 0


def newest(folder: Path | str) -> Path:
    return max((path for path in Path(folder).iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime_ns)


def done(command: str, *arguments: str) -> Path:
    """Run a command line to its end; the folder of its run."""
    assert run(command, *arguments) == 0
    return newest(f"runs/{command}")


def latest(command: str, name: str = "metrics.json") -> dict[str, Any]:
    """A JSON file of the newest run of a command."""
    found: dict[str, Any] = json.loads((newest(f"runs/{command}") / name).read_text())
    return found


def folders(out: Path) -> dict[str, dict[str, object]]:
    """The summary of each job of a sweep that was done."""
    return {path.parent.name: json.loads(path.read_text()) for path in sorted(out.glob("*/metrics.json"))}


def make_pairs(root: Path, names: Iterable[str], *, wrong: Callable[[int], int]) -> None:
    """Images, references of three classes, and predictions in which `wrong` of 256 pixels of a case are background."""
    for seed, name in enumerate(names):
        target = noise(20, 30, None, seed=seed) % 3
        kept = noise(20, 30, None, seed=seed + 99) >= wrong(seed)
        put(root / "references" / f"{name}.png", target)
        put(root / "predictions" / f"{name}.png", target * kept)
        put(root / "images" / f"{name}.png", noise(20, 30, seed=seed))


def make_masks(root: Path) -> None:
    """`CASES` pairs and images under `root`, of two sizes, so that batches are not all full."""
    for seed in range(CASES):
        size = (40, 40) if seed % 5 else (32, 48)
        target = (noise(*size, None, seed=seed) % 3).astype(np.uint8)
        target[0, :seed] = 255
        labels = np.where(noise(*size, None, seed=seed + 99) < 20 * seed, 0, target % 3).astype(np.uint8)
        put(root / "masks" / f"case{seed:02d}.png", target)
        put(root / "predictions" / f"case{seed:02d}.png", labels)
        put(root / "images" / f"case{seed:02d}.png", noise(*size, seed=seed))


def make_checkpoint(
    folder: Path, *, seed: int = 0, fold: str | None = None, class_pixels: tuple[int, ...] = ()
) -> Path:
    """A network of random weights that reads the images of `make_masks`."""
    torch.manual_seed(seed)
    data = {"name": "folder", "images": "images", "masks": "masks", "fold": fold}
    normalisation = {"mean": (0.5,) * 3, "std": (0.3,) * 3}
    card = ModelCard(model=dict(TINY), spec=THREE, in_channels=3, data=data, class_pixels=class_pixels, **normalisation)
    state = build_segmenter(card).state_dict()
    write_checkpoint(folder, segmenter_state=state, card=card, state=None, progress={"step": 0})
    return folder


def whole(command: str, arguments: list[str]) -> dict[str, bytes]:
    """What a command leaves in one process."""
    return contents(done(command, *arguments, "run.name=whole"))


def run_shards(command: str, count: int, *arguments: str) -> list[Path]:
    """Run each shard, the last one first; give their folders."""
    folders, runs = [], Path("runs", command)
    for number in range(count, 0, -1):
        before = set(runs.glob("*"))
        assert run(command, *arguments, f"shard={number}/{count}", f"run.name=s{number}of{count}") == 0
        folders += set(runs.glob("*")) - before
    return folders


def listed(folders: Iterable[Path]) -> str:
    """The argument that names runs."""
    return f"runs=[{','.join(map(str, folders))}]"


def contents(folder: Path, *more: str) -> dict[str, bytes]:
    """Everything of a run that decides nothing but what was measured."""
    found = [folder / name for name in RESULTS if (folder / name).is_file()]
    found += [path for part in ("predictions", "overlays") for path in (folder / part).rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def change_record(folder: Path, case_id: str, change: Callable[[dict[str, str]], object]) -> None:
    """Change what a finished run recorded of a case, as if the run had written it so."""
    rows = pq.read_table(folder / RECORDS).to_pylist()
    change(next(row for row in rows if row["case_id"] == case_id))
    pq.write_table(pa.Table.from_pylist(rows), folder / RECORDS)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["results"][RECORDS] = describe_file(folder / RECORDS)
    write_json(folder / "manifest.json", manifest)
    write_json(folder / "run.json", seal_run(read_run(folder), folder))
