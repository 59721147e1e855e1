"""Measures the peak memory of predict, eval and score on images larger than memory, each in a process of its own.

    python benchmarks/slides.py [--parts memory,scored,equal,slide]

`memory`: predict from a tiled TIFF of 4096 columns, by height. The network has a few small layers and 19 classes, so
that the accumulators are what counts. `scored`: score of such masks, by height; all but the lowest are read in bands.
The peaks are the process's own (VmHWM). `equal`: label maps of an image that fits, predicted in bands and whole.
`slide`: predict, eval and score one slide of 30,000 x 30,000; `--lines` makes it lower, and then only predicts. Other
heights of `memory`, and parts that are not run, keep their record in results/slides.json.
"""

import argparse
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
import torch

from record import RESULTS, circumstances, write_record
from segmeter.data.files.array import STREAMED_PIXELS

WIDTH, HEIGHTS, MANY = 4096, (4096, 16384, 131072), 19
SLIDE, SLIDE_CLASSES = 30_000, 3
SCORED = (4096, 16_600, 65_600, 131_072)  # lines of masks; from the second on they are read in bands
SMALL = 3200  # side of an image that is predicted in bands and fits into memory


def small_model(folder: Path, classes: int) -> None:
    """Return a checkpoint of the smallest network that is registered, with random weights."""
    from segmeter.classes import ClassSpec
    from segmeter.data.classes_config import default_colours
    from segmeter.models.checkpoint import write_checkpoint
    from segmeter.models.config import ModelCard, UnetConfig
    from segmeter.models.segmenter import build_segmenter

    torch.manual_seed(0)
    spec = ClassSpec(
        task="multiclass",
        names=tuple(f"class_{k}" for k in range(classes)),
        colours=default_colours(classes),
        ignore_index=255,
    )
    model = UnetConfig(name="unet", encoder="tu-test_resnet", depth=3, decoder_channels=(8, 8, 4), weights=None)
    card = ModelCard(model=dict(model), spec=spec, in_channels=3, mean=(0.5,) * 3, std=(0.25,) * 3)
    write_checkpoint(
        folder, segmenter_state=build_segmenter(card).state_dict(), card=card, state=None, progress={"epoch": 0}
    )


