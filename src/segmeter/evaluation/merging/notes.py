"""manifest.json of a finished run -> what it notes of its cases, in a fraction of the memory of its values."""

import itertools
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from segmeter.evaluation.manifest import CASES_LINE, END_LINE, LAST_LINE, NAME, SCHEMA, read_run_manifest
from segmeter.records import MOST_OF_CASES, open_own, parse_json

_DECODER = json.JSONDecoder()


class Notes(Mapping[str, Mapping[str, Any]]):
    """What a manifest notes of each case, {"sha256", "note"}: kept as JSON, which takes a fraction of the memory."""

    def __init__(self, lines: dict[str, bytes], path: Path = Path(NAME)) -> None:
        self._path = path
        self._lines = lines

    def line(self, case_id: str) -> bytes:
        """The note of a case, as JSON."""
        return self._lines[case_id]

    def __getitem__(self, case_id: str) -> Mapping[str, Any]:
        return parse_json(self._path, self._lines[case_id])

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines)

    def __len__(self) -> int:
        return len(self._lines)


def read_notes_of(folder: Path) -> tuple[dict[str, Any], Notes]:
    """What `read_run_manifest` gives but for the cases, and these; raises as it does."""
    with suppress(OSError, ValueError, KeyError), open_own(folder / NAME, most=MOST_OF_CASES) as file:
        head = b"".join(itertools.takewhile(lambda line: line != CASES_LINE, file))
        notes = dict(map(_split_line, itertools.takewhile(lambda line: line != END_LINE, file)))
        known = parse_json(folder / NAME, head.rstrip().removesuffix(b",") + b"\n}")
        if known["schema"] == SCHEMA and known["state"] == "done" and file.read() == LAST_LINE:
            return known, Notes(notes, folder / NAME)
    known = read_run_manifest(folder)  # written otherwise, or damaged
    cases = known.pop("cases")
    lines = {name: json.dumps(note, ensure_ascii=False).encode("utf-8") for name, note in cases.items()}
    return known, Notes(lines, folder / NAME)


def _split_line(line: bytes) -> tuple[str, bytes]:
    """The case and its note, from a line of a manifest."""
    text = line.decode("utf-8").strip().removesuffix(",")
    if not text.startswith('"'):
        raise ValueError(f"no name of a case in {text[:80]!r}")
    case_id, end = _DECODER.raw_decode(text)  # of a name alone, which can't be nested
    return case_id, text[end + 2 :].encode("utf-8")
