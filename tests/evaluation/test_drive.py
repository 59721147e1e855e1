"""Cases of one run: each is noted only when its files are complete, in its order; and the memory that they share."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

from segmeter.cli.main import main
from segmeter.errors import DataError, InputError, RunError
from segmeter.evaluation import drive as memory
from segmeter.evaluation import evaluate
from segmeter.evaluation.drive import SMALL, MemoryBudget, check_memory
from segmeter.evaluation.evaluate import run_cases
from segmeter.evaluation.manifest import PREDICTIONS, parse_case_facts, read_case_facts
from segmeter.evaluation.predicted import finish_case
from segmeter.export import writer as writer_module
from segmeter.export.config import ExportConfig
from segmeter.export.writer import Writer
from segmeter.inference.results import Prediction
from segmeter.metrics.cases.table import CaseRow
from segmeter.postprocess.config import LargestComponentConfig, PostprocessConfig
from tests.data.crafted import put
from tests.evaluation.jobs import case_run
from tests.training.tiny import TinyCases


@pytest.fixture
def job(tmp_path):
    return case_run(tmp_path / "run", identity={"checkpoint": "0"})


def noted(job):
    """What is recorded of each case, by its id."""
    return parse_case_facts(read_case_facts(job.folder))


def test_no_case_is_noted_before_its_files_are_written(job, monkeypatch):
    """The files of the first case are held back while later cases are finished."""
    free, finished, write = threading.Event(), threading.Event(), Writer.write

    def slow(writer, case_id, *arrays, **options):
        if case_id == "case00":
            assert free.wait(20)
        found = write(writer, case_id, *arrays, **options)
        finished.set()
        return found

    def see(prediction):
        if prediction.sample.case_id == "case03":
            assert finished.wait(20)
            assert noted(job) == {}
            free.set()

    monkeypatch.setattr(Writer, "write", slow)
    monkeypatch.setattr("segmeter.evaluation.evaluate.count_cores", lambda: 2)
    try:
        run_cases(replace(job, see=see), "running")
    finally:
        free.set()
    assert list(noted(job)) == list(job.dataset.case_ids)


CASE_BYTES = 256 + 256 + 3072  # label map, target, and an image of three float32 channels


@pytest.mark.parametrize("most", [1, 8000, 10**6])
def test_predictions_that_wait_take_no_more_than_export_queue_mb_or_one_case(job, monkeypatch, most):
    changes, finish_one = [], evaluate.finish_case

    class Watched(MemoryBudget):
        def enter(self, needed):
            super().enter(needed)
            changes.append(needed)

        def leave(self, needed):
            changes.append(-needed)
            super().leave(needed)

    monkeypatch.setattr(evaluate, "MemoryBudget", lambda limit: Watched(most))
    monkeypatch.setattr(evaluate, "finish_case", lambda *given: (time.sleep(0.01), finish_one(*given))[1])
    run_cases(job, "running")
    held = np.cumsum(changes)
    assert (len(held), held[-1]) == (10, 0)
    assert CASE_BYTES <= held.max() <= max(most, CASE_BYTES)


def test_a_file_that_can_not_be_written_ends_the_run_and_names_the_case(job, monkeypatch):
    """The cases before it are noted, and those that wait are not written."""
    real = writer_module.write_bytes

    def full(path, content):
        if path.stem == "case02":
            raise OSError(28, "No space left on device")
        real(path, content)

    monkeypatch.setattr(writer_module, "write_bytes", full)
    said = r"case 'case02' could not be written to .*case02.png' \(No space left on device\)"
    with pytest.raises(RunError, match=said):
        run_cases(job, "running")
    assert list(noted(job)) == ["case00", "case01"]


@pytest.mark.parametrize(
    ("broken", "error", "message"),
    [({"broken": (3,)}, DataError, "case03.png: is truncated"), ({"poisoned": (3,)}, RunError, "case03")],
    ids=["file", "not finite"],
)
def test_cases_before_a_fault_are_noted_whole(job, broken, error, message):
    """In batches of 2, a case that can't be read takes its batch with it."""
    with pytest.raises(error, match=message):
        run_cases(replace(job, dataset=TinyCases(count=5, **broken)), "running")
    names = list(noted(job))
    assert names == list(job.dataset.case_ids[: len(names)])
    assert len(names) <= 3
    files = sorted(path.stem for path in (job.folder / PREDICTIONS / "labels").glob("*"))
    assert set(names) <= set(files)
    assert not [name for name in files if "tmp" in name]


def test_batches_are_those_of_the_whole_run(job):
    seen = []

    class Seen:
        def predict(self, part, *, batches, **options):
            seen.append(([part[i].case_id for i in range(len(part))], batches))
            return iter(())

    shard = replace(job, predictor=Seen(), batches=[0, 2, 2, 4, 6])
    list(shard.predictions(range(1, 3), probs=False))
    list(replace(shard, batches=None).predictions(range(4, 5), probs=False))
    assert seen == [(["case01", "case02"], [2, 2]), (["case04"], None)]


