"""Takes one part of the sorted cases, as `shard=2/7` asks for, and describes that part in a run's records."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from segmeter.checks import expected
from segmeter.errors import ConfigError, InputError

Item = TypeVar("Item")

_SHARD = re.compile(r"([1-9]\d{0,8})/([1-9]\d{0,8})")


@dataclass(frozen=True)
class Shard:
    """One of `count` parts, numbered from 1.

    Examples
    --------
    >>> Shard(2, 3).take("abcdefg")
    'be'
    """

    number: int
    count: int

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def take(self, items: Sequence[Item]) -> Sequence[Item]:
        """Every `count`-th item from the `number`-th on; nothing is padded, so sizes differ by one at most."""
        return items[self.number - 1 :: self.count]


def parse_shard(text: str) -> Shard:
    """Read "2/7": the second of seven.

    Raises
    ------
    InputError
        It has another form, or the number is above the count.
    """
    match = _SHARD.fullmatch(text)
    if match is None or int(match[1]) > int(match[2]):
        raise InputError(expected("config", "shard", "to be NUMBER/COUNT, such as 2/7", repr(text)))
    return Shard(int(match[1]), int(match[2]))


def describe_shard(shard: Shard, case_ids: Sequence[str]) -> dict[str, Any]:
    """A shard's record: its place, the number of all cases of the whole run, and the hash of their names."""
    return {"shard": str(shard), "cases": len(case_ids), "sha256": hash_names(case_ids)}


def hash_names(case_ids: Sequence[str]) -> str:
    """Sha256 over the sorted names of cases."""
    return hashlib.sha256("\n".join(sorted(case_ids)).encode("utf-8", "surrogateescape")).hexdigest()


def check_filled(shard: Shard, parts: int, what: str, remedy: str) -> None:
    """Refuse more shards than there are `parts`, as some would be empty and have no metrics.

    Raises
    ------
    ConfigError
        The message says how many shards are possible.
    """
    if shard.count > parts:
        rule = f"to be one of at most {parts} shards, as there are {parts} {what}"
        raise ConfigError(expected("config", "shard", rule, str(shard), remedy))


def part_warning(shard: Shard, cases: int, whole: int) -> str:
    """A line that says which part of the cases a job covers."""
    return f"shard {shard}: {cases} of {whole} cases; `segmeter merge` joins the shards."


def note_shard(identity: Mapping[str, Any]) -> dict[str, Any]:
    """A mark for the metrics of a shard, so that nobody takes them for the whole run's."""
    return {"shard": identity["shard"]["shard"]} if "shard" in identity else {}
