"""Every row of the tables of inference and export: speed against MONAI and others, and peaks of memory.

    python benchmarks/inference.py                  window, eval, png and steps: under ten minutes on two idle cores
    python benchmarks/inference.py --parts memory   predict of 4096 columns and up to 131,072 rows
    python benchmarks/inference.py --parts slide    a slide of 30,000 x 30,000: predict, eval and score

`window`: a U-Net with a ResNet-18 encoder, float32, 4 classes; the same weights, tiles (of 512 that overlap by half, so
that both lay them out alike) and batches, and the plain mean of tiles, as MONAI bounds the weights of its Gaussian from
below. MONAI runs the network as segmentation-models-pytorch builds it; with `--folded` also segmeter's own form of it,
so that what the window and what the network contributes can be told apart. Labels are compared pixel by pixel. `eval`:
a whole evaluation with labels written and the default metrics, against the forward passes of the same images alone.
`png`: label maps of 2048 x 2048 against Pillow's default (`benchmarks/export.py` has more). `steps`: post-processing of
several images on all cores, in threads as eval does it and in processes, against one core.
`memory`: predict from a tiled TIFF of 4096 columns, in a process of its own per height, with a network of a few small
layers, as the accumulators are what grows or does not; 19 classes. The peak is the process's own (VmHWM). `slide` does
so for the three commands.

Runs are interleaved. Wall and processor time are both reported: on a machine that does other work only the processor
time compares, and `steps` says nothing there. Results go to benchmarks/results/inference.json; parts that are not run,
and other heights of `memory`, keep what is there.
"""

import argparse
import json
import multiprocessing
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import tifffile
import torch

from export import compare, label_maps, regions
from record import RESULTS, circumstances, write_record
from segmeter.parallel import map_in_threads
from segmeter.threads import count_cores

