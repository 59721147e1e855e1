"""`segmeter score` on files of other tools: Cityscapes' ids, a COCO file, resampled volumes."""

import copy
import json

import numpy as np
import pytest
from PIL import Image

from segmeter.cli.main import main
from segmeter.data.classes_config import preset_values
from tests.data.formats_written import coco_content, draw_mask
from tests.differential.peers import load, quiet

CITYSCAPES_IDS = [int(value) for value, label in preset_values("cityscapes")["label_map"].items() if label != 255]


def scored(root, *arguments):
    main(["score", *arguments, "metrics.bootstrap=0", f"run.root={root / 'runs'}"])
    (folder,) = (root / "runs" / "score").iterdir()
    return json.loads((folder / "metrics.json").read_text()), (folder / "report.html").read_text()


def test_cityscapes_needs_no_list_of_classes(tmp_path):
    rng = np.random.default_rng(0)
    ids = np.array([*range(34)], np.uint8)
    target, labels = ids[rng.integers(0, 34, (20, 30))], np.array(CITYSCAPES_IDS, np.uint8)
    labels = labels[rng.integers(0, 19, (20, 30))]
    for side, name, one in (("references", "a_gtFine_labelIds", target), ("predictions", "a_pred", labels)):
        (tmp_path / side).mkdir()
        Image.fromarray(one).save(tmp_path / side / f"{name}.png")
    Image.fromarray(target).save(tmp_path / "references" / "a_gtFine_color.png")
    summary, _ = scored(
        tmp_path,
        *(f"{side}={tmp_path / side}" for side in ("references", "predictions")),
        *("data.preset=cityscapes", "reference_ending=_gtFine_labelIds", "prediction_ending=_pred"),
    )
    car = (target == 26, labels == 26)
    evaluated = np.isin(target, CITYSCAPES_IDS)
    union = ((car[0] | car[1]) & evaluated).sum()
    assert summary["per_class"]["car"]["iou"] == (car[0] & car[1]).sum() / union
    assert summary["ignore_index"] == 255


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
    summary, _ = scored(
        tmp_path,
        *(f"{side}={tmp_path / side}" for side in ("references", "predictions")),
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


def test_a_coco_file_is_a_folder_of_references(tmp_path):
    mask = draw_mask()
    (tmp_path / "annotations.json").write_text(json.dumps(coco_content({"a": mask, "b": mask})))
    (tmp_path / "predictions").mkdir()
    for name in "ab":
        Image.fromarray(mask).save(tmp_path / "predictions" / f"{name}.png")
    command = (f"references={tmp_path / 'annotations.json'}", f"predictions={tmp_path / 'predictions'}")
    summary, _ = scored(tmp_path, *command, "data.classes=[background,cell,lymphocyte]")
    assert summary["dataset"]["mean_iou"] == 1.0
    assert summary["n_cases"] == 2
    with pytest.raises(SystemExit):
        main(["score", *command, "data.classes=[background,cells,lymphocyte]", f"run.root={tmp_path / 'other'}"])


def test_the_report_says_what_was_resampled(tmp_path):
    pytest.importorskip("SimpleITK", reason="SimpleITK is not installed: it comes with `make test`")
    from tests.data.formats_written import write_itk

    mask = draw_mask(shape=(6, 24, 30))
    for side, one, low in (("references", mask, 0), ("predictions", mask[1:], 1)):
        (tmp_path / side).mkdir()
        write_itk(tmp_path / side / "a.mha", one, origin=(0.0, 0.0, 3.0 * low))
    _, page = scored(
        tmp_path,
        *(f"{side}={tmp_path / side}" for side in ("references", "predictions")),
        *("data.num_classes=3", "data.resample=nearest"),
    )
    assert "resampled by nearest neighbour" in page
