"""What of an interrupted run stays: whole batches of the first cases, whose files are made again as they were."""

import pytest

from segmeter.data.dataset import Part
from segmeter.errors import ConfigError, DataError, RunError
from segmeter.evaluation.evaluate import run_cases
from segmeter.evaluation.manifest import PREDICTIONS, Entry, open_manifest, parse_records, read_records
from segmeter.evaluation.predicted import find_damaged, repair_files, restore_cases, whole_batches
from segmeter.export.config import ExportConfig
from segmeter.files import TEMPORARY, describe_file
from tests.evaluation.jobs import case_run, files

COUNT = 5  # in batches of 2


def run_of(folder):
    """A run like that in the folder, with cases of its own that know what was read."""
    return case_run(folder, export=ExportConfig(probs=True), resume=(folder / "manifest.json").exists())


def begin(job):
    return open_manifest(job.folder, job.identity, job.dataset.case_ids, resume=job.resume)


@pytest.fixture
def first(tmp_path):
    """The folder of a run of all cases, and the bytes of its files."""
    run_cases(run_of(tmp_path), "running")
    return tmp_path, files_of(tmp_path)


def files_of(folder):
    return files(folder / PREDICTIONS)


def notes_of(folder):
    return list(parse_records(read_records(folder)).values())


def test_only_the_batch_of_a_damaged_file_is_predicted_again(first, caplog):
    folder, before = first
    labels = folder / PREDICTIONS / "labels"
    (labels / "case02.png").unlink()
    (folder / PREDICTIONS / "probs" / "case02.npy").write_bytes(b"x")
    others = [labels / f"case{index:02d}.png" for index in (0, 1, 3, 4)]
    written = [path.stat().st_mtime_ns for path in others]
    job = run_of(folder)
    repair_files(job, notes_of(folder))
    assert files_of(folder) == before
    assert sorted(job.dataset.read) == [2, 3]
    assert [path.stat().st_mtime_ns for path in others] == written
    assert caplog.messages == [
        "resume: missing or damaged files of predictions are written again (2: labels/case02.png, probs/case02.npy)."
    ]


def test_files_that_come_out_otherwise_are_refused(first):
    """As on another machine; here the cases are others than they were."""
    folder, _ = first
    (folder / PREDICTIONS / "probs" / "case04.npy").unlink()
    job = run_of(folder)
    job.dataset.salt = 1
    with pytest.raises(RunError) as caught:
        repair_files(job, notes_of(folder))
    assert str(caught.value) == (
        "resume: predictions differ from those of the resumed run (2: labels/case04.png, probs/case04.npy). "
        "Start a new run with resume=null."
    )


@pytest.mark.parametrize(
    ("noted", "none", "kept"), [(0, False, 0), (1, False, 0), (2, False, 2), (3, False, 2), (5, False, 5), (5, True, 0)]
)
def test_finished_cases_stay_up_to_the_end_of_a_batch_unless_none_may(noted, none, kept, first):
    """Their damaged files are written again, and what a killed process left half written goes."""
    folder, before = first
    job = run_of(folder)
    manifest = begin(job)
    manifest.keep(noted)
    left = folder / PREDICTIONS / "labels" / f"{TEMPORARY}left"
    left.write_bytes(b"half")
    (folder / PREDICTIONS / "labels" / "case00.png").unlink()
    assert restore_cases(job, manifest, none=none) == kept
    assert manifest.records()["case_id"].to_pylist() == list(job.dataset.case_ids[:kept])
    assert sorted(job.dataset.read) == ([0, 1] if kept else [])
    assert not left.exists()
    assert files_of(folder) == before or not kept
    manifest.close()


def test_a_part_reads_its_cases_by_their_place_in_the_whole():
    part = Part(list("abcdefg"), range(2, 5))
    assert [part[index] for index in range(len(part))] == list("cde")


def test_a_last_batch_that_is_not_full_is_done_again_unless_it_is_the_end():
    assert whole_batches("aaaaa", 2, 9) == 4
    assert whole_batches("aaaaa", 2, 5) == 5
    assert whole_batches("aab", 2, 9) == 2
    assert whole_batches("", 2, 9) == 0


def test_a_run_is_begun_continued_or_begun_again_where_its_results_are_damaged(tmp_path, caplog):

    def opened(resume=True, identity=None):
        return open_manifest(tmp_path / "run", identity or {"a": 1}, ["x"], resume=resume)

    with pytest.raises(DataError, match=r"to hold a whole `?manifest\.json"):
        opened()
    manifest = opened(resume=False)
    manifest.add(Entry(case_id="x"))
    manifest.close()
    assert opened().keep()["case_id"].to_pylist() == ["x"]
    (tmp_path / "run" / "metrics.json").write_text("{}")
    manifest.finish(["metrics.json"])
    assert opened().done
    with pytest.raises(ConfigError, match="`a` was 1 and is 2 now"):
        opened(identity={"a": 2})
    (tmp_path / "run" / "metrics.json").write_text("{")
    again = opened()
    assert (again.done, len(again.keep())) == (False, 0)
    assert caplog.messages == ["resume: missing or damaged results are written again (1: metrics.json)."]
    assert len(opened(resume=False).keep()) == 0


def test_files_that_are_gone_or_changed_are_named_by_their_case(tmp_path):
    for name in "abcd":
        (tmp_path / name).write_bytes(name.encode())
    entries = {name: describe_file(tmp_path / name) for name in "abcd"}
    records = [{"files": {"a": entries["a"], "b": entries["b"]}}, {"files": {"c": entries["c"]}}, {"files": {}}]
    assert find_damaged(records, tmp_path) == {}
    (tmp_path / "b").unlink()
    (tmp_path / "c").write_bytes(b"x")
    assert find_damaged(records, tmp_path) == {0: ["b"], 1: ["c"]}