TILE, OVERLAP, BATCH, CLASSES = 512, 0.5, 4, 4
WIDTH, HEIGHTS, MANY = 4096, (4096, 16384, 131072), 19
SLIDE, SLIDE_CLASSES = 30_000, 3


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def interleaved(works: dict[str, Callable[[], Any]], rounds: int) -> dict[str, dict[str, float]]:
    """Median seconds of each, in turns."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            found[name].append(timed(work))
    return {
        name: {"wall": statistics.median(w for w, _ in times), "cpu": statistics.median(c for _, c in times)}
        for name, times in found.items()
    }


def unet(classes: int = CLASSES) -> Any:
    from segmeter.classes import ClassSpec
    from segmeter.data.known_classes import default_colours
    from segmeter.models.build import build_segmenter
    from segmeter.models.card import ModelCard
    from segmeter.models.config import UnetConfig

    torch.manual_seed(0)
    names = tuple(f"class_{k}" for k in range(classes))
    spec = ClassSpec(task="multiclass", names=names, colours=default_colours(classes))
    card = ModelCard(
        model=dict(UnetConfig(name="unet", encoder="resnet18", weights=None)),
        spec=spec,
        in_channels=3,
        mean=(0.5,) * 3,
        std=(0.25,) * 3,
    )
    return build_segmenter(card).eval()


def window(side: int, rounds: int, device: torch.device, *, folded: bool) -> dict[str, Any]:
    """Labels of one image of `side` x `side`, from uint8 on the host to uint8 on the host."""
    import segmentation_models_pytorch as smp
    from monai.inferers import sliding_window_inference

    from segmeter.data.sample import Sample
    from segmeter.inference.config import InferenceConfig
    from segmeter.inference.precision import without_tf32
    from segmeter.inference.predictor import Predictor

    segmenter = unet()
    config = InferenceConfig(tile=TILE, overlap=OVERLAP, tile_batch=BATCH, blend="uniform", precision="float32")
    predictor = Predictor(segmenter, config, device)
    image = np.random.default_rng(0).integers(0, 256, (side, side, 3), dtype=np.uint8)
    sample = Sample(case_id="a", image=image, target=None)

    def ours() -> np.ndarray:
        return next(predictor.predict([sample])).labels

    def monai(network: Callable[[torch.Tensor], torch.Tensor]) -> np.ndarray:
        tensor = torch.from_numpy(image).to(device).permute(2, 0, 1)[None].float() / 255
        with torch.inference_mode(), without_tf32():  # float32 on both sides
            logits = sliding_window_inference(tensor, (TILE, TILE), BATCH, network, overlap=OVERLAP)
            return logits.argmax(1)[0].to(torch.uint8).cpu().numpy()

    taken: dict[str, np.ndarray] = {}

    def keep(name: str, work: Callable[[], np.ndarray]) -> Callable[[], None]:
        return lambda: taken.update({name: work()})

    plain = smp.Unet("resnet18", encoder_weights=None, in_channels=3, classes=CLASSES).eval()
    plain.load_state_dict(segmenter.network.state_dict())
    plain.to(device)
    peers = {"monai, plain network": lambda: monai(lambda tiles: plain((tiles - 0.5) / 0.25))}
    if folded:
        peers["monai, segmeter's network"] = lambda: monai(segmenter)
    predictor.logits([image[:TILE, :TILE]])  # libraries choose their kernels at the first pass
    plain(torch.zeros(1, 3, TILE, TILE, device=device))
    runs = {name: keep(name, work) for name, work in {"segmeter": ours, **peers}.items()}
    times = interleaved(runs, rounds)
    differ = {name: int(np.count_nonzero(taken["segmeter"] != taken[name])) for name in peers}
    ratios = {name: {kind: times[name][kind] / times["segmeter"][kind] for kind in ("wall", "cpu")} for name in peers}
    return {"side": side, "rounds": rounds, "pixels_that_differ": differ, "seconds": times, "times_as_fast": ratios}


def evaluation(cases: int, side: int, rounds: int, *, device: torch.device) -> dict[str, Any]:
    """A whole evaluation against the forward passes of its images."""
    from segmeter.classes import ClassSpec
    from segmeter.data.location import UNKNOWN, Location
    from segmeter.data.sample import Sample
    from segmeter.evaluation.evaluate import Evaluation, evaluate
    from segmeter.export.config import ExportConfig
    from segmeter.inference.config import InferenceConfig
    from segmeter.inference.predictor import Predictor
    from segmeter.metrics.config.metrics import MetricsConfig
    from segmeter.postprocess.config import PostprocessConfig

    class Cases:
        """Images in memory, so that reading files is not measured."""

        def __init__(self, spec: ClassSpec) -> None:
            rng = np.random.default_rng(0)
            self.spec = spec
            self.images = rng.integers(0, 256, (cases, side, side, 3), dtype=np.uint8)
            self.targets = rng.integers(0, CLASSES, (cases, side, side)).astype(np.uint8)
            self.case_ids = tuple(f"case{i:03d}" for i in range(cases))

        def __len__(self) -> int:
            return cases

        def __getitem__(self, index: int) -> Sample:
            return Sample(case_id=self.case_ids[index], image=self.images[index], target=self.targets[index])

        dealt: ClassVar[dict[str, str]] = {}
        split = "all"

        def streamed_cases(self) -> frozenset[int]:
            return frozenset()

        def locate(self, case_id: str) -> Location:
            return UNKNOWN

    segmenter = unet()
    config = InferenceConfig(precision="float32", batch_size=BATCH)
    data = Cases(segmenter.card.spec)
    predictor = Predictor(segmenter, config, device)

    def whole() -> None:
        with tempfile.TemporaryDirectory() as folder:
            evaluate(
                Evaluation(
                    predictor=predictor,
                    dataset=data,  # type: ignore[arg-type]
                    loss=None,
                    export=ExportConfig(),
                    postprocess=PostprocessConfig(),
                    metrics=MetricsConfig(),
                    folder=Path(folder) / "run",
                )
            )

    def forward() -> None:
        for start in range(0, cases, BATCH):
            predictor.logits(list(data.images[start : start + BATCH]))
        if device.type == "cuda":
            torch.cuda.synchronize()

    whole()
    times = interleaved({"forward": forward, "eval": whole}, rounds)
    share = {kind: times["forward"][kind] / times["eval"][kind] for kind in ("wall", "cpu")}
    counts = {"cases": cases, "side": side, "rounds": rounds, "device": device.type}
    return {**counts, "seconds": times, "throughput_of_forward_alone": share}


def png(rounds: int) -> dict[str, Any]:
    """Milliseconds of the processor per label map."""
    maps = label_maps(2048, Path(__file__).parents[2] / "shared" / "data")
    rows = {name: compare(labels, rounds) for name, labels in maps.items()}
    return {"side": 2048, "maps": rows, "slowest": min(row["faster"] for row in rows.values())}


STEPS = ("remove_small_objects", "fill_holes", "watershed")


def clean(labels: np.ndarray) -> int:
    """The post-processing of one image; returns what it found, so that little crosses between processes."""
    from segmeter.classes import ClassSpec
    from segmeter.postprocess.config import STEPS as BY_NAME
    from segmeter.postprocess.pipeline import run_steps

    spec = ClassSpec(task="binary", names=("ground", "cell"), colours=((0, 0, 0), (255, 0, 0)))
    cleaned = run_steps(labels, [BY_NAME.schema(name)(name=name) for name in STEPS], spec)
    return 0 if cleaned.instances is None else int(cleaned.instances.max())


def count(_: object) -> int:
    """Work that touches no memory: what the machine itself gains from its cores."""
    return sum(range(20_000_000))


def steps(images: int, side: int, rounds: int) -> dict[str, Any]:
    """Images per second of post-processing on all cores against one, beside what mere counting gains there."""
    cores, found = count_cores(), dict[str, list[int]]()
    maps = [regions(side, 24, 2, seed) for seed in range(images)]

    def once(name: str, work: Callable[[], Any]) -> Callable[[], None]:
        return lambda: found.update({name: list(work())})

    with ProcessPoolExecutor(cores, mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(clean, maps[:1] * 4 * cores))  # processes start and import
        works = {
            "one": once("one", lambda: map(clean, maps)),
            "threads": once("threads", lambda: map_in_threads(clean, maps, threads=cores)),
            "processes": once("processes", lambda: pool.map(clean, maps)),
            "counting on one": once("counting", lambda: map(count, maps)),
            "counting in processes": once("counting", lambda: pool.map(count, maps)),
        }
        for work in works.values():
            work()
        times = interleaved(works, rounds)
    if not found["one"] == found["threads"] == found["processes"]:
        raise SystemExit("results differ")
    gain = {name: times["one"]["wall"] / times[name]["wall"] for name in ("threads", "processes")}
    gain["counting"] = times["counting on one"]["wall"] / times["counting in processes"]["wall"]
    return {"steps": STEPS, "images": images, "side": side, "cores": cores, "seconds": times, "times_as_fast": gain}


def small_model(folder: Path, classes: int) -> None:
    """A checkpoint of the smallest network that is registered, with random weights."""
    from segmeter.classes import ClassSpec
    from segmeter.data.known_classes import default_colours
    from segmeter.models.build import build_segmenter
    from segmeter.models.card import ModelCard
    from segmeter.models.checkpoints.checkpoint import write_checkpoint
    from segmeter.models.config import UnetConfig

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
    """A tiled BigTIFF of smooth noise, tile by tile."""
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
    """Run a command in a process of its own; its seconds, and its peak of memory in MB."""
    begun = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", MEASURED, *arguments], capture_output=True, text=True, check=False)
    peak = re.search(r"VmHWM (\d+)", done.stdout)
    if done.returncode or peak is None:
        raise SystemExit(f"{arguments}: {done.stdout[-2000:]}{done.stderr[-4000:]}")
    return {"seconds": round(time.perf_counter() - begun, 1), "peak_mb": round(int(peak[1]) / 1024, 1)}


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
                "inference=tiles", "inference.precision=float32", "export.labels_format=tiff",
                "report.html=false", "report.overlays=0", f"run.name=h{height}", "device=cpu",
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


def slide(side: int) -> dict[str, Any]:
    """Predict, evaluate and score one slide."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        small_model(root / "model", SLIDE_CLASSES)
        for name in ("images", "masks", "predictions"):
            (root / name).mkdir()
        write_slide(root / "images" / "slide.tif", side, side, channels=3)
        write_slide(root / "masks" / "slide.tif", side, side, channels=None, classes=SLIDE_CLASSES)
        model, runs = f"checkpoint={root / 'model'}", f"run.root={root / 'runs'}"
        quiet = ("report.html=false", "device=cpu", "inference=tiles", "inference.precision=float32")
        names = ",".join(f"class_{k}" for k in range(SLIDE_CLASSES))
        found: dict[str, Any] = {"side": side, "classes": SLIDE_CLASSES, "network": "tu-test_resnet, depth 3"}
        found["predict"] = peak_of("predict", model, f"input={root / 'images' / 'slide.tif'}", runs, *quiet)
        print(found["predict"], flush=True)
        written = next((root / "runs" / "predict").glob("*/predictions/labels/slide.tif"))
        written.rename(root / "predictions" / "slide.tif")
        data = ("data=folder", f"data.root={root}", "data.split=all", f"data.classes=[{names}]", "data.lists=null")
        found["eval"] = peak_of("eval", model, *data, runs, *quiet)
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


