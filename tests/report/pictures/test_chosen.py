"""The cases that are worth a picture, those that a page shows, and the list of the worst with their crops."""

import csv
import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from segmeter.classes import ClassSpec
from segmeter.metrics.cases.stored import write_cases
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.pixels.confusion import count_case
from segmeter.metrics.summary.scoreboard import build_scoreboard
from segmeter.report.config import ReportConfig
from segmeter.report.pictures.chosen import Ranking, choose_cases, choose_pictures, take_turns
from segmeter.report.pictures.maps import classify_errors, find_wrong
from segmeter.report.pictures.worst import EDGE, find_crop, write_crops, write_worst_list
from tests.metrics.build import case_row, class_spec

from ..conftest import write_picture

RANKING = Ranking(case_ids=sorted([*"abcdef", "undefined", "none"]), worst=["f", "none", *"edcba"])


def test_the_worst_the_worst_of_classes_and_a_sample_take_turns_within_the_limit(tmp_path, rng, spec):
    """Without a limit all are there; in their order the worst is first, then the class's, then one of the sample."""
    for name in (*"abcdef", "undefined"):
        write_picture(tmp_path, name, rng, spec)
    order = take_turns(replace(RANKING, of_classes=["b", "none"]))
    (shown,), left_out = choose_pictures([tmp_path], order, ReportConfig(), page=tmp_path)
    assert list(shown)[:2] == ["f", "b"]
    assert (set(shown), left_out) == ({*"abcdef", "undefined"}, [])
    size = max(len(json.dumps(picture)) for picture in shown.values())
    limited = ReportConfig(picture_mb=3.2 * size / 2**20)
    (fewer,), left_out = choose_pictures([tmp_path], take_turns(RANKING), limited, page=tmp_path)
    assert len(fewer) == 3
    assert set(fewer) | set(left_out) == set(shown)
    assert choose_pictures([tmp_path / "none"], order, ReportConfig(), page=tmp_path) == ([{}], [])


def ranked(scores, **changes):
    """Cases whose road has an IoU of TP / 10, or is undefined."""
    counts = {name: [[5, 0], [10 - tp, tp]] if tp is not None else [[5, 0], [0, 0]] for name, tp in scores.items()}
    config = MetricsConfig(bootstrap=0, **changes)
    return Ranking.of(
        build_scoreboard([case_row(name, one) for name, one in counts.items()], class_spec(2, "binary"), config)
    )


CHOSEN = {"a": 9, "b": 1, "c": 5, "d": None, "e": 2, "f": None}


def test_cases_are_ranked_by_the_headline_the_worst_first_and_undefined_ones_nowhere():
    ranking = ranked(CHOSEN)
    assert list(ranking.worst) == ["b", "e", "c", "a"]
    assert ranking.headline == "iou/road"
    assert list(ranking.of_classes) == ["b", "b"]
    assert ranking.scores["e"] == pytest.approx(0.2)
    assert list(ranked(CHOSEN, headline="precision/road").worst) == ["a", "b", "c", "e"]  # all of them 1


def test_the_worst_a_sample_and_the_worst_of_each_class_are_chosen():
    chosen = choose_cases(ranked(CHOSEN), ReportConfig(overlays=3, worst=2))
    assert {"b", "e"} <= chosen
    assert len(chosen) in (2, 3)  # the sample may be one of the worst
    ranking = Ranking(case_ids="abcdef", worst="becad", of_classes=["a", "e"])
    assert choose_cases(ranking, ReportConfig(overlays=1, worst=1)) == {"a", "b", "e"}
    for overlays, expected in ((-1, set(CHOSEN)), (0, set())):
        assert choose_cases(ranked(CHOSEN), ReportConfig(overlays=overlays)) == expected


SPEC = ClassSpec(
    task="multiclass", names=("ground", "car", "tree"), colours=((0, 0, 0), (255, 0, 0), (0, 255, 0)), ignore_index=255
)


def scene(share, *, size=(300, 400), spec=SPEC):
    """Image, target and prediction of which a share of the left half is wrong; ignored on the right."""
    target = np.ones(size, np.uint8)
    target[:, 200:] = 255
    labels = target.copy()
    labels[: round(share * size[0]), :200] = 2
    labels[:, 200:] = 0
    image = np.arange(size[0] * size[1] * 3, dtype=np.uint32).astype(np.uint8).reshape(*size, 3)
    return image, target, labels


