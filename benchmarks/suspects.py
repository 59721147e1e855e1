"""How many planted label errors `segmeter suspects` finds, side by side with cleanlab's segmentation score.

In references of images that the model never saw, 5 % of the objects are changed: dropped, added, moved at the border,
or given another class. This is done with several seeds. Both methods see the same probabilities.
Objects: of as many suspects as errors were planted, the share that lies on one. Borders: the same, over the share of
objects whose border was moved. cleanlab scores pixels. Its issues that touch are joined to regions, ranked by their
mean quality, and by that and their size.

    python benchmarks/suspects.py cells RUN              RUN trained on the built-in cells
    python benchmarks/suspects.py camvid RUN --root PATH/camvid
    python benchmarks/suspects.py                        peak memory with 30 and 120 images of 256 x 256

writes benchmarks/results/suspects.json. cleanlab is compared with where it is installed.
"""

import argparse
import io
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

from record import RESULTS, circumstances, update_record
from segmeter.classes import ClassSpec
from segmeter.cli.config.model_command_configs import EvalConfig
from segmeter.data.config import FolderConfig
from segmeter.data.synthetic import draw_scene
from segmeter.evaluation.decisions.held_out import open_held_out
from segmeter.evaluation.decisions.suspects import find_in_runs, regions_of_case, usual_confidence
from segmeter.metrics.objects.planted import match_planted, plant_errors
from segmeter.metrics.objects.suspects import Suspect
from segmeter.parallel import peak_bytes
from segmeter.records import read_yaml

SHARE, SIZE, IMAGES = 0.05, 192, 120


def draw_cells(root: Path, count: int = IMAGES, size: int = SIZE) -> None:
    """Draw cells that no training has, as a folder with one list."""
    for name in ("images", "masks"):
        (root / name).mkdir(parents=True)
    for number in range(count):
        scene = draw_scene(np.random.default_rng([20_261_124, number]), size)
        for kind, pixels in (("images", scene.image), ("masks", scene.labels)):
            Image.fromarray(pixels).save(root / kind / f"new-{number:03}.png")
    (root / "test.txt").write_text("".join(f"new-{number:03}\n" for number in range(count)))


def plant_folder(masks: Path, names: list[str], spec: ClassSpec, seed: int) -> dict[str, list[Suspect]]:
    """Change masks in place; the planted errors by case."""
    planted = {}
    for number, name in enumerate(names):
        path = next(masks.glob(f"{name}*"))
        with Image.open(path) as image:
            palette, target = image.getpalette(), np.asarray(image)
        changed, _, planted[name] = plant_errors(target, spec, np.random.default_rng([seed, number]), share=SHARE)
        found = Image.fromarray(changed)
        if palette:
            found.putpalette(palette)
        content = io.BytesIO()
        found.save(content, "PNG")
        path.write_bytes(content.getvalue())
    return planted


def hits_of(found: list[tuple[float, bool]], count: int) -> int:
    """How many of the first `count` are hits."""
    return sum(hit for _, hit in sorted(found, key=lambda one: -one[0])[:count])


def cleanlab_regions(
    target: NDArray[Any], probs: NDArray[Any], spec: ClassSpec
) -> list[tuple[float, float, Suspect]] | None:
    """Regions of pixels that cleanlab doubts, with the mean of one minus their quality, and that times their size."""
    try:
        from cleanlab.segmentation.filter import find_label_issues
        from cleanlab.segmentation.rank import get_label_quality_scores
    except ImportError:
        return None
    values = probs / probs.sum(axis=0)
    safe = np.where(spec.valid(target), target, values.argmax(axis=0)).astype(int)  # ignored pixels are no issue
    issues = find_label_issues(safe[None], values[None], n_jobs=1, verbose=False, downsample=1)[0]
    _, pixels = get_label_quality_scores(safe[None], values[None], verbose=False)
    parts, _ = ndimage.label(issues, np.ones((3, 3)))
    found = []
    for number, box in enumerate(ndimage.find_objects(parts), start=1):
        mask = parts[box] == number
        doubt = float((1 - pixels[0][box][mask]).mean())
        region = Suspect(
            kind="class",
            given=0,
            suggested=0,
            score=doubt,
            top=box[0].start,
            left=box[1].start,
            mask=mask,
            size=int(mask.sum()),
        )
        found.append((doubt, doubt * float(mask.sum()), region))
    return found