def write_slide(path: Path, height: int, width: int, *, channels: int | None, classes: int = 256) -> None:
    """Return a tiled BigTIFF of smooth noise, tile by tile."""
    edge, rng = 512, np.random.default_rng(0)
    shape = (edge, edge) if channels is None else (edge, edge, channels)
    stock = [
        np.kron(
            rng.integers(0, classes, (edge // 16, edge // 16, *shape[2:])), np.ones((16, 16, *(1,) * len(shape[2:])))
        )
        for _ in range(8)
    ]
    stock = [tile.astype(np.uint8) for tile in stock]
    count = -(-height // edge) * -(-width // edge)
    tiles = (stock[int(k)] for k in rng.integers(0, len(stock), count))
    whole = (height, width) if channels is None else (height, width, channels)
    kind = "minisblack" if channels is None else "rgb"
    tifffile.imwrite(
        path, tiles, shape=whole, dtype=np.uint8, tile=(edge, edge), bigtiff=True, photometric=kind, compression="zlib"
    )


QUIET = ("report.html=false", "device=cpu", "inference=tiles", "inference.precision=float32")
MEASURED = """
import sys
from segmeter.cli.main import main
try:
    code = main(sys.argv[1:])
except SystemExit as error:
    code = error.code
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print("VmHWM", peak)
sys.exit(code)
"""


def peak_of(*arguments: str) -> dict[str, Any]:
    """Run a command in a process of its own; its seconds, those of the processor, and its peak of memory in MiB."""
    begun, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", MEASURED, *arguments], capture_output=True, text=True, check=False)
    peak = re.search(r"VmHWM (\d+)", done.stdout)
    if done.returncode or peak is None:
        raise SystemExit(f"{arguments}: {done.stdout[-2000:]}{done.stderr[-4000:]}")
    spent, seconds = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - begun
    cpu_s = spent.ru_utime + spent.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": round(seconds, 1), "cpu_s": round(cpu_s, 1), "peak_mb": round(int(peak[1]) / 1024, 1)}


def memory(heights: tuple[int, ...], known: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Peak of `predict` on TIFF files of one width; `known` are earlier rows, of which those of other heights stay."""
    rows = [row for row in known if row["height"] not in heights]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        small_model(root / "model", MANY)
        for height in heights:
            write_slide(root / "slide.tif", height, WIDTH, channels=3)
            found = peak_of(
                "predict", f"checkpoint={root / 'model'}", f"input={root / 'slide.tif'}", f"run.root={root / 'runs'}",
                *QUIET, "export.labels_format=tiff", "report.overlays=0", f"run.name=h{height}",
            )  # fmt: skip
            rows.append({"height": height, **found, "date": f"{datetime.now(UTC):%Y-%m-%dT%H:%M}"})
            print(rows[-1], flush=True)
    rows.sort(key=lambda row: row["height"])
    growth = max((row["peak_mb"] / rows[0]["peak_mb"] - 1 for row in rows), key=abs)
    return {
        "width": WIDTH,
        "classes": MANY,
        "network": "tu-test_resnet, depth 3",
        "rows": rows,
        "growth": round(growth, 4),
    }


def scored(heights: tuple[int, ...]) -> dict[str, Any]:
    """Peak of `score` on TIFF files of one width."""
    rows = []
    for height in heights:
        with tempfile.TemporaryDirectory() as folder:
            sides = [Path(folder) / name for name in ("predictions", "references")]
            for place in sides:
                place.mkdir()
                write_slide(place / "slide.tif", height, WIDTH, channels=None, classes=SLIDE_CLASSES)
            found = peak_of(
                "score", *(f"{place.name}={place}" for place in sides), f"data.num_classes={SLIDE_CLASSES}",
                "data.ignore_index=255", f"run.root={folder}/runs", "report.html=false",
            )  # fmt: skip
        rows.append({"height": height, **found})
        print(rows[-1], flush=True)
    peaks = [row["peak_mb"] for row in rows if row["height"] * WIDTH > STREAMED_PIXELS]
    return {"width": WIDTH, "classes": SLIDE_CLASSES, "rows": rows, "spread": round(max(peaks) / min(peaks) - 1, 4)}


def equal(side: int) -> dict[str, Any]:
    """Predict one image in bands, and whole, as its confidence asks for; compare the label maps."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        small_model(root / "model", SLIDE_CLASSES)
        write_slide(root / "slide.tif", side, side, channels=3)
        maps = []
        for name, flag in (("bands", "false"), ("whole", "true")):
            peak_of(
                "predict", f"checkpoint={root / 'model'}", f"input={root / 'slide.tif'}", f"run.root={root / name}",
                f"export.confidence={flag}", "export.labels_format=tiff", *QUIET,
            )  # fmt: skip
            maps.append(tifffile.imread(next(root.glob(f"{name}/predict/*/predictions/labels/slide.tif"))))
        pixels = [int((maps[0] == label).sum()) for label in range(SLIDE_CLASSES)]
        return {"side": side, "pixels_of_classes": pixels, "labels_equal": bool(np.array_equal(*maps))}


def slide(side: int, lines: int) -> dict[str, Any]:
    """Predict, evaluate and score one slide; only predict one that is lower than wide."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        small_model(root / "model", SLIDE_CLASSES)
        for name in ("images", "masks", "predictions"):
            (root / name).mkdir()
        write_slide(root / "images" / "slide.tif", lines, side, channels=3)
        model, runs = f"checkpoint={root / 'model'}", f"run.root={root / 'runs'}"
        found: dict[str, Any] = {"side": side, "lines": lines, "classes": SLIDE_CLASSES}
        found["network"] = "tu-test_resnet, depth 3"
        found["predict"] = peak_of("predict", model, f"input={root / 'images' / 'slide.tif'}", runs, *QUIET)
        print(found["predict"], flush=True)
        if lines < side:
            return found
        write_slide(root / "masks" / "slide.tif", side, side, channels=None, classes=SLIDE_CLASSES)
        names = ",".join(f"class_{k}" for k in range(SLIDE_CLASSES))
        written = next((root / "runs" / "predict").glob("*/predictions/labels/slide.tif"))
        written.rename(root / "predictions" / "slide.tif")
        data = ("data=folder", f"data.root={root}", "data.split=all", f"data.classes=[{names}]", "data.lists=null")
        found["eval"] = peak_of("eval", model, *data, runs, *QUIET)
        print(found["eval"], flush=True)
        found["score"] = peak_of(
            "score", f"predictions={root / 'predictions'}", f"references={root / 'masks'}", f"data.classes=[{names}]",
            "data.ignore_index=255", runs, "report.html=false",
        )  # fmt: skip
        print(found["score"], flush=True)
        counts = [
            json.loads(next((root / "runs" / kind).glob("*/metrics.json")).read_bytes()) for kind in ("eval", "score")
        ]
        found["eval_and_score_count_alike"] = counts[0]["confusion_matrix"] == counts[1]["confusion_matrix"]
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="memory,scored,equal,slide", help="of memory, scored, equal, slide")
    parser.add_argument("--heights", type=int, nargs="+", default=list(HEIGHTS))
    parser.add_argument("--side", type=int, default=SLIDE, help="of the slide")
    parser.add_argument("--lines", type=int, help="of the slide, if it is lower than wide")
    parser.add_argument("--output", type=Path, default=RESULTS / "slides.json", help="where the JSON goes")
    chosen = parser.parse_args()
    path = chosen.output
    record = json.loads(path.read_bytes()) if path.is_file() else {}
    works: dict[str, Callable[[], dict[str, Any]]] = {
        "memory": lambda: memory(tuple(chosen.heights), record.get("memory", {}).get("rows", ())),
        "scored": lambda: scored(SCORED),
        "equal": lambda: equal(SMALL),
        "slide": lambda: slide(chosen.side, chosen.lines or chosen.side),
    }
    for name in chosen.parts.split(","):
        record[name] = {**works[name](), "circumstances": circumstances()}
        write_record(path, record)
    if found := record.get("memory"):
        met = "met" if abs(found["growth"]) <= 0.05 else "NOT MET"
        print(f"{met}: peak of predict from the least to the most rows {found['growth']:+.1%} (within 5 %)")
    if found := record.get("scored"):
        met = "met" if found["spread"] <= 0.05 else "NOT MET"
        print(f"{met}: peaks of score in bands differ by {found['spread']:.1%} (within 5 %)")
    if found := record.get("equal"):
        print(f"{'met' if found['labels_equal'] else 'NOT MET'}: labels in bands are those of the whole image")
    if found := record.get("slide"):
        peak = max(found[kind]["peak_mb"] for kind in ("predict", "eval", "score") if kind in found)
        met = "met" if peak < 2048 else "NOT MET"
        lines = found.get("lines", found["side"])
        print(f"{met}: slide of {lines} x {found['side']}, peak {peak / 1024:.2f} GiB (under 2 GiB)")


if __name__ == "__main__":
    main()
