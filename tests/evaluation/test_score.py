"""Scoring folders: what is counted, paired and refused, all of it at once; and misses, which never look better."""

import itertools
import math
import tracemalloc
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from scipy import ndimage
from sklearn.metrics import confusion_matrix

from segmeter.api.evaluation import evaluate
from segmeter.classes import ClassSpec
from segmeter.data.sample import Reading
from segmeter.errors import DataError, InputError
from segmeter.evaluation import case_scorer
from segmeter.evaluation.manifest import Entry
from segmeter.evaluation.mask_pairs import MaskPair, Pairing
from segmeter.evaluation.score import Scoring, score
from segmeter.evaluation.spacings import UNKNOWN_SPACING
from segmeter.metrics.cases import table as rows
from segmeter.metrics.cases.stored import read_cases
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.config.measures import BoundaryConfig, InstancesConfig, SurfaceConfig
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.objects.scores import match_instances
from segmeter.metrics.statistics import bootstrap, columns
from segmeter.metrics.summary import scoreboard
from tests.data.crafted import BINARY, THREE, encoded, noise, put
from tests.evaluation.masks import TARGETS, changed, pair_masks, put_masks, put_sides, scoring, two_cases

PLANES = ClassSpec(task="multilabel", names=("x", "y"), colours=((0, 0, 0), (9, 9, 9)), ignore_index=255)


def test_rows_equal_an_independent_count_of_each_file(tmp_path):
    rng = np.random.default_rng(3)
    pairs = {f"case {i}": rng.integers(0, 3, (2, 17, 11 + i), dtype=np.uint8) for i in range(40)}
    for name, pair in pairs.items():
        put_sides(tmp_path, *pair, f"{name}.png")
    job = scoring(tmp_path)
    score(job)
    rows = {row.case_id: row for row in read_cases(tmp_path)}
    assert len(rows) == len(pairs)
    for pair in job.pairing.pairs:
        row, (target, labels) = rows[pair.case_id], pairs[pair.stem]
        assert row.counts.tolist() == confusion_matrix(target.ravel(), labels.ravel(), labels=range(3)).tolist()
        assert (row.height, row.width) == target.shape


def test_the_label_map_is_of_both_folders(tmp_path):
    put_sides(tmp_path, np.uint8([[0, 255], [255, 255]]), np.uint8([[0, 255], [255, 0]]))
    job = scoring(tmp_path, spec=BINARY, label_map={"0": 0, "255": 1})
    assert score(job)["confusion_matrix"] == [[1, 0], [1, 2]]


def test_multilabel_takes_one_folder_per_class(tmp_path):
    put_masks(tmp_path / "references" / "x", {"a": [[1, 0, 1]]})
    put_masks(tmp_path / "references" / "y", {"a": [[0, 255, 1]]})
    put_masks(tmp_path / "predictions" / "x", {"a": [[1, 1, 0]]})
    put_masks(tmp_path / "predictions" / "y", {"a": [[0, 1, 1]]})
    summary = score(scoring(tmp_path, spec=PLANES))
    assert summary["confusion_matrices"] == [[[0, 1], [1, 1]], [[1, 0], [0, 1]]]


def test_every_bad_file_is_named_at_once_and_nothing_is_written(tmp_path):
    good = np.zeros((4, 4), np.uint8)
    bad: dict[str, tuple[bytes | np.ndarray, str]] = {
        "cut": (encoded(good)[:40], "cut.png"),
        "foreign": (good + 7, "expected `mask` to hold only 0 to 2 and 255 (ignored), got 7 (16 pixels)"),
        "small": (good[:3], "3 x 4 (height x width)"),
        "undecided": (good + 255, "got 16 pixels of the ignored value 255"),
        "colour": (noise(4, 4), "to have one channel"),
    }
    for name, (content, _) in bad.items():
        put_sides(tmp_path, good, content, f"{name}.png")
    put(tmp_path / "references" / "lossy.jpg", encoded(noise(4, 4, None), "JPEG"))
    put(tmp_path / "predictions" / "lossy.png", good)
    with pytest.raises(DataError) as caught:
        score(scoring(tmp_path))
    assert caught.value.exit_code == 2
    assert len(caught.value.problems) == 6
    text = str(caught.value)
    assert all(message in text for _, message in bad.values())
    assert "a lossy JPEG file" in text
    assert not (tmp_path / "metrics.json").exists()


def test_the_ignored_value_may_be_predicted_only_where_the_reference_is_ignored(tmp_path):
    put_sides(tmp_path, np.uint8([[0, 255]]), np.uint8([[0, 255]]))
    assert score(scoring(tmp_path))["confusion_matrix"] == [[1, 0, 0], [0, 0, 0], [0, 0, 0]]


def test_a_folder_is_not_scored_against_itself(tmp_path):
    put_masks(tmp_path, TARGETS)
    with pytest.raises(DataError, match="to be another folder than references"):
        pair_masks(tmp_path, tmp_path / ".", spec=THREE)


