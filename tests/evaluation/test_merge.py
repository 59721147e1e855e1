"""Shards of one run, and folds, are joined: rows, files and notes; what does not fit is refused before anything is
written. tests/cli/commands/test_merge.py compares whole runs to the byte.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from segmeter.distributed.shards import Shard, describe_shard
from segmeter.errors import DataError, InputError
from segmeter.evaluation.manifest import Entry, Manifest, parse_case_facts, read_case_facts, read_run_manifest
from segmeter.evaluation.merge import Merge, check_merge, merge
from segmeter.evaluation.pieces import Piece, check_pieces, read_pieces
from segmeter.evaluation.score import score
from segmeter.files import describe_file, write_json
from segmeter.metrics.config.measures import EventsConfig
from segmeter.metrics.config.metrics import MetricsConfig
from tests.evaluation.masks import FEW, put_masks, scoring

RNG = np.random.default_rng(5)
TARGETS = {name: RNG.integers(0, 3, (6, 7)).tolist() for name in "abcde"}
LABELS = {name: RNG.integers(0, 3, (6, 7)).tolist() for name in "abcde"}


def scored(root, folder, *, shard=None, metrics=FEW):
    """A finished run of `segmeter score` in a folder."""
    job = replace(scoring(root), folder=folder, shard=shard, metrics=metrics)
    summary = score(job)
    write_json(folder / "run.json", {"command": "score", "data": "the same"})
    return summary


@pytest.fixture(scope="module")
def masks(tmp_path_factory):
    root = tmp_path_factory.mktemp("masks")
    put_masks(root / "references", TARGETS)
    put_masks(root / "predictions", LABELS)
    return root


@pytest.fixture(scope="module")
def thirds(masks):
    folders = [masks / f"s{number}" for number in (1, 2, 3)]
    for number, folder in enumerate(folders, 1):
        scored(masks, folder, shard=Shard(number, 3))
    return folders


def job_of(folders, folder, *, kind="shards", metrics=FEW, **options):
    return Merge(pieces=read_pieces(folders), kind=kind, metrics=metrics, folder=folder, **options)


@pytest.mark.parametrize("more", [False, True], ids=["apart", "two share cases"])
def test_shards_in_any_order_are_the_run_without_shards(masks, thirds, tmp_path, more):
    whole, half = scored(masks, tmp_path / "whole"), [tmp_path / "half"] if more else []
    for folder in half:
        scored(masks, folder, shard=Shard(1, 2))
    assert merge(job_of([*thirds[::-1], *half], tmp_path / "merged")) == whole
    for name in ("metrics.json", "cases.parquet", "cases.csv", "manifest.json"):
        assert (tmp_path / "merged" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_rows_that_differ_are_refused_with_their_runs(masks, thirds, tmp_path, monkeypatch):
    """Files and records of the cases are the same: only the rows tell."""
    monkeypatch.setattr(
        "segmeter.metrics.measures.row.count_case_and_hidden", lambda target, *_: (np.ones((3, 3), int), 0)
    )
    scored(masks, tmp_path / "half", shard=Shard(1, 2))
    with pytest.raises(DataError) as caught:
        merge(job_of([*thirds, tmp_path / "half"], tmp_path / "merged"))
    assert str(caught.value) == (
        "merge: expected `runs` to agree on the cases that they share, "
        "got 3: a in s1 and half, c in s3 and half, e in s2 and half."
    )
    assert not (tmp_path / "merged" / "metrics.json").exists()


def test_another_configuration_than_the_runs_is_refused(thirds, tmp_path):
    other = MetricsConfig(bootstrap=50, background=False)
    with pytest.raises(InputError) as caught:
        merge(job_of(thirds, tmp_path / "merged", metrics=other))
    assert str(caught.value) == (
        "merge: expected `runs` to have the config.yaml and tables that it was measured with, "
        "got 's1', where other is metrics.background."
    )
    assert not (tmp_path / "merged").exists()


def test_folds_are_marked_and_keep_what_all_have(masks, tmp_path):
    """Of the identity only what is the same in all of them."""
    folders = []
    for name, cases in (("one", "ab"), ("two", "cde")):
        root = tmp_path / name
        put_masks(root / "references", {each: TARGETS[each] for each in cases})
        put_masks(root / "predictions", {each: LABELS[each] for each in cases})
        scored(root, root)
        manifest = json.loads((root / "manifest.json").read_text())
        manifest["identity"]["files.checkpoint_sha256"] = name
        write_json(root / "manifest.json", manifest)
        folders.append(root)
    with pytest.raises(InputError, match=r"`files\.checkpoint_sha256` to be the same"):
        check_merge(job_of(folders, tmp_path / "merged"))
    found = merge(job_of(folders, tmp_path / "merged", kind="folds"))
    mark = {"kind": "folds", "n_runs": 2, "checkpoints_sha256": ["one", "two"]}
    assert (found["merged"], found["n_cases"]) == (mark, 5)
    identity = read_run_manifest(tmp_path / "merged")["identity"]
    assert identity["merged.kind"] == "folds"
    assert "files.checkpoint_sha256" not in identity
    assert identity["metrics.bootstrap"] == 50


def test_shards_without_any_object_keep_their_table_of_objects(tmp_path):
    config = FEW.replace(measures=(EventsConfig(),), background=False)
    for side in ("references", "predictions"):
        put_masks(tmp_path / side, {name: [[0, 0]] for name in "ab"})
    scored(tmp_path, tmp_path / "whole", metrics=config)
    halves = [tmp_path / f"s{number}" for number in (1, 2)]
    for number, folder in enumerate(halves, 1):
        scored(tmp_path, folder, shard=Shard(number, 2), metrics=config)
    merge(job_of(halves, tmp_path / "merged", metrics=config))
    for name in ("objects.parquet", "manifest.json"):
        assert (tmp_path / "merged" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def predicted(folder, number, cases, every=("a", "b")):
    """A finished run of `segmeter predict` whose label maps are any bytes; `every` are the cases of all shards."""
    shard = {"shard": describe_shard(Shard(number, 2), every)}
    manifest = Manifest.begin(folder, shard | {"model": "m"}, list(cases))
    for case_id, content in cases.items():
        path = folder / "predictions" / "labels" / f"{case_id}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        files = {f"labels/{case_id}.png": describe_file(path)}
        manifest.add(Entry(case_id=case_id, resume_facts={"image": [1, 1, 3, "uint8"], "files": files}))
    manifest.finish()
    write_json(folder / "run.json", {"command": "predict"})
    return folder


@pytest.fixture
def halves(tmp_path):
    return [predicted(tmp_path / "1", 1, {"a": b"A"}), predicted(tmp_path / "2", 2, {"b": b"B"})]


def test_predictions_are_joined(halves, tmp_path):
    assert merge(job_of(halves, tmp_path / "merged", metrics=None)) == {}
    labels = tmp_path / "merged" / "predictions" / "labels"
    assert {path.name: path.read_bytes() for path in labels.iterdir()} == {"a.png": b"A", "b.png": b"B"}
    manifest = read_run_manifest(tmp_path / "merged")
    assert (manifest["cases"], manifest["state"]) == (["a", "b"], "done")
    assert manifest["identity"] == {"model": "m"}
    assert list(parse_case_facts(read_case_facts(tmp_path / "merged"))["b"]["files"]) == ["labels/b.png"]


def test_predictions_that_shards_share_must_agree(halves, tmp_path):
    again, other = predicted(tmp_path / "again", 2, {"b": b"B"}), predicted(tmp_path / "other", 2, {"b": b"C"})
    check_merge(job_of([*halves, again], tmp_path / "merged", metrics=None))
    with pytest.raises(InputError, match=r"to agree on the cases that they share, got 1: b in 2 and other\.$"):
        check_merge(job_of([*halves, other], tmp_path / "merged", metrics=None))


def test_a_prediction_that_changed_is_named(halves, tmp_path):
    changed = halves[1] / "predictions" / "labels" / "b.png"
    changed.write_bytes(b"?")
    with pytest.raises(DataError) as caught:
        merge(job_of(halves, tmp_path / "merged", metrics=None))
    said = "merge: expected `runs` to have their predictions as they were written"
    assert str(caught.value) == f"{said}, got 1: {changed}."
    assert read_run_manifest(tmp_path / "merged")["state"] == "running"


@pytest.mark.parametrize("name", ["predictions", "predictions/labels", "predictions/labels/a.png"])
def test_a_link_in_the_predictions_of_a_run_is_not_followed(name, halves, tmp_path):
    (halves[0] / name).rename(tmp_path / "elsewhere")
    (halves[0] / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=r"is a link|to have their predictions as they were written"):
        merge(job_of(halves, tmp_path / "merged", metrics=None))
    assert not list((tmp_path / "merged").rglob("a.png"))


def fold(number, count=3, **values):
    """The evaluation of a fold, on two cases of its own."""
    identity = {
        "data.fold": count and f"{number}/{count}",
        "data.split": "val",
        "data.split_seed": 0,
        "data.mean": [number / 10],
        "files.checkpoint_sha256": f"checkpoint {number}",
        "files.data": f"data {number}",
    }
    return Piece(
        folder=Path(f"run{number}"),
        command="eval",
        identity=identity | values,
        shard={},
        cases={f"case{number}a": ("1", "{}"), f"case{number}b": ("1", "{}")},
        inputs={},
        record={},
        spec=None,
    )


def test_all_folds_of_one_division_are_accepted():
    check_pieces([fold(3), fold(1), fold(2)], "folds")
    check_pieces([fold(1, None), fold(2, None)], "folds")
    check_pieces([fold(1), fold(2, **{"data.corners": "edges"}), fold(3)], "folds")  # a key that came later
    check_pieces([replace(fold(number), identity={}) for number in (1, 2)], "folds")  # scores know no checkpoint


@pytest.mark.parametrize(
    ("pieces", "line"),
    [
        ((fold(1, 5), fold(4, 5)), "`runs` to be all 5 folds, got none of fold 2/5, 3/5, 5/5."),
        (
            (fold(1), fold(2, **{"files.checkpoint_sha256": "checkpoint 1"}), fold(3)),
            "`runs` to be folds, each of a checkpoint of its own, got the same checkpoint in 2: run1, run2.",
        ),
        ((fold(1), fold(2, 4), fold(3)), "`data.fold` to be i/k with one k in all runs, got 3: "),
        ((fold(1), fold(2, None), fold(3)), "`data.fold` to be i/k with one k in all runs, got 3: "),
        (
            [fold(number, 2, **{"data.split": "train"}) for number in (1, 2)],
            "`data.split` to be val, the cases that a fold held out, in all runs",
        ),
        (
            (fold(1), fold(2, **{"data.split_seed": 1}), fold(3)),
            "`data.split_seed` to be the same in all runs, 0 as in 'run1', got 1 in 'run2'.",
        ),
    ],
    ids=["missing", "one checkpoint", "two counts", "one of no division", "training cases", "another key"],
)
def test_runs_that_are_no_folds_of_one_division_are_refused(pieces, line):
    with pytest.raises(InputError) as caught:
        check_pieces(pieces, "folds")
    (problem,) = caught.value.problems
    assert problem.startswith(f"merge: expected {line}")