def read(path):
    with Image.open(path) as stored:
        return np.asarray(stored)


def test_the_crop_has_the_most_wrong_pixels():
    """Against every window of a brute-force search, to the cell that crops begin at."""
    rng = np.random.default_rng(5)
    for height, width in ((256, 256), (300, 700), (513, 270), (40, 30), (1, 1000)):
        wrong = rng.random((height, width)) < 0.02
        part = wrong[height // 2 :, width // 3 : width // 2]
        part |= rng.random(part.shape) < 0.5
        rows, columns = find_crop(wrong)
        assert (rows.stop - rows.start, columns.stop - columns.start) == (min(EDGE, height), min(EDGE, width))
        assert 0 <= rows.start <= rows.stop <= height
        assert 0 <= columns.start <= columns.stop <= width
        places = (range(0, max(1, side - EDGE + 1), 8) for side in (height, width))
        best = max(wrong[top : top + EDGE, left : left + EDGE].sum() for top, left in itertools.product(*places))
        assert wrong[rows, columns].sum() >= 0.9 * best


def test_the_worst_cases_are_listed_with_crops_that_hold_what_is_stored(tmp_path):
    rows = []
    for case_id, share in {"a/1": 0.9, "b": 0.1, "c": 0.5, "d": 0.0, "e": None}.items():
        image, target, labels = scene(share or 0)
        target = np.full_like(target, 255) if share is None else target
        rows.append(case_row(case_id, count_case(target, labels, SPEC)))
        if case_id in ("a/1", "c"):
            write_crops(tmp_path, case_id, SPEC, image=image, target=target, labels=labels)
    write_cases(tmp_path, rows, SPEC)
    write_worst_list(tmp_path, SPEC, MetricsConfig(), 9)
    with (tmp_path / "worst.csv").open() as file:
        *found, plain, right = csv.DictReader(file)
    assert [row["case_id"] for row in (*found, plain, right)] == ["a/1", "c", "b", "d"], "e has no score"
    assert (plain["crops"], plain["crop_top"]) == ("", ""), "as of masks without an image"
    assert (right["weakest_class"], right["weakest_iou"]) == ("car", "1.0")
    assert sorted(path.name for path in (tmp_path / "worst").iterdir()) == sorted(row["crops"][6:] for row in found)
    image, target, labels = scene(0.9)
    first = found[0]
    assert float(first["mean IoU"]) == pytest.approx((30 / 300 + 0) / 2)
    assert (first["weakest_class"], first["weakest_iou"]) == ("tree", "0.0")
    assert (first["wrong_pixels"], first["slice"]) == (str(270 * 200), "")
    top, left, height, width = (int(first[f"crop_{name}"]) for name in ("top", "left", "height", "width"))
    window = slice(top, top + height), slice(left, left + width)
    assert int(first["crop_wrong_pixels"]) == find_wrong(classify_errors(target, labels, SPEC))[window].sum()
    for name, whole in (("image", image), ("target", target), ("prediction", labels)):
        np.testing.assert_array_equal(read(tmp_path / first["crops"] / f"{name}.png"), whole[window])


def test_each_class_of_a_multilabel_crop_has_its_file_and_a_spectrum_is_made_visible(tmp_path):
    spec = ClassSpec(task="multilabel", names=("a", "b"), colours=((9, 9, 9), (1, 2, 3)))
    target = np.zeros((2, 20, 30), np.uint8)
    target[1, 3:5] = 1
    image = np.random.default_rng(0).normal(size=(20, 30, 5)).astype(np.float32)
    write_crops(tmp_path, "x", spec, image=image, target=target, labels=1 - target, corner=(40, 8), plane_number=7)
    folder = tmp_path / "worst" / "x"
    place = json.loads((folder / "crop.json").read_text())
    assert [place[name] for name in ("crop_top", "crop_left", "slice")] == [40, 8, 7]
    names = {"image.png", "crop.json", *(f"{kind}-{name}.png" for kind in ("target", "prediction") for name in "ab")}
    assert {path.name for path in folder.iterdir()} == names
    np.testing.assert_array_equal(read(folder / "target-b.png"), target[1])
    assert read(folder / "image.png").shape == (20, 30, 3)


def test_no_cases_leave_no_list(tmp_path):
    write_worst_list(tmp_path, SPEC, MetricsConfig(), 0)
    assert not list(tmp_path.iterdir())
