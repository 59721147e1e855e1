"""How long training stands still for a checkpoint: U-Net ResNet-34, AdamW and EMA, about 391 MB.

Compared in one interleaved run: what a step waits for when its state is saved in the background (the call that saves,
and the wait before the next update), against the whole writing of the same state.
"""

import argparse
import copy
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from segmeter.classes import ClassSpec
from segmeter.inference.allocator import keep_freed_memory
from segmeter.models.build import build_segmenter
from segmeter.models.card import ModelCard
from segmeter.models.checkpoints.checkpoint import read_checkpoint, write_checkpoint
from segmeter.provenance import hardware, versions
from segmeter.training.checkpointing import Checkpoints, address

SPEC = ClassSpec(task="multiclass", names=("a", "b", "c"), colours=((0, 0, 0), (9, 9, 9), (99, 9, 9)))
CARD = ModelCard(
    model={"name": "unet", "encoder": "resnet34"}, spec=SPEC, in_channels=3, mean=(0.5,) * 3, std=(0.25,) * 3
)


def timed(work: Callable[[], object]) -> float:
    """Milliseconds."""
    start = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    keep_freed_memory()  # as `segmeter train` does
    model = build_segmenter(CARD, initialise=False).to(arguments.device)
    average = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    image = torch.rand(arguments.batch, 3, 256, 256, device=arguments.device)

    def gradient() -> None:
        model(image).mean().backward()

    gradient()
    optimizer.step()
    weights, state = average.state_dict(), {"optimizer": optimizer.state_dict(), "weights": model.state_dict()}
    moments = [value for entry in optimizer.state.values() for value in entry.values()]
    steady = {address(value) for value in (*model.parameters(), *moments, *weights.values())}
    found: dict[str, list[float]] = {name: [] for name in ("save", "settle", "gradient", "gradient_beside", "writing")}
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        checkpoints = Checkpoints(Path(folder) / "checkpoints", keep=1, highest=True)
        checkpoints.prepare()
        content = {"card": CARD, "state": state, "progress": {}}
        for step in range(1, arguments.repeats + 1):
            found["gradient"].append(timed(gradient))
            save = lambda: checkpoints.save(step, segmenter_state=weights, steady=steady, **content)  # noqa: B023, E731
            found["save"].append(timed(save))
            found["gradient_beside"].append(timed(gradient))
            found["settle"].append(timed(checkpoints.settle))
            checkpoints.wait()
            plain = Path(folder) / f"plain-{step}"
            write = lambda: write_checkpoint(plain, segmenter_state=weights, **content)  # noqa: B023, E731
            found["writing"].append(timed(write))
            written = read_checkpoint(plain)
            assert read_checkpoint(checkpoints.folder / "last").sha256 == written.sha256
        checkpoints.close()
    still = [save + settle for save, settle in zip(found["save"], found["settle"], strict=True)]
    result = {
        "megabytes": round(sum(entry["bytes"] for entry in written.files.values()) / 1e6, 1),
        "milliseconds": {name: [round(value, 1) for value in values] for name, values in found.items()},
        "standing_still_share": round(statistics.median(still) / statistics.median(found["writing"]), 4),
        "hardware": hardware(),
        "versions": versions(),
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