def study(run: Path, planted: dict[str, list[Suspect]]) -> dict[str, Any]:
    """Rank the suspects of an evaluation by both methods, and compare them with what was planted."""
    held = open_held_out(run, EvalConfig.model_validate(read_yaml(run / "config.yaml")).data)
    spec, objects = held.dataset.spec, 0
    ours: dict[str, list[tuple[float, bool]]] = {"objects": [], "borders": []}
    theirs: dict[str, list[list[tuple[float, bool]]]] = {"objects": [[], []], "borders": [[], []]}
    with tempfile.TemporaryDirectory() as folder:
        rows = find_in_runs([held], 0, Path(folder))[1].to_pylist()
    by_case: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_case.setdefault(row["case_id"], []).append(row)
    confidence, chances = usual_confidence([held]), []
    for index, case_id in enumerate(held.dataset.case_ids):
        sample, probs, found = regions_of_case(held, index, by_case.get(case_id, []), confidence)
        first = int(spec.has_background)
        objects += sum(ndimage.label(sample.target == k, np.ones((3, 3)))[1] for k in range(first, spec.num_classes))
        hits, _ = match_planted(found, planted[case_id], sample.target.shape)
        for row, hit in zip(by_case.get(case_id, []), hits, strict=True):
            ours["borders" if row["kind"] == "border" else "objects"].append((-row["rank"], bool(hit)))
            chances.append((row["chance"], bool(hit)))
        for *scores, region in cleanlab_regions(sample.target, probs, spec) or ():
            for group in theirs:
                wanted = [one for one in planted[case_id] if (one.kind == "border") == (group == "borders")]
                kind: Any = "border" if group == "borders" else "class"
                alike = Suspect(**{**vars(region), "kind": kind})
                hit = bool(match_planted([alike], wanted, sample.target.shape)[0][0])
                for ranking, score in zip(theirs[group], scores, strict=True):
                    ranking.append((score, hit))
    counts = {}
    for group in ours:
        planted_here = sum((one.kind == "border") == (group == "borders") for each in planted.values() for one in each)
        names = ("cleanlab_by_quality", "cleanlab_by_quality_and_size")
        counts[group] = {"planted": planted_here, "suspects": hits_of(ours[group], planted_here)}
        counts[group] |= {name: hits_of(each, planted_here) for name, each in zip(names, theirs[group], strict=True)}
    return {"objects": objects, "groups": counts, "chances": chances}


def pool(studies: list[dict[str, Any]]) -> dict[str, Any]:
    """Precision of each group over all seeds, beside the share of objects that were changed."""
    objects, result = sum(one["objects"] for one in studies), dict[str, Any]()
    for group in studies[0]["groups"]:
        counts = [one["groups"][group] for one in studies]
        total = {key: sum(one[key] for one in counts) for key in counts[0]}
        many, base = total.pop("planted"), sum(one["planted"] for one in counts) / objects
        result[group] = {"planted": many, "base_rate": base, **{key: hits / many for key, hits in total.items()}}
        result[group]["times_base_rate"] = result[group]["suspects"] / base
    chances = [each for one in studies for each in one["chances"]]
    result["calibration"] = [
        {"from": low, "suspects": len(part), "mean_chance": mean(part, 0), "share_of_errors": mean(part, 1)}
        for low in (0.0, 0.2, 0.4, 0.6, 0.8)
        for part in [[one for one in chances if low <= one[0] < low + 0.2 + (low == 0.8)]]
    ]
    return result


def measure_memory() -> dict[str, Any]:
    """Peak memory of the search with 30 and 120 images, each in a process of its own."""
    peaks = {}
    for count in (30, 120):
        with tempfile.TemporaryDirectory() as folder:
            code = f"import suspects; suspects.search_drawn(__import__('pathlib').Path({folder!r}), {count})"
            here = Path(__file__).parent
            done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=here)
            peaks[f"{count} images"] = round(int(done.stdout.split()[-1]) / 2**20)
    return {"edge": 256, "peak_mib": peaks}


