"""Times `segmeter score` on whole folders of files against other evaluators.

Ours writes everything that a run has except the report, with intervals from 10000 resamples. It also runs without
intervals, as no other evaluator here computes any. vernier and hotcoco (Rust) give one confusion matrix and write
nothing. The evaluators in Python see a few pairs only, one by one; Pillow
(for volumes nibabel) decodes for them, as they take arrays. CPU times of all threads are compared.

    python benchmarks/score_peers.py [--pairs N] [--volumes N] [--rounds N] [--camvid FOLDER]

`--camvid` is a folder of label PNGs, each scored against itself moved by three pixels, in its own size and enlarged to
1024 x 1024. Writes benchmarks/results/score_peers.json.
"""

import argparse
import gc
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from harness import demand, race
from record import RESULTS, circumstances, write_record
from segmeter.classes import ClassSpec
from segmeter.data.classes_config import default_colours
from segmeter.data.sample import Reading
from segmeter.evaluation.mask_pairs import find_pairs
from segmeter.evaluation.score import Scoring, score
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.pixels.overlap import class_totals

sys.path.append(str(Path(__file__).parents[1]))  # for the stand-ins that let nnU-Net be imported
from tests.differential.peers import lent_modules, quiet

K, SIDE, VOID = 19, 1024, 255
ALONE = "segmeter, no intervals"
DISTINCT = 60  # pairs that differ; the others are links to their files
FEW = 8  # pairs that evaluators in Python see
VOLUME, LABELS = (128, 512, 512), 4
DISTINCT_VOLUMES = 2
PACKAGES = ("vernier", "hotcoco", "torchmetrics", "monai", "scikit-learn", "nnunetv2", "imagecodecs")

Array = NDArray[Any]
Paths = list[tuple[Path, Path]]
Counter = Callable[[Paths], Array]


def spec(classes: int) -> ClassSpec:
    names = tuple(f"class_{k}" for k in range(classes))
    return ClassSpec(task="multiclass", names=names, colours=default_colours(classes), ignore_index=VOID)


