"""Label maps to PNG: segmeter's encoder against Pillow's default; and the exported ONNX model against segmeter's own.

    python benchmarks/export.py [--side 2048] [--rounds 9] [--data ../shared/data]

Each map is encoded, and each image labelled, in turn by both; the median of the processor time counts, so that other
work on the machine matters little. Values are checked equal. Writes benchmarks/results/export.json.
"""

import argparse
import io
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

from record import RESULTS, circumstances, write_record
from segmeter.bridge import labels_to_numpy
from segmeter.classes import ClassSpec
from segmeter.deploy import onnx_file
from segmeter.deploy.onnx_file import trace
from segmeter.export.labels import encode_labels_png
from segmeter.inference import InferenceConfig, Predictor
from segmeter.models import ModelCard, build_segmenter
from segmeter.models.card import default_normalisation

CLASSES = 21  # Pillow wraps values beyond its palette, so the palette must hold them all
Labels = NDArray[np.uint8]


def colours(labels: Labels) -> list[tuple[int, int, int]]:
    return [(12 * k, 255 - 12 * k, 40) for k in range(12 if labels.max() < 12 else CLASSES)]


def pillow(labels: Labels) -> bytes:
    content = io.BytesIO()
    image = Image.fromarray(labels)
    image.putpalette([part for colour in colours(labels) for part in colour])
    image.save(content, "PNG")
    return content.getvalue()


def segmeter(labels: Labels) -> bytes:
    return encode_labels_png(labels, colours(labels))


def regions(side: int, grain: int, count: int, seed: int) -> Labels:
    """Smooth random regions of about `grain` pixels."""
    rng = np.random.default_rng(seed)
    small = rng.standard_normal((count, side // grain + 2, side // grain + 2))
    fields = [ndimage.zoom(field, grain, order=3)[:side, :side] for field in small]
    return np.argmax(fields, axis=0).astype(np.uint8)


def label_maps(side: int, data: Path) -> dict[str, Labels]:
    maps = {
        "two classes, large regions": regions(side, 64, 2, 0),
        "8 classes, large regions": regions(side, 64, 8, 1),
        "8 classes, small regions": regions(side, 8, 8, 2),
        f"{CLASSES} classes, large regions": regions(side, 64, CLASSES, 3),
    }
    rng = np.random.default_rng(4)
    maps["8 classes, large rectangles"] = np.kron(
        rng.integers(0, 8, (16, 16)), np.ones((side // 16, side // 16))
    ).astype(np.uint8)
    speckled = maps["8 classes, large regions"].copy()
    dots = rng.random(speckled.shape) < 0.01
    speckled[dots] = rng.integers(0, 8, int(dots.sum()))
    maps["8 classes, 1 % of pixels random"] = speckled
    masks = sorted((data / "camvid" / "masks").glob("*.png"))[: -(-side // 360) * -(-side // 480)]
    if masks:
        rows = -(-side // 360)
        tiles = [np.asarray(Image.open(path)) for path in masks]
        columns = len(tiles) // rows
        stitched = np.vstack([np.hstack(tiles[row * columns : (row + 1) * columns]) for row in range(rows)])
        maps["road scenes side by side"] = np.ascontiguousarray(stitched[:side, :side])
        enlarged = Image.open(masks[0]).resize((side, side), Image.Resampling.NEAREST)
        maps["one road scene enlarged"] = np.asarray(enlarged)
    return maps


def compare(labels: Labels, rounds: int) -> dict[str, float]:
    encoders: dict[str, Callable[[Labels], bytes]] = {"pillow": pillow, "segmeter": segmeter}
    times: dict[str, list[float]] = {name: [] for name in encoders}
    sizes = {}
    for _ in range(rounds):
        for name, encode in encoders.items():
            start = time.process_time()
            content = encode(labels)
            times[name].append(time.process_time() - start)
            sizes[name] = len(content)
            if not np.array_equal(np.asarray(Image.open(io.BytesIO(content))), labels):
                raise SystemExit(f"{name} changed a value")
    medians = {name: 1000 * statistics.median(values) for name, values in times.items()}
    return {
        "pillow_ms": round(medians["pillow"], 1),
        "segmeter_ms": round(medians["segmeter"], 1),
        "faster": round(medians["pillow"] / medians["segmeter"], 2),
        "size": round(sizes["segmeter"] / sizes["pillow"], 3),
    }


def compare_models(rounds: int, side: int = 256) -> dict[str, float]:
    """U-Net with ResNet-18, untrained, uint8 in and labels out, one image at a time, float32 on the CPU."""
    spec = ClassSpec(task="multiclass", names=("a", "b", "c", "d"), colours=((0, 0, 0),) * 4)
    mean, std = default_normalisation(3)
    network = {"name": "unet", "encoder": "resnet18"}
    segmenter = build_segmenter(ModelCard(model=network, spec=spec, in_channels=3, mean=mean, std=std)).eval()
    exported = onnx_file.OnnxModel(onnx_file.encode(trace(segmenter, threshold=0.5, dtype="uint8").program, {}))
    predictor = Predictor(segmenter, InferenceConfig(precision="float32"), torch.device("cpu"))
    image = np.random.default_rng(0).integers(0, 256, (side, side, 3), dtype=np.uint8)
    runs: dict[str, Callable[[], NDArray[np.uint8]]] = {
        "segmeter": lambda: labels_to_numpy(predictor.logits([image]), task="multiclass", num_classes=4),
        "onnx": lambda: exported(image[None]),
    }
    differing = int(np.count_nonzero(runs["segmeter"]() != runs["onnx"]()))
    if differing > 1e-4 * image[..., 0].size:
        raise SystemExit(f"{differing} labels differ")
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.process_time()
            run()
            times[name].append(time.process_time() - start)
    speed = {name: 1 / statistics.median(values) for name, values in times.items()}
    return {
        "side": side,
        "differing_labels": differing,
        "segmeter_images_per_cpu_second": round(speed["segmeter"], 2),
        "onnx_images_per_cpu_second": round(speed["onnx"], 2),
        "onnx_against_segmeter": round(speed["onnx"] / speed["segmeter"], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--side", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared" / "data")
    arguments = parser.parse_args()
    rows = []
    for name, labels in label_maps(arguments.side, arguments.data).items():
        rows.append({"map": name, "side": arguments.side, **compare(labels, arguments.rounds)})
        print(json.dumps(rows[-1]), flush=True)
    models = compare_models(arguments.rounds)
    print(json.dumps(models))
    content = {"png": rows, "bar": 3, "models": models, "rounds": arguments.rounds, "clock": "processor time"}
    write_record(RESULTS / "export.json", {**content, **circumstances("pillow", "imagecodecs", "onnxruntime", "torch")})


if __name__ == "__main__":
    main()