def search_drawn(root: Path, count: int) -> None:
    """Search drawn images with the probabilities of a model that is nearly sure, and print the peak memory."""
    draw_cells(root, count, 256)
    (root / "run" / "predictions" / "probs").mkdir(parents=True)
    (root / "run" / "run.json").write_text('{"command": "eval"}')
    for path in sorted((root / "masks").iterdir()):
        noise = np.random.default_rng(len(path.name)).normal(0, 0.05, (4, 256, 256))
        probs = np.clip(np.eye(4)[np.asarray(Image.open(path))].transpose(2, 0, 1) * 0.9 + 0.03 + noise, 0, 1)
        np.save(
            root / "run" / "predictions" / "probs" / f"{path.stem}.uint8.npy", np.rint(probs * 255).astype(np.uint8)
        )
    options: dict[str, Any] = {"classes": ("background", "round", "spindle", "mitotic"), "lists": ".", "in_channels": 1}
    held = open_held_out(root / "run", FolderConfig(root=str(root), split="test", **options))
    find_in_runs([held], 0, root)
    print(peak_bytes())


def mean(rows: list[tuple[float, bool]], place: int) -> float | None:
    return round(float(np.mean([one[place] for one in rows])), 3) if rows else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", choices=["memory", "cells", "camvid"], default="memory")
    parser.add_argument("run", type=Path, nargs="?")
    parser.add_argument("--root", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--every", type=int, default=1, help="take every n-th image of CamVid's test split")
    given = parser.parse_args()
    result = measure_memory() if given.data == "memory" else evaluate(given)
    print(json.dumps(result, indent=1))
    update_record(RESULTS / "suspects.json", given.data, {**circumstances("cleanlab"), **result})


def evaluate(given: argparse.Namespace) -> dict[str, Any]:
    """Keep the probabilities of an evaluation, and search them with the errors of every seed."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "data"
        more = [f"data.root={root}", "data.split=test"]
        if given.data == "cells":
            draw_cells(root)
            more += ["data=folder", "data.lists=.", "data.in_channels=1"]
            more += ["data.classes=[background,round,spindle,mitotic]"]
        else:
            shutil.copytree(given.root, root, copy_function=shutil.copyfile)
            for each in (root, *root.rglob("*")):
                each.chmod(0o755 if each.is_dir() else 0o644)
        listed = (root / "test.txt").read_text().split()[:: given.every]
        (root / "test.txt").write_text("\n".join(listed))
        command = [sys.executable, "-m", "segmeter.cli.main", "eval", f"checkpoint={given.run}"]
        command += [f"run.root={folder}/runs", "report.overlays=0", "metrics.bootstrap=0"]
        subprocess.run([*command, "export.probs=true", "export.probs_dtype=uint8", *more], check=True)
        (run,) = (Path(folder) / "runs" / "eval").iterdir()
        shutil.copytree(root / "masks", root / "sound")
        card = json.loads(next(iter(sorted((given.run / "checkpoints").glob("step-*/manifest.json")))).read_text())
        spec = ClassSpec(**{key: tuplify(value) for key, value in card["card"]["spec"].items()})
        names, studies = [Path(name).stem for name in listed], []
        for seed in range(1, given.seeds + 1):
            shutil.copytree(root / "sound", root / "masks", dirs_exist_ok=True)
            studies.append(study(run, plant_folder(root / "masks", names, spec, seed)))
            print(seed, studies[-1]["groups"], flush=True)
        scored = json.loads((run / "metrics.json").read_text())["dataset"]["mean_iou"]
        return {"cases": len(names), "seeds": given.seeds, "mean_iou": scored, **pool(studies)}


def tuplify(value: Any) -> Any:
    return tuple(map(tuplify, value)) if isinstance(value, list) else value


if __name__ == "__main__":
    main()