def test_the_fingerprint_follows_names_and_sizes(tmp_path):
    pairing = scoring(two_cases(tmp_path)).pairing
    before = pairing.fingerprint()
    put(tmp_path / "predictions" / "a.png", noise(40, 40, None) % 3)
    assert pairing.fingerprint() != before


def test_what_the_summary_refuses_leaves_no_tables(tmp_path):
    refused = two_cases(tmp_path)
    with pytest.raises(InputError, match="cluster"):
        score(replace(scoring(refused), metrics=MetricsConfig(cluster="no(where)")))
    assert not list(refused.glob("cases.*"))


K = 19
MOST_BYTES = 1500  # a case: its counts, which hardly compress here, are 500, and the paths of its files 400
SPEC = ClassSpec(task="multiclass", names=tuple(f"class_{k}" for k in range(K)), colours=((0, 0, 0),) * K)


def invented(pair):
    """A row as a picture of 2 megapixels leaves it, without the picture."""
    rng = np.random.default_rng(number := int(pair.stem))
    counts = rng.integers(0, 3000, (K, K)) * (rng.random((K, K)) < 0.3) + np.diag(rng.integers(0, 10**6, K))
    row = CaseRow(case_id=pair.case_id, height=1024, width=2048, counts=counts)
    return Entry(case_id=pair.case_id, row=row, sha256=f"{number:064}", resume_facts=vars(UNKNOWN_SPACING))


def peak(folder, count):
    folder.mkdir()
    tracemalloc.start()
    pairs = []
    for name in (f"{i:011}" for i in range(count)):
        sides = [(folder / side / f"{name}.png",) for side in ("references", "predictions")]
        pairs.append(MaskPair(case_id=name, stem=name, references=sides[0], predictions=sides[1]))
    reading, metrics = Reading(spec=SPEC, max_pixels=1), MetricsConfig(bootstrap=100)
    score(Scoring(pairing=Pairing(pairs=pairs, extra=()), reading=reading, metrics=metrics, folder=folder))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most + pa.default_memory_pool().max_memory()  # which is never set back


@pytest.mark.slow
def test_memory_grows_by_little_more_than_the_counts_of_a_case(tmp_path, monkeypatch):
    """Beyond what is held whatever the number of cases: here less of it, so that few cases show it."""
    monkeypatch.setattr(case_scorer.CaseScorer, "__call__", lambda _, pair: invented(pair))
    monkeypatch.setattr(rows, "BLOCK", 64)
    monkeypatch.setattr(scoreboard, "_CASES", 64)
    monkeypatch.setattr(bootstrap, "_BLOCK", 1000)
    monkeypatch.setattr(columns, "_DRAWN", 1000)
    monkeypatch.setattr(columns, "_LEAST_ROWS", 8)
    monkeypatch.setattr(columns, "_MANY_DRAWS", 0)
    peak(tmp_path / "warm", 10)
    few, many = peak(tmp_path / "few", 300), peak(tmp_path / "many", 1300)
    assert 100 < (many - few) / 1000 < MOST_BYTES


MEASURED = MetricsConfig(bootstrap=0, measures=(InstancesConfig(objects="maps"),))


