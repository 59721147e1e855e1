"""`segmeter score` on files of other tools: Cityscapes' ids, a COCO file, resampled volumes."""

import json

import numpy as np
import pytest
from PIL import Image

from segmeter.cli.main import main
from segmeter.data.known_classes import CITYSCAPES_IDS
from segmeter.data.labels_config import LabelsConfig
from tests.data.formats_written import coco_content, draw_mask
from tests.differential.peers import load


def scored(root, *arguments):
    main(["score", *arguments, "metrics.bootstrap=0", f"run.root={root / 'runs'}"])
    (folder,) = (root / "runs" / "score").iterdir()
    return json.loads((folder / "metrics.json").read_text()), (folder / "report.html").read_text()


def test_cityscapes_needs_no_list_of_classes(tmp_path):
    rng = np.random.default_rng(0)
    ids = np.array([*range(34)], np.uint8)
    target, labels = ids[rng.integers(0, 34, (20, 30))], np.array(list(CITYSCAPES_IDS.values()), np.uint8)
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
    evaluated = np.isin(target, list(CITYSCAPES_IDS.values()))
    union = ((car[0] | car[1]) & evaluated).sum()
    assert summary["per_class"]["car"]["iou"] == (car[0] & car[1]).sum() / union
    assert summary["ignore_index"] == 255


def test_the_ids_are_those_of_cityscapes_scripts():
    labels = load("cityscapesscripts.helpers.labels", "cityscapesscripts").labels
    benchmark = sorted((one for one in labels if not one.ignoreInEval), key=lambda one: one.trainId)
    assert {one.name: one.id for one in benchmark} == CITYSCAPES_IDS
    found = LabelsConfig(preset="cityscapes")
    assert {int(key) for key in found.label_map} == {one.id for one in labels} | {255}
    assert all(found.label_map[str(one.id)] == (255 if one.ignoreInEval else one.trainId) for one in labels)
    assert LabelsConfig(preset="cityscapes", ignore_index=300, label_map={"0": 300}).ignore_index == 300


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
