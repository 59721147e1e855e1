"""Case id -> what a run noted of the case, as JSON in little memory."""

import re
from collections.abc import Iterator, Mapping

_HASHED = re.compile(rb'\{"sha256": "([0-9a-f]{64})"(.*)', re.DOTALL)
_MOST_RESTS = 1000  # that are kept once; two bytes tell which, and the first of them is below "{"


class Notes(Mapping[str, bytes]):
    """What is noted of each case, as JSON: in the order of the cases' first notes.

    Most notes of a run differ in nothing but the hash of their files, which is then all that is kept of them.
    """

    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}
        self._codes: dict[bytes, int] = {}  # of what stands behind the hash
        self._rests: list[bytes] = []

    def put(self, case_id: str, note: bytes) -> None:
        """Keep a note as it is, or a number of what stands behind its hash, and the hash."""
        found = _HASHED.fullmatch(note)
        if found and (found[2] in self._codes or len(self._rests) < _MOST_RESTS):
            code = self._codes.setdefault(found[2], len(self._rests))
            self._rests += [found[2]] if code == len(self._rests) else []
            note = code.to_bytes(2) + bytes.fromhex(found[1].decode())
        self._kept[case_id] = note

    def __getitem__(self, case_id: str) -> bytes:
        kept = self._kept[case_id]
        if kept.startswith(b"{"):
            return kept
        return b'{"sha256": "%b"%b' % (kept[2:].hex().encode(), self._rests[int.from_bytes(kept[:2])])

    def __iter__(self) -> Iterator[str]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    def clear(self) -> None:
        """Forget all notes."""
        self._kept.clear()
