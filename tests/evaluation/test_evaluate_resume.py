"""Interrupted evaluations: what is done is not predicted again, and the end is that of an uninterrupted one."""

from contextlib import nullcontext
from pathlib import Path

import pytest

from segmeter.evaluation.evaluate import run_cases
from segmeter.evaluation.manifest import PREDICTIONS, Entry, Manifest, parse_records, read_records
from segmeter.evaluation.predicted import restore_cases
from segmeter.export.config import ExportConfig
from segmeter.files import TEMPORARY
from segmeter.metrics.config.metrics import MetricsConfig
from tests.evaluation.jobs import case_run, empty, evaluated, files, interrupted, predictor
from tests.faults.world import flip
from tests.training.tiny import TinyCases

COUNT, BATCH = 11, 3


def run(folder, **changes):
    fields = {"predictor": predictor(batch_size=BATCH), "dataset": TinyCases(count=COUNT)}
    return evaluated(folder, **(fields | {"identity": {"checkpoint": "0"}} | changes))


def resume(folder, **changes):
    """Go on with a run; the cases that were read, and the summary."""
    cases = TinyCases(count=COUNT)
    summary = run(folder, dataset=cases, resume=True, **changes)
    return sorted(cases.read), summary


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clean")
    run(folder)
    return files(folder)


@pytest.mark.parametrize("after", [1, 3, 5, COUNT])
def test_an_interrupted_run_ends_with_the_same_bytes(after, clean, tmp_path):
    with interrupted(after):
        run(tmp_path)
    assert not (tmp_path / "metrics.json").exists()
    read, _ = resume(tmp_path)
    restored = COUNT - len(read)
    done = after if after == COUNT else after // BATCH * BATCH
    assert restored <= done, "files that still waited to be written are written again"
    assert read == list(range(restored, COUNT))
    assert files(tmp_path) == clean


def replace_by_a_link(path):
    path.rename(path.parents[3] / "elsewhere")
    path.symlink_to(path.parents[3] / "elsewhere")


LABELS, DAMAGES = "predictions/labels/case04.png", (empty, flip, Path.unlink, replace_by_a_link)


@pytest.mark.parametrize(
    ("finished", "name", "damage"),
    [
        *((True, name, flip) for name in ("metrics.json", "cases.csv", "cases.parquet")),
        *((finished, LABELS, damage) for finished in (True, False) for damage in DAMAGES),
    ],
)
def test_a_damaged_file_is_named_and_made_again(finished, name, damage, clean, tmp_path, caplog):
    folder = tmp_path / "run"
    with nullcontext() if finished else interrupted(7):
        run(folder)
    damage(folder / name)
    read, _ = resume(folder)
    assert "missing or damaged files are written again" in caplog.text
    assert f"(1: {name.removeprefix('predictions/')})" in caplog.text
    assert read == list(range(0 if finished else 3, COUNT)), "from its batch on, as later cases follow it"
    assert files(folder) == clean


def test_a_finished_run_is_not_done_again(tmp_path):
    summary = run(tmp_path)
    assert resume(tmp_path) == ([], summary)


def test_calibration_sees_every_case_again(tmp_path):
    metrics = MetricsConfig(bootstrap=0, calibration=True)
    whole = run(tmp_path / "whole", metrics=metrics)
    with interrupted(6):
        run(tmp_path / "resumed")
    assert resume(tmp_path / "resumed", metrics=metrics) == (list(range(COUNT)), whole)


@pytest.mark.parametrize(
    ("noted", "damaged", "kept"),
    [(0, None, 0), (1, None, 0), (2, None, 2), (3, None, 2), (5, None, 5), (5, 0, 0), (5, 1, 0), (5, 3, 2), (4, 4, 4)],
)
def test_finished_cases_stay_up_to_the_end_of_a_batch_before_the_first_damaged_one(noted, damaged, kept, tmp_path):
    """In batches of 2. What a killed process left half written goes."""
    job = case_run(tmp_path, export=ExportConfig(probs=True))
    run_cases(job, "running")
    records = parse_records(read_records(tmp_path))
    manifest = Manifest.begin(tmp_path, job.identity, job.dataset.case_ids)
    for case_id, record in list(records.items())[:noted]:
        manifest.add(Entry(case_id=case_id, record=record))
    manifest.close()
    left = tmp_path / PREDICTIONS / "labels" / f"{TEMPORARY}left"
    left.write_bytes(b"half")
    if damaged is not None:
        (tmp_path / PREDICTIONS / "labels" / f"case{damaged:02d}.png").unlink()
    assert restore_cases(job, manifest) == kept
    assert not left.exists()
    assert read_records(manifest.folder)["case_id"].to_pylist() == list(job.dataset.case_ids[:kept])
