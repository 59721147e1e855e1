"""The state of a run: what is whole counts, what was cut off is done again, what differs is refused."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from segmeter.errors import ConfigError, DataError
from segmeter.evaluation import manifest as module
from segmeter.evaluation.drive import record_cases
from segmeter.evaluation.manifest import Entry, Manifest, check_same, open_manifest, read_batches, read_case_facts
from segmeter.metrics.cases.table import CaseRow, MeasureColumn
from tests.metrics.build import case_row, class_spec

IDENTITY = {"data": {"names": ("a", "b"), "key": None}, "metrics": {"seed": 0}}
CASES = ["a", "b", "ü"]
SPEC = class_spec(2)


def entry(case_id, **fields):
    row = CaseRow(case_id=case_id, height=2, width=3, counts=np.array([[1, 2], [3, 2**40]]), **fields)
    return Entry(case_id=case_id, row=row, sha256=case_id.encode().hex(), resume_facts={"unit": "mm"})


def begun(folder, count=3):
    manifest = Manifest.begin(folder, IDENTITY, CASES)
    for case_id in CASES[:count]:
        manifest.add(entry(case_id))
    manifest.close()
    return manifest


def ids(manifest, keep=3):
    manifest.truncate(keep)
    return read_case_facts(manifest.folder)["case_id"].to_pylist()


def test_a_new_run_that_is_killed_as_it_begins_does_not_own_the_rows_of_an_earlier_one(tmp_path, monkeypatch):
    begun(tmp_path)

    def killed(path):
        raise OSError(5, "Input/output error", str(path))

    monkeypatch.setattr(module, "remove", killed)
    with pytest.raises(OSError, match="Input/output error"):
        Manifest.begin(tmp_path, {"data": "other"}, CASES)
    with pytest.raises(ConfigError):
        open_manifest(tmp_path, {"data": "other"}, CASES, resume=True)


def rows_of(folder):
    return list(open_manifest(folder, IDENTITY, CASES, resume=True).table(SPEC))


def test_rows_come_back_to_the_last_bit(tmp_path):
    manifest = Manifest.begin(tmp_path, IDENTITY, CASES)
    values = {"hd": np.inf, "nsd@1": np.nan, "tp": 1 / 3}
    measured = tuple(MeasureColumn(name, "b", value, summed=name == "tp") for name, value in values.items())
    places = {"depth": 4, "spacing": (0.1, 1 / 3, 3.0), "changed_pixels": {"fill": 3}, "extra": {"missing": 1.0}}
    loss = {"loss": 0.1 + 0.2, "loss_terms": ((0.1, 3.0), (1 / 3, 0.0))}
    given = entry("a", measured=measured, target_crc32=2**32 - 1, **places, **loss)
    manifest.add(given)
    manifest.close()
    (found,) = rows_of(tmp_path)
    np.testing.assert_array_equal(found.counts, given.row.counts, strict=True)
    assert repr(replace(found, counts=None)) == repr(replace(given.row, counts=None))  # NaN is not equal to itself
    records = read_case_facts(tmp_path)
    assert module.hashes_of(records) == {"a": given.sha256}
    assert module.parse_case_facts(records) == {"a": given.resume_facts}


@pytest.mark.slow
def test_every_place_at_which_a_write_may_end_leaves_whole_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "BATCH", 1)
    begun(tmp_path)
    content = (tmp_path / module.JOURNAL).read_bytes()
    ends = np.array([end for _, end in read_batches(tmp_path)])
    assert len(ends) == 3
    for cut in range(0, len(content) + 1, 7):
        (tmp_path / module.JOURNAL).write_bytes(content[:cut])
        manifest = open_manifest(tmp_path, IDENTITY, CASES, resume=True)
        whole = int((ends <= cut).sum())
        assert ids(manifest) == CASES[:whole]
        for case_id in CASES[whole:]:
            manifest.add(entry(case_id))
        manifest.close()
        assert (tmp_path / module.JOURNAL).read_bytes() == content


def test_a_batch_is_written_when_it_is_full_or_a_second_old(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(module, "BATCH", 3)
    manifest = Manifest.begin(tmp_path, IDENTITY, [])
    sizes = []
    for number in range(8):
        now[0] += 2.0 if number == 6 else 0.0
        manifest.add(entry(f"c{number}"))
        sizes.append([len(table) for table, _ in read_batches(tmp_path)])
    assert sizes == [[1], [1], [1], [1, 3], [1, 3], [1, 3], [1, 3, 3], [1, 3, 3]]
    manifest.close()
    assert [len(table) for table, _ in read_batches(tmp_path)] == [1, 3, 3, 1]


def test_a_flipped_bit_anywhere_ends_what_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "BATCH", 1)
    begun(tmp_path)
    content = (tmp_path / module.JOURNAL).read_bytes()
    first, second, _ = (end for _, end in read_batches(tmp_path))
    rng = np.random.default_rng(0)
    for place in [first, first + 8, *rng.integers(first, second, 60).tolist()]:
        damaged = bytearray(content)
        damaged[place] ^= 1 << rng.integers(8)
        (tmp_path / module.JOURNAL).write_bytes(damaged)
        assert [case_id for table, _ in read_batches(tmp_path) for case_id in table["case_id"].to_pylist()] == ["a"]
    assert ids(open_manifest(tmp_path, IDENTITY, CASES, resume=True)) == ["a"]


@pytest.mark.parametrize("batch", [1, 2, 64])
def test_rows_can_be_given_up(tmp_path, batch, monkeypatch):
    monkeypatch.setattr(module, "BATCH", batch)
    begun(tmp_path)
    assert ids(open_manifest(tmp_path, IDENTITY, CASES, resume=True)) == CASES
    assert ids(open_manifest(tmp_path, IDENTITY, CASES, resume=True), keep=2) == CASES[:2]
    assert ids(open_manifest(tmp_path, IDENTITY, CASES, resume=True)) == CASES[:2]
    assert [row.case_id for row in rows_of(tmp_path)] == CASES[:2]
    assert ids(open_manifest(tmp_path, IDENTITY, CASES, resume=True), keep=0) == []


def test_a_key_that_came_later_has_the_value_that_runs_without_it_had(tmp_path):
    begun(tmp_path)
    now = {corners: IDENTITY | {"data": {**IDENTITY["data"], "corners": corners}} for corners in ("edges", "centres")}
    check_same(tmp_path, now["edges"], CASES)
    with pytest.raises(ConfigError, match=r"`data\.corners` was 'edges' and is 'centres' now"):
        check_same(tmp_path, now["centres"], CASES)


def test_every_difference_is_shown(tmp_path):
    begun(tmp_path)
    check_same(tmp_path, IDENTITY, CASES)
    with pytest.raises(ConfigError) as caught:
        check_same(tmp_path, {"data": {"names": ("a", "c"), "key": None}, "metrics": {"seed": 1}}, ["a", "d", "e"])
    assert caught.value.problems == (
        "resume: `data.names` was ['a', 'b'] and is ['a', 'c'] now.",
        "resume: `metrics.seed` was 0 and is 1 now.",
        "resume: cases that were not there (2: d, e).",
        "resume: cases that are gone (2: b, ü).",
        "resume: this is another run. Start it with resume=null, or put these back.",
    )


@pytest.mark.parametrize("content", [None, b"{", b"[]", b'{"schema": 99}', b'{"schema": 5, "identity": {}}'])
def test_what_is_no_manifest_is_refused(content, tmp_path):
    if content is not None:
        (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(DataError, match="manifest"):
        check_same(tmp_path, IDENTITY, CASES)


def test_a_journal_with_the_columns_of_an_older_version_is_refused_at_once(tmp_path, monkeypatch):
    """Not at the end, when old and new rows are joined."""
    manifest = Manifest.begin(tmp_path, {}, ["a", "b"])
    monkeypatch.setattr(
        "segmeter.evaluation.manifest.columns_of_rows",
        lambda rows: pa.table({"case_id": ["a"], "objects": pa.array([b"packed"], pa.binary())}),
    )
    manifest.add(Entry(case_id="a", row=case_row("a", np.eye(2))))
    manifest.close()
    for call in (
        lambda: manifest.truncate(2),
        lambda: read_case_facts(tmp_path),
        lambda: manifest.table(class_spec(2)),
    ):
        with pytest.raises(DataError, match="to be begun by this version of segmeter, got an older journal"):
            call()


def test_a_run_is_begun_continued_or_begun_again_where_its_results_are_damaged(tmp_path, caplog):
    def opened(resume=True, identity=None):
        return open_manifest(tmp_path / "run", identity or {"a": 1}, ["x"], resume=resume)

    with pytest.raises(DataError, match=r"to hold a whole `?manifest\.json"):
        opened()
    manifest = opened(resume=False)
    manifest.add(Entry(case_id="x", sha256="78", resume_facts={"unit": "mm"}))
    manifest.close()
    assert module.read_run_manifest(tmp_path / "run")["state"] == "running"
    before = read_case_facts(opened().folder)
    assert module.parse_case_facts(before) == {"x": {"unit": "mm"}}
    (tmp_path / "run" / "metrics.json").write_text("{}")
    manifest.finish(["metrics.json"])
    assert (read_case_facts(tmp_path / "run"), opened().done) == (before, True)
    assert {"state": "done", "cases": ["x"]}.items() <= module.read_run_manifest(tmp_path / "run").items()
    assert not (tmp_path / "run" / module.JOURNAL).exists()
    with pytest.raises(ConfigError, match="`a` was 1 and is 2 now"):
        opened(identity={"a": 2})
    (tmp_path / "run" / "metrics.json").write_text("{")
    again = opened()
    assert (again.done, len(read_case_facts(again.folder))) == (False, 0)
    assert caplog.messages == ["resume: missing or damaged files are written again (1: metrics.json)."]
    assert len(read_case_facts(opened(resume=False).folder)) == 0


@pytest.fixture
def open_run(tmp_path):
    made = open_manifest(tmp_path / "run", {}, ["a", "b", "c", "d"], resume=False)
    yield made
    made.close()


def test_sound_cases_are_noted_and_all_problems_raised_together(open_run):
    results = iter([Entry(case_id="a"), ("b: damaged",), Entry(case_id="c"), ("d: gone", "d: too large")])
    with pytest.raises(DataError) as caught:
        record_cases((each for each in results), open_run, what="scoring", total=4)
    assert caught.value.problems == ("b: damaged", "d: gone", "d: too large")
    assert read_case_facts(open_run.folder)["case_id"].to_pylist() == ["a", "c"]


def test_a_case_that_can_not_be_recorded_ends_the_run_and_closes_the_source(open_run, monkeypatch):
    closed = []
    add = open_run.add

    def results():
        try:
            yield Entry(case_id="a")
            yield Entry(case_id="b")
        finally:
            closed.append(True)

    def refuse(entry):
        if entry.case_id == "b":
            raise OSError(28, "No space left on device")
        add(entry)

    monkeypatch.setattr(open_run, "add", refuse)
    with pytest.raises(OSError, match="No space left"):
        record_cases(results(), open_run, what="scoring", total=2)
    assert closed
    assert read_case_facts(open_run.folder)["case_id"].to_pylist() == ["a"]