def draw(kind: str, rng: np.random.Generator) -> tuple[Array, Array]:
    """Flat regions, predicted three pixels off and with specks; or noise."""
    if kind == "noise":
        first, second = rng.integers(0, K, (2, SIDE, SIDE)).astype(np.uint8)
    else:
        first = np.kron(rng.integers(0, K, (16, 16)), np.ones((SIDE // 16, SIDE // 16), int)).astype(np.uint8)
        second = np.roll(first, 3, axis=1)
        specks = rng.random(second.shape) < 0.002
        second[specks] = rng.integers(0, K, specks.sum())
    first[:8] = VOID
    return first, second


def camvid(folder: Path, *, side: int | None) -> list[tuple[Array, Array]]:
    pairs = []
    for path in sorted(folder.iterdir())[: 5 * DISTINCT]:
        with Image.open(path) as picture:
            picture = picture.resize((side, side), Image.Resampling.NEAREST) if side else picture
            target = np.asarray(picture)
        labels = np.roll(target, 3, axis=1)
        pairs.append((target, np.where(labels < K, labels, 0).astype(np.uint8)))
    return pairs


def write_set(root: Path, maps: list[tuple[Array, Array]], count: int, *, palette: bool = False) -> Paths:
    paths = []
    for role in ("references", "predictions"):
        (root / role).mkdir(parents=True)
    for i in range(count):
        pair = (root / "references" / f"{i:06}.png", root / "predictions" / f"{i:06}.png")
        for path, map_ in zip(pair, maps[i % len(maps)], strict=True):
            if i < len(maps):
                picture = Image.fromarray(map_)
                if palette:
                    picture.putpalette([value for i in range(256) for value in (i, 255 - i, i)])
                picture.save(path)
            else:
                os.link(path.with_name(f"{i % len(maps):06}.png"), path)
        paths.append(pair)
    return paths


def ours(paths: Paths, *, classes: int = K, resamples: int = 10_000) -> Array:
    references, predictions = (path.parent for path in paths[0])
    wanted = {reference.name for reference, _ in paths}
    with tempfile.TemporaryDirectory() as folder:
        pairing = find_pairs(predictions, references, spec=spec(classes))
        assert {pair.references[0].name for pair in pairing.pairs} == wanted
        job = Scoring(
            pairing=pairing,
            reading=Reading(spec=spec(classes), label_map={}, max_pixels=int(np.prod(VOLUME))),
            metrics=MetricsConfig(bootstrap=resamples),
            folder=Path(folder),
        )
        return np.array(score(job)["confusion_matrix"])


def vernier(paths: Paths) -> Array:
    from vernier import semantic

    first, second = (dict(enumerate(side)) for side in zip(*paths, strict=True))
    found = semantic.Evaluator().evaluate_from_pngs(first, second, n_classes=K, ignore_label=VOID)
    matrix = found.confusion_matrix
    counts = (matrix() if callable(matrix) else matrix).counts
    return np.array(counts() if callable(counts) else counts).reshape(K, K)


def hotcoco(paths: Paths) -> Array:
    from hotcoco import semantic

    evaluator = semantic.SemanticEval(K)
    references, predictions = (str(path.parent) for path in paths[0])
    evaluator.update_folders(references, predictions)
    evaluator.report()
    return np.asarray(evaluator.confusion(), np.int64)


def decoded(pair: tuple[Path, Path]) -> tuple[Array, Array]:
    if pair[0].suffix == ".gz":
        import nibabel

        first, second = (np.asanyarray(nibabel.load(path).dataobj) for path in pair)
        return first, second
    with Image.open(pair[0]) as first, Image.open(pair[1]) as second:
        return np.asarray(first), np.asarray(second)


def torchmetrics(paths: Paths) -> Array:
    import torch
    from torchmetrics.classification import MulticlassConfusionMatrix

    metric = MulticlassConfusionMatrix(K, ignore_index=VOID)
    for pair in paths:
        target, labels = map(torch.from_numpy, map(np.array, decoded(pair)))
        metric.update(labels, target.long())
    return np.asarray(metric.compute().numpy())


def monai(paths: Paths) -> Array:
    """Margins instead of a matrix: (K, 3) true positives, pixels of the target, predicted pixels."""
    import torch
    from monai.metrics.confusion_matrix import get_confusion_matrix
    from monai.networks.utils import one_hot

    total = np.zeros((K, 3), np.int64)
    for pair in paths:
        target, labels = (torch.from_numpy(each.astype(np.int64)) for each in decoded(pair))
        kept = target != VOID
        first, second = (one_hot(each[kept][None, None], K) for each in (target, labels))
        tp, fp, _, fn = get_confusion_matrix(second, first)[0].T.numpy().astype(np.int64)
        total += np.stack([tp, tp + fn, tp + fp], axis=1)
    return total


def scikit_learn(paths: Paths) -> Array:
    from sklearn.metrics import confusion_matrix

    total = np.zeros((K, K), np.int64)
    for pair in paths:
        target, labels = decoded(pair)
        kept = target != VOID
        total += confusion_matrix(target[kept], labels[kept], labels=range(K))
    return total


def nnunet(paths: Paths, *, classes: int = K) -> Array:
    """Margins, as `monai` gives them, by its own `compute_metrics`."""
    with quiet(), lent_modules("nnunetv2"):
        from nnunetv2.evaluation.evaluate_predictions import compute_metrics

    class Reader:
        """Reads as its readers do, without their further packages."""

        def read_seg(self, path: str) -> tuple[Array, dict[str, Any]]:
            return decoded((Path(path), Path(path)))[0][None], {}

    total = np.zeros((classes, 3), np.int64)
    for first, second in paths:
        found = compute_metrics(str(first), str(second), Reader(), list(range(classes)), VOID)["metrics"]
        total += [[each["TP"], each["n_ref"], each["n_pred"]] for each in found.values()]
    return total


def margins(counts: Array) -> Array:
    """(K, 3) of a matrix; what is margins already stays."""
    if counts.shape[1] == 3:
        return counts
    totals = class_totals(counts, task="multiclass")
    return np.stack([totals.tp, totals.target, totals.predicted], axis=1)


def measure(name: str, paths: Paths, work: dict[str, Counter], rounds: int) -> dict[str, Any]:
    """CPU milliseconds a pair, in turns, after a first turn in which all count the same."""
    first = {tool: margins(count(paths)) for tool, count in work.items()}
    different = [tool for tool, counts in first.items() if not np.array_equal(counts, first["segmeter"])]
    demand(not different, f"{name}: {different} count differently")
    times = race({tool: partial(count, paths) for tool, count in work.items()}, rounds)
    for tool, took in times.items():
        ratio = took.cpu_ms / times["segmeter"].cpu_ms
        print(f"{name:<24} {tool:<24} {took.cpu_ms / len(paths):9.2f} CPU ms a pair, {ratio:7.2f}x", flush=True)
    tools = {tool: {field: value / len(paths) for field, value in asdict(took).items()} for tool, took in times.items()}
    return {"pairs": len(paths), "rounds": rounds, "load": os.getloadavg()[0], "tools": tools}


def write_volumes(root: Path, count: int) -> Paths:
    import nibabel

    rng, paths = np.random.default_rng(0), []
    for role in ("references", "predictions"):
        (root / role).mkdir(parents=True)
    for i in range(count):
        pair = (root / "references" / f"{i:03}.nii.gz", root / "predictions" / f"{i:03}.nii.gz")
        if i >= DISTINCT_VOLUMES:
            for path in pair:
                os.link(path.with_name(f"{i % DISTINCT_VOLUMES:03}.nii.gz"), path)
        else:
            target = rng.integers(0, LABELS, tuple(n // 16 for n in VOLUME)).astype(np.uint8)
            for axis in range(3):
                target = target.repeat(16, axis)
            for path, map_ in zip(pair, (target, np.roll(target, 2, axis=2)), strict=True):
                nibabel.save(nibabel.Nifti1Image(map_.T, np.diag([0.7, 0.7, 2.0, 1.0])), path)
        paths.append(pair)
    return paths


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=1500)
    parser.add_argument("--volumes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--camvid", type=Path)
    given = parser.parse_args()
    gc.freeze()  # as the command `score` does, and for all of them
    rng = np.random.default_rng(0)
    sets = {kind: [draw(kind, rng) for _ in range(DISTINCT)] for kind in ("objects", "palette", "noise")}
    if given.camvid:
        sets |= {
            "camvid, 480x360": camvid(given.camvid, side=None),
            "camvid, 1024x1024": camvid(given.camvid, side=SIDE),
        }
    alone = partial(ours, resamples=0)
    rust: dict[str, Counter] = {"segmeter": ours, ALONE: alone, "vernier": vernier, "hotcoco": hotcoco}
    python = {"torchmetrics": torchmetrics, "MONAI": monai, "scikit-learn": scikit_learn, "nnU-Net": nnunet}
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, maps in sets.items():
            is_palette = name == "palette"
            paths = write_set(Path(folder) / name, maps, given.pairs, palette=is_palette)
            work = {tool: count for tool, count in rust.items() if not (is_palette and tool == "vernier")}
            rows[name] = measure(name, paths, work, given.rounds)  # vernier refuses palettes
        few = write_set(Path(folder) / "few", sets["objects"], FEW)
        rows["objects, few"] = measure("objects, few", few, {"segmeter": ours, **python}, min(given.rounds, 2))
        volumes = write_volumes(Path(folder) / "volumes", given.volumes)
        both: dict[str, Counter] = {
            "segmeter": lambda paths: ours(paths, classes=LABELS),
            "nnU-Net": lambda paths: nnunet(paths, classes=LABELS),
        }
        rows["volumes"] = measure("volumes 512x512x128", volumes, both, min(given.rounds, 3))
    shape = {"side": SIDE, "classes": K, "volume": VOLUME, "volume_classes": LABELS}
    write_record(RESULTS / "score_peers.json", circumstances(*PACKAGES) | shape | {"rows": rows})


if __name__ == "__main__":
    main()