def discs(count=12):
    """Objects 1 to N in a grid; 7 and 8 touch, so that they are one connected part."""
    numbers = np.zeros((60, 80), np.uint16)
    rows, columns = np.indices(numbers.shape)
    for number in range(count):
        centre = 10 + 20 * (number // 4), 10 + 20 * (number % 4)
        numbers[np.hypot(rows - centre[0], columns - centre[1]) < 6] = number + 1
    numbers[30, 50:72][numbers[30, 50:72] == 0] = 7
    return numbers


def job(folder, references, predictions, **changes):
    put_sides(folder, references, predictions)
    return changed(scoring(folder, spec=BINARY), metrics=MEASURED, **changes)


def found(summary):
    return tuple(summary["measures"][name]["cell"]["dataset"] for name in ("pq", "tp", "fp", "fn"))


@pytest.mark.parametrize(("side", "value"), [("references", 255), ("predictions", 1)])
def test_a_mask_of_labels_given_as_object_numbers_is_refused_with_the_key(tmp_path, side, value):
    numbers = discs()
    labels = np.where(numbers > 0, np.uint8(value), np.uint8(0))
    wrong, maps = ("predictions", (numbers, labels)) if side == "references" else ("references", (labels, numbers))
    found = f"got one number, {value}, in 11 separate parts, where the other side has 12 objects"
    rule = rf"{wrong}/a.png: expected `mask` to hold numbers of objects, {found}.*data.instances={side}"
    with pytest.raises(DataError, match=rule):
        score(job(tmp_path, *maps, instances=True))


def test_connected_parts_of_one_side_are_matched_with_the_objects_of_the_other(tmp_path):
    numbers = discs()
    labels = np.where(numbers > 0, np.uint8(255), np.uint8(0))
    summary = score(job(tmp_path, numbers, labels, instances="references", label_map={"0": 0, "255": 1}))
    wanted = match_instances(numbers.astype(np.int64), ndimage.label(labels, np.ones((3, 3)))[0])
    assert found(summary) == pytest.approx((wanted.pq, wanted.tp, wanted.fp, wanted.fn))
    assert (wanted.tp, wanted.fp, wanted.fn) == (11, 0, 1)  # the two that touch are one part
    turned = score(job(tmp_path / "turned", labels, numbers, instances="predictions", label_map={"0": 0, "255": 1}))
    assert turned["confusion_matrix"] == summary["confusion_matrix"]
    assert found(turned)[1:] == (11, 1, 0)


def test_one_object_in_a_few_parts_is_taken_as_it_is(tmp_path):
    numbers, one = discs(), np.zeros((60, 80), np.uint8)
    one[5:15, 5:15], one[40, 70] = 3, 3
    assert found(score(job(tmp_path, numbers, one, instances=True)))[1:] == (1, 0, 11)
    single = (discs() == 4).astype(np.uint8) * 9
    assert found(score(job(tmp_path / "single", single, single, instances=True)))[0] == 1.0


def test_a_side_of_labels_is_still_checked(tmp_path):
    with pytest.raises(DataError, match=r"predictions/a.png: expected `mask` to hold only 0 to 1, got 12"):
        score(job(tmp_path, discs(), (discs() == 3).astype(np.uint8) * 12, instances="references"))


@pytest.mark.parametrize("side", ["references", "predictions"])
def test_touching_objects_under_one_label_are_warned_of(tmp_path, side):
    """Where nearly all objects touch, a label has few parts, so that these do not tell it from an object."""
    numbers = np.repeat(np.repeat(np.arange(1, 26).reshape(5, 5), 8, axis=0), 8, axis=1).astype(np.uint16)
    numbers[:, :3] = 0
    labels = np.where(numbers > 0, np.uint8(255), np.uint8(0))
    first, second = (labels, numbers) if side == "references" else (numbers, labels)
    (warning,) = score(job(tmp_path, first, second, instances=True))["spacing"]["warnings"]
    assert warning.startswith(f"{side} have one number where the other side has objects; if it is a label, set data.")
    assert warning.endswith(" (1: a).")
    maps = [("a", first.astype(int), second.astype(int))]
    found = evaluate(maps, classes=["ground", "cell"], task="binary", instances=True)
    assert found.summary["spacing"]["warnings"] == [warning]
    assert "have one number where" in found.table()


CASES, MISSED = 20, (0, 10, 18, 20)
DISTANCES = ("hd", "hd95", "hd95_pooled", "assd", "masd")
CELL = BINARY.names[1]


def object_at(column):
    mask = np.zeros((20, 24), np.uint8)
    mask[4:12, column : column + 8] = 1
    return mask


def scores_with(root, missed, **surface):
    for i in range(CASES):
        put(root / "references" / f"{i:02d}.png", object_at(4))
        put(root / "predictions" / f"{i:02d}.png", np.zeros((20, 24), np.uint8) if i < missed else object_at(8))
    measures = (SurfaceConfig(**surface), BoundaryConfig(width=1))
    metrics = MetricsConfig(bootstrap=50, background=False, measures=measures)
    return score(replace(scoring(root, spec=BINARY), metrics=metrics))


@pytest.fixture(scope="module")
def summaries(tmp_path_factory):
    return {missed: scores_with(tmp_path_factory.mktemp(f"missed{missed}"), missed) for missed in MISSED}


def values(summaries, metric, key):
    return [float(summaries[missed]["measures"][metric][CELL][key]) for missed in MISSED]


def test_hd95_is_4_without_a_miss_and_infinite_with_one(summaries):
    assert values(summaries, "hd95", "mean") == [4, math.inf, math.inf, math.inf]
    assert values(summaries, "hd95", "median") == [4, math.inf, math.inf, math.inf]  # of half and half: their mean
    assert values(summaries, "hd95", "n_penalised") == list(MISSED)
    assert values(summaries, "hd95", "n_used") == [CASES] * 4


def test_no_distance_falls_and_every_overlap_does(summaries):
    for metric in DISTANCES:
        for key in ("mean", "median"):
            found = values(summaries, metric, key)
            assert found == sorted(found), (metric, key)
            assert found[0] < found[-1], (metric, key)
    overlaps = [values(summaries, metric, "mean") for metric in ("nsd@1", "boundary_iou")]
    overlaps += [[summaries[missed]["per_case"]["mean_iou"]["mean"] for missed in MISSED]]
    overlaps += [[summaries[missed]["dataset"]["mean_iou"] for missed in MISSED]]
    for found in overlaps:
        assert found[-1] == 0
        assert all(one > other for one, other in itertools.pairwise(found))
    assert [overlaps[2][0], overlaps[3][0]] == pytest.approx([1 / 3] * 2, rel=1e-12)  # half of 8 x 8 is common


def test_a_finite_penalty_makes_the_mean_rise_with_every_miss(tmp_path):
    found = [
        scores_with(tmp_path / str(missed), missed, penalty="diagonal")["measures"]["hd95"][CELL]["mean"]
        for missed in MISSED
    ]
    assert found == pytest.approx([4 + (math.hypot(20, 24) - 4) * missed / CASES for missed in MISSED], rel=1e-12)
