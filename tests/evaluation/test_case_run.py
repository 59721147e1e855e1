"""Cases of one run: each is noted only when its files are complete, in its order, and what a fault leaves is whole."""

import threading
from dataclasses import replace

import numpy as np
import pytest
import torch

from segmeter.data.location import Location
from segmeter.distributed.batches import BatchOf
from segmeter.errors import ConfigError, DataError, RunError
from segmeter.evaluation.case_run import (
    PREDICTIONS,
    CaseRun,
    Finished,
    export_case,
    finish_case,
    run_cases,
)
from segmeter.evaluation.manifest import open_manifest, parse_records, read_records
from segmeter.export import writer as writer_module
from segmeter.export.config import ExportConfig
from segmeter.files import is_whole
from segmeter.inference.async_results import Prediction
from segmeter.inference.config import InferenceConfig
from segmeter.inference.predictor import Predictor
from segmeter.metrics.cases.table import CaseRow
from segmeter.postprocess.config import LargestComponentConfig, PostprocessConfig
from segmeter.postprocess.pipeline import Cleaned
from tests.training.tiny import TinyCases, tiny_segmenter

COUNT = 5


@pytest.fixture(scope="module")
def predictor():
    return Predictor(tiny_segmenter(), InferenceConfig(precision="float32", batch_size=2), torch.device("cpu"))


@pytest.fixture
def job(predictor, tmp_path):
    return CaseRun(
        predictor=predictor,
        dataset=TinyCases(count=COUNT),
        export=ExportConfig(),
        postprocess=PostprocessConfig(),
        folder=tmp_path / "run",
        identity={"checkpoint": "0"},
    )


def work(job, *, done=0, **options):
    """Run the cases; what they are, and what is noted in the end."""
    manifest = begin(job)
    try:
        return list(run_cases(job, manifest, done=done, what="running", **options))
    finally:
        manifest.close()


def begin(job):
    return open_manifest(job.folder, job.identity, job.dataset.case_ids, resume=job.resume)


def noted(job):
    """What is recorded of each case, by its id."""
    return parse_records(read_records(job.folder))


def test_every_case_is_noted_in_order_with_its_row_and_its_whole_files(job):
    def measure(prediction, cleaned):
        counts = np.full((3, 3), int((cleaned.labels == 1).sum()))
        return CaseRow(case_id=prediction.sample.case_id, height=16, width=16, counts=counts)

    cases = work(replace(job, export=ExportConfig(probs=True)), measure=measure)
    names = list(job.dataset.case_ids)
    assert [case.prediction.sample.case_id for case in cases] == names
    rows = begin(replace(job, resume=True)).table(job.dataset.spec)
    assert list(noted(job)) == rows.case_ids == names
    for case, row, record in zip(cases, rows, noted(job).values(), strict=True):
        assert int(row.counts[0, 0]) == (case.cleaned.labels == 1).sum()
        assert record["image"] == [16, 16, 3, "float32"]
        assert set(record["files"]) == {f"labels/{row.case_id}.png", f"probs/{row.case_id}.npy"}
        assert all(is_whole(job.folder / PREDICTIONS / name, each) for name, each in record["files"].items())


def test_no_case_is_noted_before_its_files_are_written(job, monkeypatch):
    """The first file is held back while later cases are finished. Mutation seen to fail: noted as they are queued."""
    free, write = threading.Event(), writer_module._write_labels_png

    def slow(path, *arguments, **options):
        if "case00" in path.name:
            assert free.wait(20)
        return write(path, *arguments, **options)

    monkeypatch.setattr(writer_module, "_write_labels_png", slow)
    manifest = begin(job)
    cases = run_cases(job, manifest, done=0, what="running")
    try:
        for _ in range(COUNT - 1):
            next(cases)
            assert noted(job) == {}
        free.set()
        list(cases)
    finally:
        free.set()
        manifest.close()
    assert list(noted(job)) == list(job.dataset.case_ids)


def test_what_is_done_is_not_read_again(job):
    work(job)
    again = replace(job, resume=True)
    job.dataset.read.clear()
    assert [case.prediction.sample.case_id for case in work(again, done=4)] == ["case04"]
    assert job.dataset.read == [4]
    with pytest.raises(ConfigError, match="`checkpoint` was '0' and is '1' now"):
        begin(replace(again, identity={"checkpoint": "1"}))


