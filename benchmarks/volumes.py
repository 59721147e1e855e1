"""Trains on planes of drawn volumes beside a plain loop over the same planes, and measures the memory that planes take.

    python benchmarks/volumes.py --work FOLDER
    python benchmarks/volumes.py --work FOLDER --memory CHECKPOINT

Both train the same U-Net on planes that are drawn alike. `segmeter train` has its own loss, schedule and augmentation
for `--steps`. A plain loop (focal loss and Dice of segmentation-models-pytorch, Adam, float32, no augmentation) has
as many seconds of the processor. Start, checks, validation and reports count as ours. Each gets one thread, and each
seed has volumes of its own. `--memory` instead measures the largest resident memory of `predict` and `eval` with a
checkpoint of one channel and three classes, each in a process of its own.
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
from segmeter.data.folders.folder import build_folder
from segmeter.data.planes import VolumeSet
from segmeter.training.data.augment_config import AugmentConfig
from segmeter.training.data.cases import PlaneCases
from segmeter.training.data.sampling import SampleSource

CLASSES = ("background", "organ", "lesion")
SHAPE, EDGES, SPLITS = (48, 48, 12), (1.0, 1.0, 4.0), {"train": 24, "val": 2, "test": 6}
BATCH, MEAN, STD = 8, 60.0, 160.0
DEPTH, DECODER = 3, (32, 16, 8)
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


def plain_loop(root: Path, seconds: float, seed: int) -> tuple[torch.nn.Module, int]:
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
    optimizer = torch.optim.Adam(network.parameters(), 1e-3)
    start, step = time.process_time(), 0
    while time.process_time() - start < seconds:
        images, targets, _ = source.batch(*divmod(step, len(source)))
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


def measure_memory(work: Path, checkpoint: str) -> dict[str, Any]:
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


def race(work: Path, steps: int, seed: int) -> dict[str, Any]:
    """Dice of each class on the test volumes, of both."""
    root = work / "data"
    write_cases(root, seed)
    net = ["model.encoder=resnet18", "model.weights=null", f"model.depth={DEPTH}", f"training.batch_size={BATCH}"]
    net += [f"model.decoder_channels={list(DECODER)}".replace(" ", ""), f"data.mean=[{MEAN}]", f"data.std=[{STD}]"]
    net += ["optimizer.lr=0.003"]  # what training=auto takes for random weights
    net += [f"training.steps={steps}", f"training.seed={seed}", f"run.root={work}", "device=cpu"]
    seconds = segmeter("train", *DATA, f"data.root={root}", *net)
    (run,) = (work / "train").iterdir()
    segmeter("eval", f"checkpoint={run}/checkpoints/best", f"run.root={work}", "report.html=false", "device=cpu")
    (evaluation,) = (work / "eval").iterdir()
    network, plain_steps = plain_loop(root, seconds, seed)
    ours, plain = [], []
    for name in (root / "test.txt").read_text().split():
        image, target = draw(int(name))
        written = nibabel.load(evaluation / "predictions" / "labels" / f"{name}.nii.gz")
        ours.append(dice_of(np.asarray(written.dataobj), target))
        plain.append(dice_of(predict(network, image), target))
    found: dict[str, Any] = {"seconds_of_processor": round(seconds, 1), "steps": steps, "plain_steps": plain_steps}
    for name, values in (("segmeter", ours), ("plain loop", plain)):
        found[name] = dict(zip(CLASSES[1:], np.round(np.mean(values, axis=0), 4).tolist(), strict=True))
    print(found, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--memory", metavar="CHECKPOINT")
    given = parser.parse_args()
    before = circumstances("segmentation-models-pytorch")
    if given.memory:
        update_record(RESULTS / "volumes.json", "memory_mb", before | measure_memory(given.work, given.memory))
        return
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    for seed in range(given.seeds):
        found[f"seed {seed}"] = race(given.work / str(seed), given.steps, seed)
        update_record(RESULTS / "volumes.json", "beside a plain loop", before | found)


if __name__ == "__main__":
    main()
