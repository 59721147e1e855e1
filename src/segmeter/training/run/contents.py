"""Training data <-> data.json of the run, the hash of every file, so that a resume can name the files that changed."""

from collections.abc import Mapping
from pathlib import Path

from segmeter.checks import some
from segmeter.errors import InputError
from segmeter.files import write_json
from segmeter.records import MOST_OF_CASES, read_json
from segmeter.training.data.cache import Cases

NAME = "data.json"


def write_contents(folder: Path, train_cases: Cases, val_cases: Cases | None) -> None:
    """Write the sha256 of every file of the training and validation cases into the run's folder."""
    splits = {"train": train_cases, "val": val_cases}
    write_json(folder / NAME, {name: dict(cases.contents()) for name, cases in splits.items() if cases is not None})


def name_changes(folder: Path, train_cases: Cases, val_cases: Cases | None) -> list[str]:
    """Say which files are not as they were when the run began: one line each for new, gone and changed ones.

    Only names are found here; whether anything changed is decided by the hash in the checkpoint.
    """
    try:
        before = read_json(folder / NAME, dict[str, dict[str, str]], most=MOST_OF_CASES)
    except (OSError, InputError):
        return [f"resume: {folder / NAME}, which could name the files that changed, can't be read."]
    lines = []
    for split, cases in (("train", train_cases), ("val", val_cases)):
        now = {} if cases is None else cases.contents()
        lines += [f"resume: data, {split}: {line}" for line in _differences(before.get(split, {}), now)]
    return lines


def _differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    found = {
        "with another content": sorted(name for name in before.keys() & now.keys() if before[name] != now[name]),
        "that are gone": sorted(before.keys() - now.keys()),
        "that are new": sorted(now.keys() - before.keys()),
    }
    return [f"files {what} ({some(names)})." for what, names in found.items() if names]