@pytest.mark.parametrize(
    ("broken", "error", "message"),
    [({"broken": (3,)}, DataError, "case03.png: is truncated"), ({"poisoned": (3,)}, RunError, "case03")],
    ids=["file", "not finite"],
)
def test_cases_before_a_fault_are_noted_whole(job, broken, error, message):
    """In batches of 2, a case that can't be read takes its batch with it."""
    with pytest.raises(error, match=message):
        work(replace(job, dataset=TinyCases(count=COUNT, **broken)))
    names = list(noted(job))
    assert names == list(job.dataset.case_ids[: len(names)])
    assert len(names) <= 3
    files = sorted(path.stem for path in (job.folder / PREDICTIONS / "labels").glob("*"))
    assert set(names) <= set(files)
    assert not [name for name in files if "tmp" in name]


def test_batches_are_those_of_the_whole_run(job):
    """Of a shard: grouped by 2, each part gives them. Mutation seen to fail: all cases in one part."""
    kind, parts = (16, 16, "float32"), []

    class Seen:
        config = job.predictor.config

        def predict(self, part, **options):
            parts.append([int(part[i].case_id[-1]) for i in range(len(part))])
            return iter(())

    shard = replace(job, predictor=Seen(), batches=[BatchOf(number, kind) for number in (0, 2, 2, 4, 6)])
    list(shard.predictions(range(5), probs=False))
    assert [part[i : i + 2] for part in parts for i in range(0, len(part), 2)] == [[0], [1, 2], [3], [4]]
    parts.clear()
    list(replace(shard, batches=None).predictions(range(1, 5), probs=False))
    assert parts == [[1, 2, 3, 4]]


def test_a_case_is_post_processed_and_then_measured(job):
    labels = np.zeros((5, 7), np.uint8)
    labels[0, :3], labels[4, 6] = 1, 1
    prediction = Prediction(sample=job.dataset[0], labels=labels)
    cleaning = replace(job, postprocess=PostprocessConfig(steps=(LargestComponentConfig(),)))
    seen = []
    case = finish_case(cleaning, lambda one, other: seen.append((one, other.labels.copy())), prediction)
    assert case.cleaned.labels.sum() == 3
    assert (seen[0][0], case.row) == (prediction, None)
    np.testing.assert_array_equal(seen[0][1], case.cleaned.labels)
    assert labels.sum() == 4  # what the model said stays


class Calls:
    """A writer that keeps what it is handed."""

    def __init__(self):
        self.calls = {}

    def __getattr__(self, name):
        return lambda case_id, *arrays: self.calls.__setitem__(name, (case_id, *arrays))


@pytest.mark.parametrize(
    ("export", "probs", "instances", "written"),
    [
        ({}, True, True, {"labels", "instances"}),
        ({"labels": False, "instances": False}, True, True, set()),
        ({"probs": True, "confidence": True}, True, False, {"labels", "probs", "confidence"}),
        ({"probs": True, "confidence": True}, False, False, {"labels"}),
        ({"instances": False}, False, True, {"labels"}),
        ({"objects": ("geojson",)}, False, False, {"labels", "objects"}),
    ],
    ids=str,
)
def test_what_is_asked_for_and_there_is_written(job, export, probs, instances, written):
    """Labels and objects after post-processing, probabilities before it."""
    raw, clean = np.full((4, 4), 2, np.uint8), np.ones((4, 4), np.uint8)
    prediction = Prediction(
        sample=job.dataset[1], labels=raw, probs=np.full((3, 4, 4), 1 / 3, np.float32) if probs else None
    )
    cleaned = Cleaned(labels=clean, instances=clean.astype(np.int32) if instances else None, changed={})
    calls = Calls()
    export_case(calls, Finished(prediction=prediction, cleaned=cleaned, row=None, kind=[]), ExportConfig(**export))
    found = {name.removeprefix("write_"): arguments for name, arguments in calls.calls.items()}
    assert set(found) == written
    assert {arguments[0] for arguments in found.values()} <= {"case01"}
    expected = {
        "labels": (clean,),
        "probs": (prediction.probs,),
        "confidence": (prediction.probs, raw),
        "instances": (cleaned.instances,),
        "objects": (clean, cleaned.instances),
    }
    for name, (_, *arrays) in found.items():
        assert all(one is other for one, other in zip(arrays, expected[name], strict=True))


class Located(TinyCases):
    """Cases that lie somewhere."""

    place = Location(spacing=(0.5, 0.5), unit="mm")

    def locate(self, case_id):
        return self.place


@pytest.mark.parametrize(("form", "warned"), [("png", True), ("tiff", False)])
def test_a_lost_place_is_said_once(job, form, warned, caplog):
    work(replace(job, dataset=Located(count=3), export=ExportConfig(labels_format=form)))
    lines = [line for line in caplog.messages if "says where its pixels lie, which is lost" in line]
    assert len(lines) == warned
    assert all(line.startswith("predictions: case 'case00' ") for line in lines)
