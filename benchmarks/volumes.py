"""Trains on planes of drawn volumes beside a plain loop over the same planes, and measures the memory that planes take.

    python benchmarks/volumes.py --work FOLDER
    python benchmarks/volumes.py --work FOLDER --memory

Both train the same U-Net with the same optimizer, in batches of planes that are drawn alike. `segmeter train` has its
own loss, schedule and augmentation for `--steps`. A plain loop (focal loss and Dice of segmentation-models-pytorch, a
constant learning rate, no augmentation) has as many seconds of the processor. Start, checks, validation and reports
count as ours. Each gets one thread, and each seed has volumes of its own. The plain loop runs a second time with a
third of the learning rate, as ours may not be its best. `--memory` instead measures the largest resident memory of
`predict` and `eval`, each in a process of its own.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import segmentation_models_pytorch as smp
import torch
from numpy.typing import NDArray
from scipy import ndimage

from record import RESULTS, circumstances, update_record
from segmeter.data.config import FolderConfig
from segmeter.data.folder import build_folder
from segmeter.data.planes import VolumeSet
from segmeter.training.data.augment_config import AugmentConfig
from segmeter.training.data.cases import PlaneCases
from segmeter.training.data.sampling import SampleSource

CLASSES = ("background", "organ", "lesion")
SHAPE, EDGES, SPLITS = (48, 48, 12), (1.0, 1.0, 4.0), {"train": 24, "val": 2, "test": 6}
BATCH, MEAN, STD = 8, 60.0, 160.0
DEPTH, DECODER = 3, (32, 16, 8)
RATE, DECAY = 0.003, 0.01  # the rate that training=auto takes for random weights, and AdamW's own decay
EDGE, DEPTHS = 192, (40, 400)  # of the volumes whose memory is measured
DATA = ["data=folder", "data.planes=k", f"data.classes=[{','.join(CLASSES)}]", "data.in_channels=1", "data.lists=."]


def draw(number: int) -> tuple[NDArray[np.int16], NDArray[np.uint8]]:
    """Return a bent organ with a few lesions that hardly differ from it, under noise and uneven light, in (i, j, k)."""
    rng = np.random.default_rng(number)

    def cloud(width: float) -> NDArray[np.float64]:
        smooth = ndimage.gaussian_filter(rng.normal(size=SHAPE), np.array([width, width, width / 4]))
        return smooth / smooth.std()

    centre = np.array(SHAPE) * rng.uniform(0.4, 0.6, 3)
    far = (((np.indices(SHAPE) - centre[:, None, None, None]) / np.array([17, 14, 4])[:, None, None, None]) ** 2).sum(0)
    organ = far + 0.25 * cloud(6) < 1
    mask = organ.astype(np.uint8) + (organ & (cloud(3) > 1.2))
    image = np.array([0, 120, 210])[mask] + 40 * cloud(16) + rng.normal(0, 40, SHAPE)
    return image.round().astype(np.int16), mask


def write_cases(root: Path, seed: int) -> None:
    affine, first = np.diag((*EDGES, 1.0)), 100 * seed
    for folder in ("images", "masks"):
        (root / folder).mkdir(parents=True)
    for split, count in SPLITS.items():
        names = [f"{number:03d}" for number in range(first, first + count)]
        (root / f"{split}.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
        for name in names:
            for folder, pixels in zip(("images", "masks"), draw(int(name)), strict=True):
                nibabel.save(nibabel.Nifti1Image(pixels, affine), root / folder / f"{name}.nii.gz")
        first += count


def segmeter(*arguments: str) -> float:
    """Run a command with one thread; return its processor seconds."""
    child = subprocess.Popen([sys.executable, "-m", "segmeter", *arguments], env=os.environ | {"OMP_NUM_THREADS": "1"})
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"segmeter {arguments[0]} failed")
    return float(used.ru_utime + used.ru_stime)


def dice_of(labels: NDArray[Any], target: NDArray[Any]) -> list[float]:
    pairs = [(labels == label, target == label) for label in range(1, len(CLASSES))]
    return [float(2 * (a & b).sum() / (a.sum() + b.sum())) for a, b in pairs]


def plain_loop(root: Path, seconds: float, seed: int, rate: float) -> tuple[torch.nn.Module, int]:
    """Train on the samples that `segmeter train` draws, until the processor has worked for `seconds`."""
    data = build_folder(
        FolderConfig(root=str(root), classes=CLASSES, planes="k", in_channels=1, lists="."), split="train"
    )
    assert isinstance(data, VolumeSet)
    planes = PlaneCases(data, empty=0.5)
    source = SampleSource(
        planes, AugmentConfig(crop=None, balance=1 / 3), batch_size=BATCH, seed=seed, presence=planes.presence
    )
    torch.manual_seed(seed)
    network = smp.Unet("resnet18", DEPTH, None, in_channels=1, classes=len(CLASSES), decoder_channels=DECODER)
    parts = [smp.losses.FocalLoss("multiclass"), smp.losses.DiceLoss("multiclass")]
    optimizer = torch.optim.AdamW(network.parameters(), rate, weight_decay=DECAY)
    start, step = time.process_time(), 0
    while time.process_time() - start < seconds:
        images, targets, *_ = source.batch(*divmod(step, len(source)))
        batch = torch.from_numpy((images - MEAN) / STD).permute(0, 3, 1, 2).float()
        optimizer.zero_grad()
        logits, target = network(batch), torch.from_numpy(targets.astype(np.int64))
        torch.stack([part(logits, target) for part in parts]).sum().backward()
        optimizer.step()
        step += 1
    return network.eval(), step


@torch.inference_mode()
def predict(network: torch.nn.Module, image: NDArray[Any]) -> NDArray[Any]:
    planes = torch.from_numpy((image.astype(np.float32) - MEAN) / STD).permute(2, 1, 0)[:, None]
    labels = torch.cat([network(plane[None]).argmax(1) for plane in planes])
    return labels.permute(2, 1, 0).numpy()


RUN = """
import re, sys
from pathlib import Path
from segmeter.cli.main import main
main(sys.argv[1:])
print("peak", re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""


def measure_memory(work: Path, checkpoint: Path) -> dict[str, Any]:
    """Largest resident memory in MB of `predict` and `eval` for a volume with few and for one with many planes."""
    found: dict[str, Any] = {"plane": [EDGE, EDGE]}
    for depth in DEPTHS:
        root, mask = work / f"deep{depth}", np.zeros((EDGE, EDGE, depth), np.uint8)
        mask[EDGE // 4 : EDGE // 2, EDGE // 4 : EDGE // 2, depth // 4 : depth // 2] = 1
        image = (200 * mask + np.random.default_rng(0).integers(-40, 40, (EDGE, EDGE, 1))).astype(np.int16)
        for folder, pixels in (("images", image), ("masks", mask)):
            (root / folder).mkdir(parents=True, exist_ok=True)
            nibabel.save(nibabel.Nifti1Image(pixels, np.diag((*EDGES, 1.0))), root / folder / "a.nii.gz")
        lines = {"predict": [f"input={root / 'images'}"], "eval": [f"data.root={root}", "data.split=all"]}
        lines["eval with surfaces"] = [*lines["eval"], "metrics.measures=[surface]"]
        for command, given in lines.items():
            given += [f"checkpoint={checkpoint}", f"run.root={work}", "report.html=false", "device=cpu"]
            line = [sys.executable, "-c", RUN, command.split()[0], *given]
            said = subprocess.run(line, stdout=subprocess.PIPE, text=True, check=True).stdout
            found.setdefault(command, {})[f"{depth} planes"] = round(int(said.rpartition("peak ")[2]) / 1000)
            print(command, depth, found[command], flush=True)
    return found


def train(root: Path, work: Path, *, steps: int, seed: int) -> tuple[Path, float]:
    """Run `segmeter train`; return its best checkpoint and the processor's seconds."""
    net = ["model.encoder=resnet18", "model.weights=null", f"model.depth={DEPTH}", f"training.batch_size={BATCH}"]
    net += [f"model.decoder_channels={list(DECODER)}".replace(" ", ""), f"data.mean=[{MEAN}]", f"data.std=[{STD}]"]
    net += [f"optimizer.lr={RATE}", f"optimizer.weight_decay={DECAY}", f"training.steps={steps}"]
    net += [f"training.seed={seed}", f"run.root={work}", "device=cpu"]
    seconds = segmeter("train", *DATA, f"data.root={root}", *net)
    (run,) = (work / "train").iterdir()
    return run / "checkpoints" / "best", seconds


def race(work: Path, steps: int, seed: int) -> dict[str, Any]:
    """Dice of each class on the test volumes, of both."""
    root, found = work / "data", dict[str, Any](steps=steps)
    write_cases(root, seed)
    names = (root / "test.txt").read_text().split()
    drawn = [draw(int(name)) for name in names]

    def note(who: str, maps: list[NDArray[Any]]) -> None:
        values = [dice_of(labels, target) for labels, (_, target) in zip(maps, drawn, strict=True)]
        found[who] = dict(zip(CLASSES[1:], np.round(np.mean(values, axis=0), 4).tolist(), strict=True))

    checkpoint, seconds = train(root, work, steps=steps, seed=seed)
    found["seconds_of_processor"] = round(seconds, 1)
    segmeter("eval", f"checkpoint={checkpoint}", f"run.root={work}", "report.html=false", "device=cpu")
    (evaluation,) = (work / "eval").iterdir()
    written = [nibabel.load(evaluation / "predictions" / "labels" / f"{name}.nii.gz") for name in names]
    note("segmeter", [np.asarray(volume.dataobj) for volume in written])
    for who, rate in (("plain loop", RATE), ("plain loop, a third of the rate", RATE / 3)):
        network, found[f"{who}: steps"] = plain_loop(root, seconds, seed, rate)
        note(who, [predict(network, image) for image, _ in drawn])
    print(found, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--memory", action="store_true")
    given = parser.parse_args()
    before = circumstances("segmentation-models-pytorch")
    if given.memory:
        root = given.work / "data"
        write_cases(root, 0)
        checkpoint, _ = train(root, given.work, steps=1, seed=0)
        update_record(RESULTS / "volumes.json", "memory_mb", before | measure_memory(given.work, checkpoint))
        return
    torch.set_num_threads(1)
    for seed in given.seeds:
        found = before | race(given.work / str(seed), given.steps, seed)
        update_record(RESULTS / "volumes.json", f"beside a plain loop, seed {seed}", found)


if __name__ == "__main__":
    main()
