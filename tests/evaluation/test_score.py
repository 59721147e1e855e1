"""Scoring folders: what is counted, what is paired, and what is refused, all of it at once."""

import tracemalloc
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from sklearn.metrics import confusion_matrix

from segmeter.classes import ClassSpec
from segmeter.data.sample import Reading
from segmeter.errors import DataError, InputError
from segmeter.evaluation import cases
from segmeter.evaluation.manifest import Entry
from segmeter.evaluation.pairing import MaskPair, Pairing
from segmeter.evaluation.score import Scoring, score
from segmeter.evaluation.spacings import UNKNOWN_SPACING
from segmeter.metrics.cases import table as rows
from segmeter.metrics.cases.stored import read_cases
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.statistics import bootstrap, columns
from segmeter.metrics.summary import scoreboard
from tests.data.crafted import BINARY, THREE, encoded, noise, put
from tests.evaluation.masks import TARGETS, pair_masks, put_masks, put_sides, scoring, two_cases

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
    rng = np.random.default_rng(int(pair.stem.removeprefix("case_")))
    counts = rng.integers(0, 3000, (K, K)) * (rng.random((K, K)) < 0.3) + np.diag(rng.integers(0, 10**6, K))
    row = CaseRow(case_id=pair.case_id, height=1024, width=2048, counts=counts)
    digest = f"{int(pair.stem.removeprefix('case_')):064}"
    return Entry(case_id=pair.case_id, row=row, sha256=digest, record=vars(UNKNOWN_SPACING))


def named(folder, name):
    sides = (folder / "references" / f"{name}.png", folder / "predictions" / f"{name}.png")
    return MaskPair(case_id=name, stem=name, references=sides[:1], predictions=sides[1:])


def peak(folder, count):
    folder.mkdir()
    tracemalloc.start()
    names = (f"case_{i:06}" for i in range(count))
    job = Scoring(
        pairing=Pairing(pairs=[*map(partial(named, folder), names)], extra=()),
        reading=Reading(spec=SPEC, label_map={}, max_pixels=1),
        metrics=MetricsConfig(bootstrap=100),
        folder=folder,
    )
    score(job)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most + pa.default_memory_pool().max_memory()  # which is never set back


@pytest.mark.slow
def test_memory_grows_by_little_more_than_the_counts_of_a_case(tmp_path, monkeypatch):
    """Beyond what is held whatever the number of cases: here less of it, so that few cases show it."""
    monkeypatch.setattr(cases.CaseScorer, "__call__", lambda _, pair: invented(pair))
    monkeypatch.setattr(rows, "BLOCK", 64)
    monkeypatch.setattr(scoreboard, "_CASES", 64)
    monkeypatch.setattr(bootstrap, "_BLOCK", 1000)
    monkeypatch.setattr(columns, "_DRAWN", 1000)
    monkeypatch.setattr(columns, "_LEAST_ROWS", 8)
    monkeypatch.setattr(columns, "_MANY_DRAWS", 0)
    peak(tmp_path / "warm", 10)
    few, many = peak(tmp_path / "few", 300), peak(tmp_path / "many", 1300)
    assert 100 < (many - few) / 1000 < MOST_BYTES
