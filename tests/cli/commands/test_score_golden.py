"""Figures of other tools: the golden spine, Cityscapes, and the folders and summaries of nnU-Net."""

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.cli.sharded import newest, run
from tests.data.crafted import put
from tests.differential.peers import load, quiet

VALUES = (0, 26, *range(41, 50), 60, 61, 62, 100)


def scored(root: Path, *arguments: str) -> dict[str, Any]:
    """The figures of the folders `predictions` and `references` below `root`."""
    folders = [f"{role}={root / role}" for role in ("predictions", "references")]
    assert run("score", *folders, f"run.root={root}", "metrics.bootstrap=0", "report.html=false", *arguments) == 0
    summary: dict[str, Any] = json.loads((newest(root / "score") / "metrics.json").read_text())
    return summary


MAPPING = ",".join(f"{value}:{k}" for k, value in enumerate(VALUES))
NAMES = ",".join(f"class_{k}" for k in range(1, len(VALUES)))
SPINE = {
    "matched": (
        ["data.task=binary", "data.classes=[none,bone]", "data.instances=true", "metrics.spacing=[1,1,1]"],
        "metrics.measures=[{name: instances, objects: maps, distances: true}]",
        {"tp": 19, "fp": 3, "fn": 3, "rq": 0.8636363636363636, "sq": 0.8328184295330798, "pq": 0.7192522800512963}
        | {"object_dice": 0.900292616009954, "object_masd": 0.25033188787922506},
    ),
    "semantic": (
        [f"data.num_classes={len(VALUES)}", f"data.label_map={{{MAPPING}}}", f"metrics.groups={{bone:[{NAMES}]}}"],
        "metrics.measures=[{name: instances, objects: by_class, classes: [class_1]}]",
        {"tp": 73, "fp": 16, "fn": 14, "rq": 0.8295454545454546, "sq": 0.7940127477906024, "pq": 0.6586696657808406}
        | {"object_dice": 0.8802182546605446},
    ),
}


@pytest.mark.parametrize(("kind", "given", "measure", "published"), [(kind, *SPINE[kind]) for kind in SPINE], ids=SPINE)
def test_objects_by_number_and_connected_parts_of_each_class(kind, given, measure, published, shared_data, tmp_path):
    """The published figures number the parts of all classes together, and match them whatever their class."""
    for role, name in (("predictions", "pred"), ("references", "ref")):
        (tmp_path / role).mkdir()
        (tmp_path / role / "spine.nii.gz").symlink_to(shared_data / "golden/spine" / kind / f"{name}.nii.gz")
    measures = scored(tmp_path, *given, measure)["measures"]
    assert {name: measures[name]["bone"]["dataset"] for name in published} == pytest.approx(published, rel=1e-12)


def test_instance_ious_are_those_of_cityscapes_scripts(tmp_path, monkeypatch):
    """From files as its own evaluation takes them: objects, groups without a number, and ids that are not evaluated."""
    peer = load("cityscapesscripts.evaluation.evalPixelLevelSemanticLabeling", "cityscapesscripts")
    monkeypatch.setattr(np, "in1d", np.isin, raising=False)  # which NumPy 2.4 has no more
    rng, files = np.random.default_rng(3), {"predictions": [], "references": []}
    for name in ("a_1_2", "b_1_2"):
        ids = np.array([7, 24, 26, 29, 4], np.int32)[rng.integers(0, 5, (4, 6)).repeat(6, 0).repeat(5, 1)]
        numbers = rng.integers(0, 4, (8, 10)).repeat(3, 0).repeat(3, 1)
        coded = np.where((ids >= 24) & (numbers > 0), 1000 * ids + numbers - 1, ids)
        labels = np.where(rng.random(ids.shape) < 0.3, rng.choice([7, 24, 26, 33], ids.shape), ids)
        drawn = {"predictions/{}_pred": labels, "references/{}_gtFine_labelIds": ids}
        for path, values in (drawn | {"references/{}_gtFine_instanceIds": coded}).items():
            file = tmp_path / f"{path.format(name)}.png"
            file.parent.mkdir(exist_ok=True)
            Image.fromarray(values.astype(np.uint16 if values is coded else np.uint8)).save(file)
            if values is not coded:
                files[path.partition("/")[0]].append(str(file))
    args = copy.copy(peer.args)
    args.evalInstLevelScore, args.JSONOutput, args.quiet = True, False, True
    with quiet():
        theirs = peer.evaluateImgLists(files["predictions"], files["references"], args)
    summary = scored(
        tmp_path,
        *("data.preset=cityscapes", "reference_ending=_gtFine_instanceIds", "prediction_ending=_pred"),
        *("data.instances=references", "metrics.measures=[{name: iiou, average_sizes: cityscapes}]"),
    )
    found = summary["measures"]["iiou"]
    wanted = {name: score for name, score in theirs["classInstScores"].items() if not np.isnan(score)}
    assert set(wanted) == {"person", "car", "bicycle"}
    for name, score in wanted.items():
        assert found[name]["dataset"] == pytest.approx(score, rel=1e-12)
    assert found["mean"]["dataset"] == pytest.approx(theirs["averageScoreInstClasses"], rel=1e-12)
    assert summary["dataset"]["mean_iou"] == pytest.approx(theirs["averageScoreClasses"], rel=1e-12)


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
