"""Predictions outside the classes: refused, or counted as missed in a column of their own, up to the summary."""

import json

import numpy as np
import pytest
from PIL import Image

import segmeter
from segmeter.cli.main import main
from segmeter.errors import ConfigError, InputError
from segmeter.metrics.cases.stored import read_cases, write_cases
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.pixels.confusion import confusion_matrix
from segmeter.metrics.pixels.overlap import overlap_scores
from segmeter.metrics.summary.summarise import summarise
from tests.differential.cases import assert_agree
from tests.differential.peers import load
from tests.metrics.build import case_row, class_spec, score_under

FOREIGN = 77
SPEC = class_spec(3).replace(count_invalid=True)


def draw(seed=0, shape=(20, 31)):
    """Three classes and ignored pixels; a tenth of the prediction is no class."""
    rng = np.random.default_rng(seed)
    target = rng.integers(0, 3, shape)
    labels = np.where(rng.random(shape) < 0.3, rng.integers(0, 3, shape), target)
    target[rng.random(shape) < 0.1] = 255
    labels[rng.random(shape) < 0.1] = FOREIGN
    return target, labels


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16", "int64"])
def test_the_last_column_is_what_is_no_class(dtype):
    target, labels = (one.astype(dtype) for one in draw())
    found = confusion_matrix(target, labels, num_classes=3, ignore_index=255, count_invalid=True)
    valid = target != 255
    sklearn = load("sklearn.metrics", "scikit-learn")
    wanted = sklearn.confusion_matrix(target[valid], labels[valid], labels=[0, 1, 2, FOREIGN])
    np.testing.assert_array_equal(found, wanted[:3])
    assert found.dtype == np.int64
    with pytest.raises(InputError, match=f"`labels` to hold only classes 0 to 2, got .* of {FOREIGN}"):
        confusion_matrix(target, labels, num_classes=3, ignore_index=255)


def test_a_foreign_target_is_refused_all_the_same():
    target, labels = draw()
    with pytest.raises(InputError, match="`target` to hold only classes") as error:
        confusion_matrix(target, labels, num_classes=3, count_invalid=True)
    assert len(error.value.problems) == 1, "the prediction's are counted"


def test_scores_are_those_of_a_class_that_is_never_there():
    """Mutation seen to fail: MCC without the spread of invalid predictions."""
    sklearn = load("sklearn.metrics", "scikit-learn")
    target, labels = draw(1)
    valid = target != 255
    counts = confusion_matrix(target, labels, num_classes=3, ignore_index=255, count_invalid=True)
    scores = overlap_scores(counts, count_invalid=True)
    assert_agree(scores.kappa, sklearn.cohen_kappa_score(target[valid], labels[valid]))
    assert_agree(scores.mcc, sklearn.matthews_corrcoef(target[valid], labels[valid]))
    assert_agree(scores.pixel_accuracy, sklearn.accuracy_score(target[valid], labels[valid]))
    assert_agree(scores.iou, sklearn.jaccard_score(target[valid], labels[valid], average=None, labels=[0, 1, 2]))
    with pytest.raises(InputError, match=r"K, K \+ 1"):
        overlap_scores(counts[:, :3], count_invalid=True)


def test_rows_keep_the_column(tmp_path):
    rows = [case_row("a", [[5, 1, 0, 2], [0, 7, 0, 1], [0, 0, 0, 0]]), case_row("b", [[1, 0, 0, 0]] * 3)]
    write_cases(tmp_path, rows, SPEC)
    for one, other in zip(rows, read_cases(tmp_path), strict=True):
        np.testing.assert_array_equal(one.counts, other.counts)
    assert '\n"b",4,5' in (tmp_path / "cases.csv").read_text()
    assert ",invalid," in (tmp_path / "cases.csv").read_text()
    found = summarise(rows, SPEC, MetricsConfig(bootstrap=0, groups={"way": ("road", "car")}))
    assert found["invalid"] == {"sky": 2, "road": 1, "car": 0}
    assert found["per_class"]["sky"]["iou"] == 6 / (6 + 1 + 2 + 2)  # tp, fn to road, invalid, fp of b
    # inside the group: 7 right; 1 road invalid, 2 predicted as sky in b; 1 sky as road
    assert found["per_group"]["way"]["iou"] == 7 / (7 + 1 + 2 + 1)
    assert score_under("cityscapes", rows, SPEC)["mean_iou"] == found["dataset"]["mean_iou"]


def test_score_counts_them_where_asked_for(tmp_path, capsys):
    for side, one in zip(("references", "predictions"), draw(2), strict=True):
        (tmp_path / side).mkdir()
        Image.fromarray(one.astype(np.uint8)).save(tmp_path / side / "a.png")
    command = ["score", f"predictions={tmp_path / 'predictions'}", f"references={tmp_path / 'references'}"]
    command += ["data.num_classes=3", "data.ignore_index=255", "metrics.bootstrap=0", f"run.root={tmp_path / 'runs'}"]
    command += ["metrics.measures=[surface,boundary,error_types,instances]", "report.html=false"]
    with pytest.raises(SystemExit) as error:
        main(command)
    assert error.value.code == 2
    assert f"{FOREIGN}" in capsys.readouterr().err
    main([*command, "data.invalid=count"])
    assert "predicted outside the classes, counted as missed" in " ".join(capsys.readouterr().out.split())
    (folder,) = [run for run in (tmp_path / "runs" / "score").iterdir() if (run / "metrics.json").exists()]
    summary = json.loads((folder / "metrics.json").read_text())
    target, labels = draw(2)
    assert sum(summary["invalid"].values()) == ((labels == FOREIGN) & (target != 255)).sum()
    spec = class_spec(3).replace(names=("class_0", "class_1", "class_2"))
    config = MetricsConfig(bootstrap=0, measures=("surface", "boundary", "error_types", "instances"))
    ours = segmeter.evaluate([("a", target, labels)], classes=spec, count_invalid=True, metrics=config)
    assert ours.summary | {"spacing": None} == summary | {"spacing": None}


def test_measures_take_them_as_no_class():
    """As if they were a fourth class, which is not measured."""
    measures = ("surface", "boundary", "error_types", "instances", "cldice")
    target, labels = (one.repeat(3, 0).repeat(3, 1) for one in draw(3))
    config = MetricsConfig(bootstrap=0, measures=measures)
    found = segmeter.evaluate([("a", target, labels)], classes=SPEC, metrics=config)
    four = class_spec(4)
    named = tuple({"name": name, "classes": SPEC.names} for name in measures)
    other = np.where(labels == FOREIGN, 3, labels)
    wanted = segmeter.evaluate([("a", target, other)], classes=four, metrics=MetricsConfig(bootstrap=0, measures=named))
    assert found.rows[0].scores == wanted.rows[0].scores


def test_multilabel_has_no_such_column():
    with pytest.raises(ConfigError, match="count_invalid"):
        class_spec(3, task="multilabel").replace(count_invalid=True)
