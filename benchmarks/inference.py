"""Times inference against MONAI, a whole evaluation against its forward passes, and post-processing on all cores.

    python benchmarks/inference.py                  window, eval and steps: under ten minutes on two idle cores

`window`: a U-Net with a ResNet-18 encoder, float32, 4 classes. Both sides have the same weights, batches and tiles.
The tiles overlap by half, so that both lay them out alike. Both take the plain mean of tiles, as MONAI bounds the
weights of its Gaussian from below. MONAI runs the network as segmentation-models-pytorch builds it. With `--folded` it
also runs segmeter's own form, which separates the window's share from the network's. Labels are compared by pixel.
`eval`: a whole evaluation with labels written and the default metrics, against the forward passes of the same images.
`steps`: post-processing of several images on all cores, in threads as eval does it and in processes, against one core.

Parts that are not run keep their record in benchmarks/results/inference.json.
"""

import argparse
import json
import multiprocessing
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from export import regions
from harness import Time, demand, race
from record import RESULTS, circumstances, write_record
from segmeter.parallel import map_in_threads
from segmeter.threads import count_cores

TILE, OVERLAP, BATCH, CLASSES = 512, 0.5, 4, 4


def times_as_fast(times: dict[str, Time], slow: str, fast: str) -> dict[str, float]:
    """Return the ratio by the clock and by the processor."""
    ours, theirs = times[fast], times[slow]
    return {"wall": theirs.wall_ms / ours.wall_ms, "cpu": theirs.cpu_ms / ours.cpu_ms}


def plain(times: dict[str, Time]) -> dict[str, dict[str, float]]:
    """Return the times as the record has them."""
    return {name: asdict(time) for name, time in times.items()}


def unet(classes: int = CLASSES) -> Any:
    from segmeter.classes import ClassSpec
    from segmeter.data.classes_config import default_colours
    from segmeter.models.config import ModelCard, UnetConfig
    from segmeter.models.segmenter import build_segmenter

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
    from segmeter.inference.device import without_tf32
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

    network = smp.Unet("resnet18", encoder_weights=None, in_channels=3, classes=CLASSES).eval()
    network.load_state_dict(segmenter.network.state_dict())
    network.to(device)
    peers = {"monai, plain network": lambda: monai(lambda tiles: network((tiles - 0.5) / 0.25))}
    if folded:
        peers["monai, segmeter's network"] = lambda: monai(segmenter)
    runs = {name: keep(name, work) for name, work in {"segmeter": ours, **peers}.items()}
    times = race(runs, rounds)
    differ = {name: int(np.count_nonzero(taken["segmeter"] != taken[name])) for name in peers}
    ratios = {name: times_as_fast(times, name, "segmeter") for name in peers}
    return {
        "side": side,
        "rounds": rounds,
        "pixels_that_differ": differ,
        "times": plain(times),
        "times_as_fast": ratios,
    }


def evaluation(cases: int, side: int, rounds: int, *, device: torch.device) -> dict[str, Any]:
    """Time a whole evaluation against the forward passes of its images."""
    from segmeter.classes import ClassSpec
    from segmeter.data.files.geometry import NOWHERE, Geometry
    from segmeter.data.sample import Sample
    from segmeter.evaluation.evaluate import evaluate
    from segmeter.evaluation.predicted import CaseRun
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

        def locate(self, case_id: str) -> Geometry:
            return NOWHERE

    segmenter = unet()
    config = InferenceConfig(precision="float32", batch_size=BATCH)
    data = Cases(segmenter.card.spec)
    predictor = Predictor(segmenter, config, device)

    def whole() -> None:
        with tempfile.TemporaryDirectory() as folder:
            run = CaseRun(
                predictor=predictor,
                dataset=data,  # type: ignore[arg-type]
                export=ExportConfig(),
                postprocess=PostprocessConfig(),
                folder=Path(folder) / "run",
            )
            evaluate(run, metrics=MetricsConfig())

    def forward() -> None:
        for start in range(0, cases, BATCH):
            predictor.logits(list(data.images[start : start + BATCH]))
        if device.type == "cuda":
            torch.cuda.synchronize()

    times = race({"forward": forward, "eval": whole}, rounds)
    share = times_as_fast(times, "forward", "eval")
    counts = {"cases": cases, "side": side, "rounds": rounds, "device": device.type}
    return {**counts, "times": plain(times), "throughput_of_forward_alone": share}


STEPS = ("remove_small_objects", "fill_holes", "watershed")


def clean(labels: np.ndarray) -> int:
    """Post-process one image; return what it found, so that little crosses between processes."""
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
        times = race(works, rounds)
    demand(found["one"] == found["threads"] == found["processes"], "results differ")
    gain = {name: times["one"].wall_ms / times[name].wall_ms for name in ("threads", "processes")}
    gain["counting"] = times["counting on one"].wall_ms / times["counting in processes"].wall_ms
    return {
        "steps": STEPS,
        "images": images,
        "side": side,
        "cores": cores,
        "times": plain(times),
        "times_as_fast": gain,
    }


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
    if found := record.get("steps"):
        gain, bar = found["times_as_fast"]["threads"], 0.9 * found["cores"]
        rows.append((f"post-processing on {found['cores']} cores", f"{gain:.2f}x ({bar:.1f}x)", gain >= bar))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="window,eval,steps", help="of window, eval, steps")
    parser.add_argument("--side", type=int, default=4096, help="of the image of `window`")
    parser.add_argument("--folded", action="store_true", help="`window`: MONAI runs segmeter's form of the network too")
    parser.add_argument("--cases", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=1, help="of `window`; the others, which are short, take 2 more")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"], help="of `window` and `eval`")
    parser.add_argument("--output", type=Path, default=RESULTS / "inference.json", help="where the JSON goes")
    chosen = parser.parse_args()
    device = torch.device(chosen.device)
    works: dict[str, Callable[[], dict[str, Any]]] = {
        "window": lambda: window(chosen.side, chosen.rounds, device, folded=chosen.folded),
        "eval": lambda: evaluation(chosen.cases, 512, chosen.rounds + 2, device=device),
        "steps": lambda: steps(8, 2048, chosen.rounds + 2),
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
