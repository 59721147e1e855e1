"""Comparing runs: the figures of two folders, and what makes runs incomparable."""

import json
import re
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from segmeter.classes import ClassSpec
from segmeter.errors import DataError, InputError
from segmeter.evaluation.compare import compare, short_names
from segmeter.evaluation.score import score
from segmeter.metrics.cases.stored import write_cases
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.config.measures import InstancesConfig
from segmeter.metrics.config.scores import is_overall
from segmeter.metrics.statistics import columns
from segmeter.metrics.summary.scoreboard import PER_CASE
from tests.data.crafted import THREE
from tests.evaluation.masks import FEW, LABELS, TARGETS, put_masks, scoring


def make_run(folder, *, targets=TARGETS, labels=LABELS, spec=THREE, config=FEW):
    put_masks(folder / "references", targets)
    put_masks(folder / "predictions", labels)
    score(replace(scoring(folder, spec=spec), metrics=config))
    return folder


CELLS = ClassSpec(task="binary", names=("ground", "cell"), colours=((0, 0, 0), (255, 255, 255)))
TWO = [1, 1, 1, 1, 0, 1, 1, 1, 1]  # two objects of 4 pixels, one apart
MERGED = [1] * 9  # IoU 8 / 9, and no object overlaps another by more than half
APART = [0, 1, 1, 1, 0, 1, 1, 1, 0]  # IoU 6 / 8, PQ .75


def cells(row, cases=6):
    return {f"c{i}": [row, [0] * 9] for i in range(cases)}


def measured(**settings):
    return FEW.replace(measures=(InstancesConfig(**settings),))


def make_two(folder, *configs):
    return [
        make_run(folder / name, targets=cells(TWO), labels=cells(row), spec=CELLS, config=config)
        for name, row, config in zip(("merged", "apart"), (MERGED, APART), configs, strict=True)
    ]


def test_pq_that_says_the_opposite_is_shown_and_can_rank(tmp_path):
    runs = make_two(tmp_path, measured(), measured())
    result = compare(runs, FEW)
    assert (result["rank_by"], result["order"]) == ("pq/cell", ["apart", "merged"])
    assert result["other_orders"]["mean_iou"] == ["merged", "apart"]
    entry = result["metrics"]["pq/cell"]
    for name, folder in zip(("merged", "apart"), runs, strict=True):
        own = json.loads((folder / "metrics.json").read_text())["measures"]
        for metric in ("pq", "rq"):
            found, wanted = result["metrics"][f"{metric}/cell"], own[metric]["cell"]
            assert (found["dataset"][name], found["per_case"][name]) == (wanted["dataset"], wanted["mean"])
    assert entry["dataset"] == entry["per_case"] == {"merged": 0.0, "apart": 0.75}
    (pair,) = entry["pairs"]
    assert (pair["dataset_difference"], pair["per_case_difference"]) == (0.75, 0.75)
    assert pair["dataset_ci95"] == pair["per_case_ci95"] == [0.75, 0.75]
    assert pair["wilcoxon_p"] < 0.05
    assert pair["sign_flip_p"] < pair["sign_flip_p_holm"]  # over the metrics of all single classes
    assert (entry["better"], entry["ranked_by"]) == ("higher", "dataset")
    again = compare(runs, FEW, rank_by="pq")
    assert (again["rank_by"], again["order"]) == ("pq/mean", ["apart", "merged"])
    by_pixels = compare(runs, FEW, rank_by="mean_iou")
    assert by_pixels["other_orders"]["pq/mean"] == by_pixels["other_orders"]["pq/cell"] == ["apart", "merged"]


def test_what_one_run_measured_alone_is_named(tmp_path):
    result = compare(make_two(tmp_path, FEW, measured()), FEW)
    assert [name for name in result["metrics"] if is_overall(name)] == list(PER_CASE)
    assert "pq/cell" in result["not_shared"]


@pytest.mark.parametrize(
    ("rank_by", "message"), [("mean_uio", "'mean_uio'. Did you mean 'mean_iou'"), ("pq", "got 'pq'. Known")]
)
def test_a_metric_that_cannot_rank_is_refused(rank_by, message, tmp_path):
    with pytest.raises(InputError, match=message):
        compare(make_two(tmp_path, FEW, FEW), FEW, rank_by=rank_by)


SLICES = {f"p{i}_{j}": [[0, 1, 2], [i, j % 3, 2]] for i in range(3) for j in range(4)}
WORSE = {case: [[0, 1, 2], [0, 0, 2]] for case in SLICES}
GROUPED = FEW.replace(cluster="prefix:_")


