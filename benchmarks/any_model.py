"""Times and weighs models that others trained: segmeter's predictor against the loop that each tool documents.

    python benchmarks/any_model.py                  time per image and peak memory: two minutes of the processor

Networks of transformers have random weights and 19 classes: SegFormer-B0 in full, the others narrow, so that what
surrounds the network weighs most. Images have 720 x 960 pixels. The tool's loop is its image processor (torchvision
backend), its network in `inference_mode` and its own post-processing, one image per pass. Labels are compared before
anything is timed. Both loops take turns, and the quickest turn counts, by the processor's time: other programs only add
to it. Memory is the peak of a process that does nothing else.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from harness import Row, Time, compare, demand, publish, race
from record import RESULTS, circumstances

FAMILIES = ("segformer", "upernet", "dpt", "mask2former")
CLASSES = 19
BAR = 0.95
STAGES = [f"stage{i}" for i in range(1, 5)]

Loop = Callable[[], list[np.ndarray]]


def save(folder: Path, family: str) -> None:
    """Save a network with random weights and its image processor, as transformers does."""
    import transformers as hf

    torch.manual_seed(0)
    labels = {"num_labels": CLASSES, "id2label": {i: f"class {i}" for i in range(CLASSES)}}
    if family == "segformer":
        config, processor = hf.SegformerConfig(**labels), hf.SegformerImageProcessor(size={"height": 512, "width": 512})
    elif family == "upernet":
        backbone = hf.ConvNextConfig(hidden_sizes=[16, 32, 64, 128], depths=[1] * 4, out_features=STAGES)
        width = {"hidden_size": 32, "auxiliary_channels": 16, "auxiliary_in_channels": 64}
        config = hf.UperNetConfig(backbone_config=backbone, **labels, **width)
        processor = hf.SegformerImageProcessor(size={"height": 512, "width": 512})
    elif family == "dpt":
        width = {"hidden_size": 96, "intermediate_size": 192, "num_hidden_layers": 4, "num_attention_heads": 2}
        neck = {"neck_hidden_sizes": [16, 32, 64, 64], "fusion_hidden_size": 32, "backbone_out_indices": [0, 1, 2, 3]}
        config = hf.DPTConfig(**labels, **width, **neck, image_size=384, auxiliary_loss=False)
        processor = hf.DPTImageProcessor(size={"height": 384, "width": 384})
    else:
        backbone = hf.SwinConfig(embed_dim=24, depths=[1] * 4, num_heads=[1] * 4, out_features=STAGES)
        width = {"hidden_dim": 64, "feature_size": 64, "mask_feature_size": 64, "num_queries": 50}
        layers = {"encoder_layers": 1, "decoder_layers": 3, "num_attention_heads": 2}
        config = hf.Mask2FormerConfig(backbone_config=backbone, **labels, **width, **layers)
        processor = hf.Mask2FormerImageProcessor(size={"shortest_edge": 384, "longest_edge": 640})
    network = _loader(family).from_config(config)
    for each in network.parameters():  # fresh heads give nearly equal logits
        if each.dim() > 1:
            torch.nn.init.xavier_normal_(each, gain=1.6)
    if family == "mask2former":  # else all its queries find one class
        torch.nn.init.normal_(network.class_predictor.weight, std=3)
        torch.nn.init.normal_(network.model.transformer_module.queries_features.weight, std=3)
    network.save_pretrained(folder)
    processor.save_pretrained(folder)


def _loader(family: str) -> Any:
    import transformers as hf

    universal = family == "mask2former"
    return hf.AutoModelForUniversalSegmentation if universal else hf.AutoModelForSemanticSegmentation


def images(count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [np.kron(rng.integers(0, 256, (45, 60, 3)), np.ones((16, 16, 1))).astype(np.uint8) for _ in range(count)]


def own_loop(folder: Path, cases: list[np.ndarray]) -> Loop:
    """Return the predictor of `segmeter eval` and `predict`."""
    from segmeter.data.sample import Sample
    from segmeter.inference.config import InferenceConfig
    from segmeter.inference.predictor import Predictor
    from segmeter.models.trained import read_checkpoints

    predictor = Predictor(read_checkpoints([Path(f"hf:{folder}")]).load(), InferenceConfig(), torch.device("cpu"))
    samples = [Sample(case_id=str(i), image=image, target=None) for i, image in enumerate(cases)]
    return lambda: [found.labels for found in predictor.predict(samples)]


def their_loop(folder: Path, cases: list[np.ndarray], family: str) -> Loop:
    """Preparation, network and post-processing as transformers documents them."""
    import transformers as hf

    processor = hf.AutoImageProcessor.from_pretrained(folder)
    network = _loader(family).from_pretrained(folder).eval()

    def label(case: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            output = network(**processor(case, return_tensors="pt"))
            found = processor.post_process_semantic_segmentation(output, target_sizes=[case.shape[:2]])
        return found[0].to(torch.uint8).numpy()

    return lambda: [label(case) for case in cases]


def loop_of(who: str, folder: Path, cases: list[np.ndarray], family: str) -> Loop:
    return own_loop(folder, cases) if who == "segmeter" else their_loop(folder, cases, family)


def peak_mb(who: str, folder: Path, family: str, count: int) -> float:
    """Peak resident memory of a process of its own, in MB of 10^6 bytes."""
    command = [sys.executable, __file__, "--weigh", who, str(folder), family, "--images", str(count)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def weigh(who: str, folder: str, family: str, count: int) -> None:
    loop_of(who, Path(folder), images(count), family)()
    status = Path("/proc/self/status").read_text(encoding="ascii")  # getrusage would count the parent before exec
    print(int(status.partition("VmHWM:")[2].split()[0]) * 1024 / 1e6)


def measure(family: str, count: int, rounds: int) -> tuple[list[Row], dict[str, float]]:
    """Rows for the clock, and the peak memory of both sides."""
    with tempfile.TemporaryDirectory() as name:
        folder, cases, who = Path(name), images(count), ("segmeter", "transformers")
        save(folder, family)
        loops = {each: loop_of(each, folder, cases, family) for each in who}
        ours, theirs = (np.stack(loops[each]()) for each in who)
        differ = float((ours != theirs).mean())
        demand(differ < 1e-4 and len(np.unique(ours)) > 1, f"{family}: {differ:.2%} of the labels differ")
        times: dict[str, Time] = race(loops, rounds)
        rows = compare(
            f"{family}: {count} images",
            times,
            {"transformers": BAR},
            clock="cpu_best_ms",
            note=f"{differ:.1e} of the labels differ",
        )
        return rows, {each: peak_mb(each, folder, family, count) for each in who}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--images", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--weigh", nargs=3, metavar=("WHO", "FOLDER", "FAMILY"), help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, default=RESULTS / "any_model.json", help="where the JSON goes")
    chosen = parser.parse_args()
    if chosen.weigh:
        weigh(*chosen.weigh, chosen.images)
        return
    before, rows, memory = circumstances("transformers", "torchvision"), list[Row](), dict[str, Any]()
    for family in chosen.families.split(","):
        found, memory[family] = measure(family, chosen.images, chosen.rounds)
        rows += found
    print(json.dumps(memory, indent=2))
    publish(chosen.output, before, rows, peak_mb=memory, threads=torch.get_num_threads())


if __name__ == "__main__":
    main()
