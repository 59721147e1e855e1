"""bfloat16 against float32 on this CPU: what `precision=auto` costs or saves.

    python benchmarks/precision.py

CPU seconds of a forward pass and of a training step, on one thread, the two formats in turns; the least of each.
"""

import time
from collections.abc import Callable
from typing import Any

import segmentation_models_pytorch as smp
import torch

from record import RESULTS, circumstances, write_record
from segmeter.inference.precision import has_bfloat16

CASES = [("resnet18", (384, 480), 4), ("resnet34", (512, 512), 2), ("efficientnet-b0", (384, 480), 4)]
ROUNDS = 4
FORMATS = {"float32": False, "bfloat16": True}


def measure(encoder: str, size: tuple[int, int], batch: int) -> dict[str, dict[str, float]]:
    """CPU seconds of each kind of work in each format."""
    network = smp.Unet(encoder, encoder_weights=None, classes=11).to(memory_format=torch.channels_last)
    images = torch.randn(batch, 3, *size).to(memory_format=torch.channels_last)

    def forward(half: bool) -> None:
        network.eval()
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=half):
            network(images)

    def step(half: bool) -> None:
        network.train()
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            loss = network(images).float().square().mean()
        loss.backward()
        network.zero_grad()

    return {"forward": _in_turns(forward), "training step": _in_turns(step)}


def _in_turns(work: Callable[[bool], None]) -> dict[str, float]:
    spent: dict[str, list[float]] = {name: [] for name in FORMATS}
    for _ in range(1 + ROUNDS):  # the first of each prepares oneDNN's kernels
        for name, half in FORMATS.items():
            start = time.process_time()
            work(half)
            spent[name].append(time.process_time() - start)
    return {name: round(min(seconds[1:]), 3) for name, seconds in spent.items()}


def main() -> None:
    torch.set_num_threads(1)
    found: list[dict[str, Any]] = []
    for encoder, size, batch in CASES:
        for kind, seconds in measure(encoder, size, batch).items():
            gain = round(seconds["float32"] / seconds["bfloat16"], 2)
            found.append({"encoder": encoder, "size": size, "batch": batch, "work": kind, **seconds, "gain": gain})
            times = "  ".join(f"{name} {each:.3f} s" for name, each in seconds.items())
            print(f"{encoder:16} {kind:14} {times}  gain {gain}")
    chosen = "bfloat16" if has_bfloat16(torch.device("cpu")) else "float32"
    print(f"precision=auto chooses {chosen} here")
    cpu = torch.cpu.get_capabilities()
    flags = {name: cpu.get(name) for name in ("cpu_name", "avx512_bf16", "amx_bf16")}
    write_record(RESULTS / "precision.json", {"chosen": chosen, "cpu": flags, "rows": found, **circumstances()})


if __name__ == "__main__":
    main()
