"""How many planted label errors `segmeter suspects` finds, side by side with cleanlab's segmentation score.

In references of images that the model never saw, 5 % of the objects are changed: dropped, added, moved at the border,
or given another class. Both methods see the same probabilities. Objects: of as many suspects as errors were planted,
the share that lies on one. Borders: the same, over the share of objects whose border was moved. cleanlab scores pixels.
Its issues that touch are joined to regions, ranked by their mean quality, and by that and their size.

    python benchmarks/suspects.py cells RUN              RUN trained on the built-in cells
    python benchmarks/suspects.py camvid RUN --root PATH/camvid

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
import pyarrow.parquet as pq
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

from record import RESULTS, circumstances, update_record
from segmeter.classes import ClassSpec
from segmeter.cli.config.model_schema import EvalConfig
from segmeter.data.synthetic import draw_scene
from segmeter.evaluation.decisions.config import SuspectsKeys
from segmeter.evaluation.decisions.held_out import open_held_out
from segmeter.evaluation.decisions.suspects import (
    TABLE,
    find_in_runs,
    regions_of_case,
    usual_confidence,
)
from segmeter.metrics.objects.planted import match_planted, plant_errors
from segmeter.metrics.objects.suspects import Suspect
from segmeter.records import read_yaml

SHARE, SIZE, IMAGES = 0.05, 192, 120


def draw_cells(root: Path, count: int = IMAGES) -> None:
    """Draw cells that no training has, as a folder with one list."""
    for name in ("images", "masks"):
        (root / name).mkdir(parents=True)
    for number in range(count):
        scene = draw_scene(np.random.default_rng([20_261_124, number]), SIZE)
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
        changed, planted[name] = plant_errors(target, spec, np.random.default_rng([seed, number]), share=SHARE)
        found = Image.fromarray(changed)
        if palette:
            found.putpalette(palette)
        content = io.BytesIO()
        found.save(content, "PNG")
        path.write_bytes(content.getvalue())
    return planted


def precision(found: list[tuple[float, bool]], count: int) -> float:
    """The share of hits among the first `count`."""
    first = sorted(found, key=lambda one: -one[0])[:count]
    return float(np.mean([hit for _, hit in first])) if first else float("nan")


def cleanlab_regions(
    target: NDArray[Any], probs: NDArray[Any], spec: ClassSpec
) -> list[tuple[float, float, Suspect]] | None:
    """Regions of pixels that cleanlab doubts, with the mean of one minus their quality, and that times their size."""
    try:
        from cleanlab.segmentation.filter import find_label_issues
        from cleanlab.segmentation.rank import get_label_quality_scores
    except ImportError:
        return None
    values = probs.astype(np.float32) / (255 if probs.dtype == np.uint8 else 1)
    values /= values.sum(axis=0)
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
        find_in_runs([held], SuspectsKeys(runs=(run,)), 0, Path(folder))
        rows = pq.read_table(Path(folder) / TABLE).to_pylist()
    by_case: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_case.setdefault(row["case_id"], []).append(row)
    confidence, chances = usual_confidence([held]), []
    for index, case_id in enumerate(held.dataset.case_ids):
        sample, probs, found = regions_of_case(held, index, by_case.get(case_id, []), confidence)
        first = int(spec.has_background)
        objects += sum(ndimage.label(sample.target == k, np.ones((3, 3)))[1] for k in range(first, spec.num_classes))
        hits = match_planted(found, planted[case_id])
        for row, hit in zip(by_case.get(case_id, []), hits, strict=True):
            ours["borders" if row["kind"] == "border" else "objects"].append((-row["rank"], bool(hit)))
            chances.append((row["chance"], bool(hit)))
        for *scores, region in cleanlab_regions(sample.target, probs, spec) or ():
            for group in theirs:
                wanted = [one for one in planted[case_id] if (one.kind == "border") == (group == "borders")]
                kind: Any = "border" if group == "borders" else "class"
                alike = Suspect(**{**vars(region), "kind": kind})
                hit = bool(match_planted([alike], wanted)[0])
                for ranking, score in zip(theirs[group], scores, strict=True):
                    ranking.append((score, hit))
    many = {
        "objects": sum(one.kind != "border" for each in planted.values() for one in each),
        "borders": sum(one.kind == "border" for each in planted.values() for one in each),
    }
    result: dict[str, Any] = {"cases": len(held.dataset.case_ids), "objects": objects, "planted": many}
    result["mean_iou_with_errors"] = json.loads((run / "metrics.json").read_text())["dataset"]["mean_iou"]
    for group, count in many.items():
        base = count / objects
        mine = precision(ours[group], count)
        result[group] = {"precision": mine, "base_rate": base, "times_base_rate": mine / base}
        names = ("cleanlab_by_quality", "cleanlab_by_quality_and_size")
        result[group] |= {name: precision(each, count) for name, each in zip(names, theirs[group], strict=True)}
    count = sum(many.values())
    together = [(row_rank, hit) for group in ours.values() for row_rank, hit in group]
    result["all"] = {"precision": precision(together, count), "base_rate": count / objects}
    result["all"]["times_base_rate"] = result["all"]["precision"] / result["all"]["base_rate"]
    result["calibration"] = [
        {
            "from": low,
            "to": low + 0.2,
            "suspects": len(part),
            "mean_chance": mean(part, 0),
            "share_of_errors": mean(part, 1),
        }
        for low in (0.0, 0.2, 0.4, 0.6, 0.8)
        for part in [[one for one in chances if low <= one[0] < low + 0.2 + (low == 0.8)]]
    ]
    return result


def mean(rows: list[tuple[float, bool]], place: int) -> float | None:
    return round(float(np.mean([one[place] for one in rows])), 3) if rows else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=["cells", "camvid"])
    parser.add_argument("run", type=Path)
    parser.add_argument("--root", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=int, default=1, help="take every n-th image of CamVid's test split")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "data"
        more = [f"data.root={root}"]
        if given.data == "cells":
            draw_cells(root)
            more += ["data=folder", "data.split=test", "data.lists=.", "data.in_channels=1"]
            more += ["data.classes=[background,round,spindle,mitotic]"]
        else:
            shutil.copytree(given.root, root, copy_function=shutil.copyfile)
            root.chmod(0o755)
            for each in root.rglob("*"):
                each.chmod(0o755 if each.is_dir() else 0o644)
            more += ["data.split=test"]
        command = [
            sys.executable,
            "-m",
            "segmeter.cli.main",
            "eval",
            f"checkpoint={given.run}",
            f"run.root={folder}/runs",
        ]
        command += ["export.probs=true", "export.probs_dtype=uint8", "report.overlays=0", "metrics.bootstrap=0"]
        listed = (root / "test.txt").read_text().split()[:: given.every]
        (root / "test.txt").write_text("\n".join(listed))
        names = [Path(name).stem for name in listed]
        card = json.loads(next(iter(sorted((given.run / "checkpoints").glob("step-*/manifest.json")))).read_text())
        spec = ClassSpec(**{key: tuplify(value) for key, value in card["card"]["spec"].items()})
        planted = plant_folder(root / "masks", names, spec, given.seed)
        subprocess.run([*command, *more], check=True)
        (run,) = (Path(folder) / "runs" / "eval").iterdir()
        result = study(run, planted)
    print(json.dumps(result, indent=1))
    update_record(RESULTS / "suspects.json", given.data, {**circumstances("cleanlab"), "seed": given.seed, **result})


def tuplify(value: Any) -> Any:
    return tuple(map(tuplify, value)) if isinstance(value, list) else value


if __name__ == "__main__":
    main()