def test_a_case_is_post_processed_measured_and_written(job):
    """Labels and objects after post-processing, confidence of the labels before it."""
    labels = np.zeros((5, 7), np.uint8)
    labels[0, :3], labels[4, 6] = 1, 1
    probs = np.full((3, 5, 7), 0.25, np.float32)
    probs[1] = 0.5
    prediction = Prediction(sample=job.dataset[0], labels=labels, probs=probs)
    steps = PostprocessConfig(steps=(LargestComponentConfig(classes=("cell",)),))
    seen = []

    def measure(one, cleaned):
        seen.append((one, cleaned.labels.copy()))
        return CaseRow(case_id="case00", height=5, width=7, counts=np.zeros((3, 3), np.int64))

    cleaning = replace(job, postprocess=steps, export=ExportConfig(confidence=True), measure=measure)
    entry = finish_case(cleaning, prediction)
    ((given, cleaned),) = seen
    assert (given, cleaned.sum(), labels.sum()) == (prediction, 3, 4)  # what the model predicted stays
    assert list(entry.resume_facts["files"]) == ["labels/case00.png", "confidence/case00.tif"]
    folder = job.folder / PREDICTIONS
    with Image.open(folder / "labels" / "case00.png") as image:
        np.testing.assert_array_equal(np.asarray(image), cleaned)
    np.testing.assert_array_equal(
        tifffile.imread(folder / "confidence" / "case00.tif"), np.where(labels == 1, 0.5, 0.25)
    )


def test_a_pixel_that_changes_its_class_belongs_to_no_object_of_the_model(job):
    labels = np.zeros((5, 7), np.uint8)
    labels[0, :3], labels[4, 6] = 1, 1
    prediction = Prediction(sample=job.dataset[0], labels=labels, instances=labels.astype(np.int64) * 7)
    steps = PostprocessConfig(steps=(LargestComponentConfig(classes=("cell",)),))
    finish_case(replace(job, postprocess=steps, export=ExportConfig(instances=True)), prediction)
    with Image.open(job.folder / PREDICTIONS / "instances" / "case00.png") as image:
        assert np.unique(np.argwhere(np.asarray(image))[:, 0]).tolist() == [0]


def test_what_can_not_fit_is_refused(monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda: 2**30)
    check_memory(2**30, what="it", remedy="")
    with pytest.raises(InputError, match=r"^it: expected `memory` of about 1\.5 GiB, got 1\.0 GiB free\. Do less\.$"):
        check_memory(3 * 2**29, what="it", remedy="Do less.")


def test_what_fits_only_alone_waits_for_its_turn(monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda: 5 * SMALL)
    room, changes = MemoryBudget(), []

    def work(size):
        with room.hold(size * SMALL, what="it", remedy=""):
            changes.append(size)
            time.sleep(0.01)
            changes.append(-size)

    with ThreadPoolExecutor(7) as pool:
        list(pool.map(work, (3, 2, 4, 1, 5, 2, 2)))
    held = np.cumsum(changes)
    assert (len(held), held[-1]) == (14, 0)
    assert held.max() <= 5


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Two folders with a mask of 41 megapixels."""
    root, mask = tmp_path_factory.mktemp("large"), np.kron(np.eye(40, dtype=np.uint8), np.ones((160, 160), np.uint8))
    put(root / "b" / "x.png", put(root / "a" / "x.png", mask).read_bytes())
    return root


PAIR = "case 'x': expected `memory` of about {} GiB, got 0.0 GiB free. Free memory, cut the pair"
MEASURED = {"[]": 0.2, "[surface]": 0.4, "[instances]": 0.7, "[instances] data.instances=true data.task=binary": 1.3}


@pytest.mark.parametrize(
    ("classes", "measures", "free", "said"),
    [
        (
            65534,
            "[]",
            2**30,
            "counts of 65534 classes: expected `memory` of about 192.0 GiB, got 1.0 GiB free. Name those",
        ),
        *((2, measures, 2**20, PAIR.format(gib)) for measures, gib in MEASURED.items()),
    ],
)
def test_score_refuses_counts_and_pairs_by_their_header_before_a_run_begins(
    classes, measures, free, said, large, monkeypatch, capsys
):
    monkeypatch.chdir(large)
    monkeypatch.setattr(memory, "free_bytes", lambda: free)
    monkeypatch.setattr("segmeter.cli.run_folder.KEEP_SECONDS", 1e9)  # of a slow machine, which would keep the run
    with pytest.raises(SystemExit) as leaving:
        main(f"score predictions=a references=b data.num_classes={classes} metrics.measures={measures}".split())
    assert leaving.value.code == 2
    (line,) = [each for each in capsys.readouterr().err.splitlines() if each.startswith("segmeter: ")]
    assert said in line
    assert not Path("runs").exists()
