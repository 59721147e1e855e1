"""What of an interrupted run stays: whole batches of the first cases, and files that are as they were written."""

import numpy as np
import pytest

from segmeter.distributed.batches import Part, split_batches
from segmeter.errors import ConfigError, DataError
from segmeter.evaluation.manifest import Entry, open_manifest
from segmeter.evaluation.resume import find_damaged, whole_batches
from segmeter.files import describe_file

NAMES = [f"c{index}" for index in range(7)]


def test_a_part_reads_its_cases_by_their_place_in_the_whole():
    part = Part(list("abcdefg"), range(2, 5))  # type: ignore[arg-type]
    assert [part[index] for index in range(len(part))] == list("cde")


def brute_force(kinds, size):
    batches = []
    for index, kind in enumerate(kinds):
        if batches and len(batches[-1]) < size and kinds[batches[-1][0]] == kind:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_batches_hold_one_kind_and_every_case_once(size):
    rng = np.random.default_rng(size)
    for length in range(12):
        kinds = rng.integers(0, 2, length).tolist()
        found = [list(batch) for batch in split_batches(kinds, size)]
        assert found == brute_force(kinds, size)


def test_a_last_batch_that_is_not_full_is_done_again_unless_it_is_the_end():
    assert whole_batches("aaaaa", 2, 9) == 4
    assert whole_batches("aaaaa", 2, 5) == 5
    assert whole_batches("aab", 2, 9) == 2
    assert whole_batches("", 2, 9) == 0


def test_a_run_is_begun_continued_or_begun_again_where_its_results_are_damaged(tmp_path, caplog):
    """Mutation seen to fail: results of a finished run not looked at."""

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
