"""`segmeter score` on the folders of nnU-Net, and `segmeter compare` on its summaries."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.sharded import newest, run
from tests.data.crafted import put

REGIONS = {"background": 0, "whole": [1, 2], "core": [2], "ignore": 3}


def put_set(root: Path, labels: dict[str, object], *, noise: float, seed: int = 1) -> tuple[str, ...]:
    """An nnU-Net data set, and a folder of predictions as nnUNetv2_predict leaves it."""
    rng, (truth, given) = np.random.default_rng(0), (root / "labelsTr", root / "predictions")
    errors = np.random.default_rng(seed)
    for i in range(6):
        target = rng.integers(0, 4, (6, 8)).repeat(4, 0).repeat(4, 1)
        labels_of = np.where(errors.random(target.shape) < noise, errors.integers(0, 3, target.shape), target % 3)
        put(truth / f"case_{i}.png", target.astype(np.uint8))
        put(given / f"case_{i}.png", labels_of.astype(np.uint8))
        put(given / f"case_{i}.npz", b"probabilities")
        put(given / f"case_{i}.pkl", b"their properties")
    for folder in (root, given):
        put(folder / "dataset.json", {"labels": labels, "file_ending": ".png"})
    return (f"references={truth}", f"predictions={given}", f"data.nnunet={root}")


def score(root: Path, *arguments: str) -> Path:
    assert run("score", *arguments, "metrics.bootstrap=0", f"run.root={root / 'runs'}", "report.html=false") == 0
    return newest(root / "runs/score")


def test_a_data_set_says_classes_regions_and_the_ending_of_its_files(tmp_path: Path) -> None:
    folder = score(tmp_path, *put_set(tmp_path, REGIONS, noise=0.2))
    found = json.loads((folder / "metrics.json").read_text())
    assert (found["classes"], found["ignore_index"]) == (["background", "label 1", "label 2"], 3)
    theirs = json.loads((folder / "summary.json").read_text())
    assert list(theirs["mean"]) == ["(1, 2)", "(2,)"]
    counts = [case["metrics"]["(1, 2)"] for case in theirs["metric_per_case"]]
    tp, fp, fn = (sum(one[name] for one in counts) for name in ("TP", "FP", "FN"))
    assert found["per_group"]["whole"]["dice"] == 2 * tp / (2 * tp + fp + fn)
    assert theirs["metric_per_case"][0]["reference_file"] == str(tmp_path / "labelsTr" / "case_0.png")


def test_what_is_given_counts(tmp_path: Path) -> None:
    arguments = put_set(tmp_path, {"background": 0, "a": 1, "b": 2, "ignore": 3}, noise=0.2)
    folder = score(tmp_path, *arguments, "data.classes=[none,x,y]", "metrics.groups={xy: [x, y]}")
    found = json.loads((folder / "metrics.json").read_text())
    assert (found["classes"], found["ignore_index"], list(found["per_group"])) == (["none", "x", "y"], 3, ["xy"])


def test_summaries_are_compared(tmp_path: Path) -> None:
    summaries = []
    for name, noise in (("good", 0.1), ("bad", 0.5)):
        folder = score(tmp_path / name, *put_set(tmp_path / name, REGIONS, noise=noise))
        summaries.append(tmp_path / name / "summary.json")
        summaries[-1].write_bytes((folder / "summary.json").read_bytes())
    runs = f"runs=[{','.join(map(str, summaries))}]"
    assert run("compare", runs, "metrics.bootstrap=200", f"run.root={tmp_path / 'runs'}") == 0
    found = json.loads((newest(tmp_path / "runs/compare") / "compare.json").read_text())
    assert (found["order"], found["classes"], found["task"]) == (["good", "bad"], ["(1, 2)", "(2,)"], "multilabel")
    entry = found["metrics"]["dice/(1, 2)"]
    theirs = [json.loads(path.read_text())["metric_per_case"] for path in summaries]
    means = [float(np.mean([case["metrics"]["(1, 2)"]["Dice"] for case in cases])) for cases in theirs]
    assert list(entry["per_case"].values()) == pytest.approx(means, rel=1e-12)
    assert entry["pairs"][0]["dataset_ci95"][1] < 0  # "bad" is the new one
