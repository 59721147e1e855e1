"""The driver: finished cases are noted in order, and the problems of all others are raised together."""

import pytest

from segmeter.errors import DataError
from segmeter.evaluation.drive import drive
from segmeter.evaluation.manifest import Entry, open_manifest


@pytest.fixture
def manifest(tmp_path):
    made = open_manifest(tmp_path / "run", {}, ["a", "b", "c", "d"], resume=False)
    yield made
    made.close()


def test_sound_cases_are_noted_and_all_problems_raised_together(manifest):
    results = iter([Entry(case_id="a"), ("b: damaged",), Entry(case_id="c"), ("d: gone", "d: too large")])
    seen = []
    with pytest.raises(DataError) as caught:
        drive((each for each in results), manifest, what="scoring", total=4, each=seen.append)
    assert caught.value.problems == ("b: damaged", "d: gone", "d: too large")
    assert [entry.case_id for entry in seen] == ["a", "c"] == manifest.records()["case_id"].to_pylist()


def test_what_a_case_raises_ends_the_run_and_closes_the_source(manifest):
    closed = []

    def results():
        try:
            yield Entry(case_id="a")
            yield Entry(case_id="b")
        finally:
            closed.append(True)

    def refuse(entry):
        raise DataError(f"{entry.case_id}: another unit")

    with pytest.raises(DataError, match="a: another unit"):
        drive(results(), manifest, what="scoring", total=2, each=refuse)
    assert closed
    assert manifest.records()["case_id"].to_pylist() == ["a"]