def rows_of(record: dict[str, Any]) -> list[tuple[str, str, bool]]:
    """Each row of the tables that was measured: what, the measured value with its bar, and whether that is met."""
    rows: list[tuple[str, str, bool]] = []
    if found := record.get("window"):
        faster, differ = (
            found["times_as_fast"]["monai, plain network"]["wall"],
            max(found["pixels_that_differ"].values()),
        )
        what = f"sliding window, {found['side']} x {found['side']}, against MONAI"
        rows.append((what, f"{faster:.2f}x, {differ} labels differ (1.5x, equal)", faster >= 1.5 and not differ))
    if found := record.get("eval"):
        share, bar = found["throughput_of_forward_alone"]["wall"], 0.95 if found.get("device") == "cuda" else 0.9
        rows.append(("eval with labels and metrics against forward alone", f"{share:.3f} ({bar})", share >= bar))
    if found := record.get("png"):
        slowest = found["slowest"]
        rows.append(("label PNG, 2048 x 2048, against Pillow", f"{slowest:.1f}x (1.5x)", slowest >= 1.5))
    if found := record.get("steps"):
        gain, bar = found["times_as_fast"]["threads"], 0.9 * found["cores"]
        rows.append((f"post-processing on {found['cores']} cores", f"{gain:.2f}x ({bar:.1f}x)", gain >= bar))
    if found := record.get("memory"):
        last = found["rows"][-1]["height"]
        what = f"peak of predict, {found['rows'][0]['height']} to {last} rows"
        rows.append((what, f"{found['growth']:+.1%} (within 5 %)", abs(found["growth"]) <= 0.05))
    if found := record.get("slide"):
        peak = max(found[kind]["peak_mb"] for kind in ("predict", "eval", "score"))
        what = f"slide of {found['side']} x {found['side']}: predict, eval, score"
        rows.append((what, f"{peak / 1024:.2f} GiB (under 2 GiB)", peak < 2048))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="window,eval,png,steps", help="of window, eval, png, steps, memory, slide")
    parser.add_argument("--side", type=int, default=4096, help="of the image of `window`")
    parser.add_argument("--folded", action="store_true", help="`window`: MONAI runs segmeter's form of the network too")
    parser.add_argument("--cases", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=1, help="of `window`; the others, which are short, take 3 more")
    parser.add_argument("--heights", type=int, nargs="+", default=list(HEIGHTS))
    parser.add_argument("--slide-side", type=int, default=SLIDE)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"], help="of `window` and `eval`")
    parser.add_argument("--output", type=Path, default=RESULTS / "inference.json", help="where the JSON goes")
    chosen = parser.parse_args()
    device = torch.device(chosen.device)
    works: dict[str, Callable[[], dict[str, Any]]] = {
        "window": lambda: window(chosen.side, chosen.rounds, device, folded=chosen.folded),
        "eval": lambda: evaluation(chosen.cases, 512, chosen.rounds + 2, device=device),
        "png": lambda: png(chosen.rounds + 4),
        "steps": lambda: steps(8, 2048, chosen.rounds + 2),
        "memory": lambda: memory(tuple(chosen.heights), record.get("memory", {}).get("rows", ())),
        "slide": lambda: slide(chosen.slide_side),
    }
    path = chosen.output
    record = json.loads(path.read_bytes()) if path.is_file() else {}
    for name in chosen.parts.split(","):
        found = works[name]()
        record[name] = {**found, "circumstances": circumstances("monai"), "threads": torch.get_num_threads()}
        print(json.dumps(found, indent=2), flush=True)
        write_record(path, record)
    for what, measured, met in rows_of(record):
        print(f"{'met    ' if met else 'NOT MET'}  {what}: {measured}")


if __name__ == "__main__":
    main()
