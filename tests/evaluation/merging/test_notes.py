import json

import pytest

from segmeter.errors import DataError
from segmeter.evaluation.manifest import NAME, Entry, Manifest, read_run_manifest
from segmeter.evaluation.merging.notes import read_notes_of

CASES = ["a", 'b"é', "c"]


@pytest.fixture
def run(tmp_path):
    manifest = Manifest.begin(tmp_path, {"a": 1}, CASES)
    for case_id in CASES:
        manifest.add(Entry(case_id=case_id, sha256="0", note={"of": case_id}))
    manifest.finish()
    return tmp_path


def test_a_manifest_is_read_by_lines_as_it_is_read_whole(run):
    head, notes = read_notes_of(run)
    whole = read_run_manifest(run)
    assert dict(notes) == whole.pop("cases")
    assert head == whole
    assert (list(notes), len(notes)) == (CASES, 3)


def test_a_manifest_that_another_program_wrote_is_read_too(run):
    _, notes = read_notes_of(run)
    (run / NAME).write_text(json.dumps(json.loads((run / NAME).read_bytes())))
    assert dict(read_notes_of(run)[1]) == dict(notes)
    assert [read_notes_of(run)[1].line(name) for name in CASES] == [notes.line(name) for name in CASES]


@pytest.mark.parametrize("lines", [1, 2, 3, 4, 9])
def test_a_manifest_that_lost_its_end_is_refused(run, lines):
    """Mutation seen to fail: no look at what follows the cases."""
    whole = (run / NAME).read_bytes().splitlines(keepends=True)
    (run / NAME).write_bytes(b"".join(whole[:-lines]))
    with pytest.raises(DataError, match=r"to hold a whole `?manifest.json"):
        read_notes_of(run)