def test_clusters_are_those_of_the_runs_unless_they_are_set(tmp_path):
    one, two, free = (
        make_run(tmp_path / name, targets=SLICES, labels=labels, config=config)
        for name, labels, config in (("one", SLICES, GROUPED), ("two", WORSE, GROUPED), ("free", WORSE, FEW))
    )
    inherited = compare([one, two], FEW)
    assert inherited == compare([one, two], GROUPED)
    assert (inherited["bootstrap"]["cluster"], inherited["bootstrap"]["n_units"]) == ("prefix:_", 3)
    message = "the same metrics.cluster, as 'one' with prefix:_, got none in 'free'. Set metrics.cluster"
    with pytest.raises(InputError, match=message):
        compare([one, free], FEW)
    assert compare([one, free], GROUPED)["bootstrap"]["n_units"] == 3


SMALL = {"c": [[0]]}
MOVED_B = {"b": [[2, 1, 1], [0, 0, 1]]}  # with as many pixels of each class


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param({"targets": TARGETS | SMALL, "labels": LABELS | SMALL}, "1 missing from 'one': c", id="cases"),
        pytest.param({"targets": TARGETS | {"b": LABELS["b"]}}, "with another target: b", id="targets"),
        pytest.param({"targets": TARGETS | MOVED_B}, "with another target: b", id="moved targets"),
        pytest.param({"spec": THREE.replace(names=("a", "b", "d"))}, "'one' with a, b, c, got a, b, d", id="classes"),
        pytest.param(
            {"targets": SMALL, "labels": SMALL, "spec": THREE.replace(ignore_index=None)},
            "same ignore_index, as 'one' with 255, got none in 'two'",
            id="ignored value",
        ),
        pytest.param(
            {"config": FEW.replace(background=False)},
            "(metrics.background), as this comparison with a, b, c",
            id="background",
        ),
        pytest.param({"config": measured(threshold=0.7)}, "threshold, as 'one' with 0.5, got 0.7", id="setting"),
    ],
)
def test_runs_that_differ_are_refused(changes, message, tmp_path):
    config = measured() if "threshold" in message else FEW
    one, two = make_run(tmp_path / "one", config=config), make_run(tmp_path / "two", **changes)
    with pytest.raises(InputError, match=re.escape(message)):
        compare([one, two], FEW)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"connectivity": 8', '"touching": "corners"', "It is called 'connectivity' now."),
        ('"convention": "segmeter"', '"convention": "other"', "with segmeter, got other in 'one'"),
    ],
)
def test_summaries_that_say_something_else_are_refused(old, new, message, tmp_path):
    runs = [make_run(tmp_path / name, config=measured()) for name in ("one", "two")]
    for run in runs:
        written = (run / "metrics.json").read_text()
        assert old in written
        (run / "metrics.json").write_text(written.replace(old, new))
    with pytest.raises(InputError, match=re.escape(message)):
        compare(runs, FEW)


@pytest.mark.parametrize("content", [None, "{", "[]"])
def test_what_is_no_finished_run_is_refused(content, tmp_path):
    one = make_run(tmp_path / "one")
    (tmp_path / "two").mkdir()
    if content is not None:
        (tmp_path / "two" / "metrics.json").write_text(content)
    with pytest.raises(DataError, match=r"metrics\.json"):
        compare([one, tmp_path / "two"], FEW)


def test_names_are_as_short_as_they_can_be():
    dated = [Path("/r/2026-01-02_030405_a"), Path("/r/2026-01-02_030406_b")]
    assert short_names(dated) == ["a", "b"]
    same = [Path("/r/2026-01-02_030405_a"), Path("/r/2026-01-02_030406_a")]
    assert short_names(same) == ["2026-01-02_030405_a", "2026-01-02_030406_a"]
    assert short_names([Path("/r/a"), Path("/q/a")]) == ["/r/a", "/q/a"]


@pytest.mark.parametrize(
    ("folders", "message"),
    [([Path("/r/a")], "two or more run folders, got 1"), ([Path("/r/a"), Path("/r/b/../a")], "/r/a twice")],
)
def test_one_run_or_the_same_twice_is_refused(folders, message):
    with pytest.raises(InputError, match=message):
        compare(folders, FEW)


def test_a_case_takes_less_memory_than_its_rows_would(tmp_path, monkeypatch):
    """With a row object for each case it took 3.3 KB of each."""
    monkeypatch.setattr(columns, "MOST_UNITS", 256)  # what more cases are pooled in
    peaks = [peak_of_comparing(tmp_path / str(count), count) for count in (500, 4500)]
    assert peaks[1] - peaks[0] < 4000 * 1000


def peak_of_comparing(place, count):
    counts = np.random.default_rng(0).integers(0, 99, (count, 3, 3))
    for name, each in (("a", counts), ("b", counts[:, :, ::-1])):
        (place / name).mkdir(parents=True)
        rows = [CaseRow(case_id=f"c{i:06d}", height=9, width=9, counts=one) for i, one in enumerate(each)]
        write_cases(place / name, rows, THREE)
        summary = {"convention": FEW.convention, "bootstrap": {"cluster": None}}
        (place / name / "metrics.json").write_text(json.dumps(summary))
    tracemalloc.start()
    compare([place / "a", place / "b"], FEW)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak
