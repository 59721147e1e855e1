"""Notes come back as they were put, whatever they look like, and take little more than the hash of a case."""

import json
import tracemalloc

import pytest

from segmeter.metrics.cases import notes as module
from segmeter.metrics.cases.notes import Notes

HASH = "0123456789abcdef" * 4


def note(sha256=HASH, **more):
    return json.dumps({"sha256": sha256, "note": more}, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    "given",
    [
        note(unit="mm"),
        note(HASH.upper()),
        note(""),
        note(HASH + "00"),
        note(text="two\nlines, \u00e9"),
        b'{"note": 1}',
        b'{"sha256": "' + HASH.encode() + b'"\n}',
    ],
)
def test_a_note_comes_back_to_the_byte(given):
    """Mutation seen to fail: hashes in capitals taken for others."""
    notes = Notes()
    notes.put("other", note("f" * 64, unit="pixels"))
    notes.put("a", given)
    assert notes["a"] == given
    assert list(notes) == ["other", "a"]


def test_more_kinds_of_notes_than_are_kept_once_come_back_too(monkeypatch):
    monkeypatch.setattr(module, "_MOST_RESTS", 3)
    notes, given = Notes(), {str(i): note(number=i) for i in range(5)}
    for case_id, each in given.items():
        notes.put(case_id, each)
    notes.put("again", given["1"])
    assert dict(notes) == given | {"again": given["1"]}


def test_a_later_note_of_a_case_replaces_the_first():
    notes = Notes()
    notes.put("a", note(number=1))
    notes.put("a", note(number=2))
    assert dict(notes) == {"a": note(number=2)}
    notes.clear()
    assert not notes


def test_a_usual_note_takes_two_hundred_bytes_with_its_place_in_the_dict():
    notes, ids = Notes(), [str(i) for i in range(5000)]
    tracemalloc.start()
    for i, case_id in enumerate(ids):
        notes.put(case_id, note(f"{i:064x}", unit="pixels", source="none", overridden=False, warnings=[]))
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert used / len(ids) < 200
