"""Layers on disk -> those that a page shows, within a limit of bytes."""

import base64
import hashlib
import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from segmeter.files import safe_id
from segmeter.records import read_own
from segmeter.report.config import ReportConfig
from segmeter.report.pictures.gallery import worst_first
from segmeter.report.pictures.layers import FOLDER, NOTES, layers_path, read_notes


@dataclass(frozen=True, kw_only=True)
class Shown:
    """Pictures of a page.

    Parameters
    ----------
    cases
        Per case what `draw_layers` noted, with ``files``: by name, the content in Base64, or the path beside the page
        where pictures are linked.
    left_out
        Cases whose pictures were kept but would have made the page too large.
    """

    cases: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    left_out: Sequence[str] = ()


def choose_pictures(
    folder: Path,
    scores: Mapping[str, float | None],
    config: ReportConfig,
    *,
    of_class: Sequence[str] = (),
) -> Shown:
    """Load the layers of cases: in turn the next worst, the worst of the next class, and the next of a fair sample.

    Parameters
    ----------
    folder
        The run's folder.
    scores
        Headline per case id, None where undefined.
    config
        Whether pictures are embedded, and how many bytes in all.
    of_class
        The worst case of each class.
    """
    here = _pictured(folder, scores)
    sample = sorted(here, key=lambda name: hashlib.sha256(name.encode("utf-8", "surrogateescape")).digest())
    lists = (worst_first(here), [name for name in of_class if name in here], sample)
    order = dict.fromkeys(name for names in itertools.zip_longest(*lists) for name in names if name is not None)
    left = int(config.picture_mb * 2**20)
    cases: dict[str, Mapping[str, Any]] = {}
    left_out: list[str] = []
    for name in order:
        notes, size = _load(layers_path(folder, name), linked_from=folder if config.pictures == "link" else None)
        left -= size
        if left < 0:
            left_out.append(name)
        else:
            cases[name] = notes
    return Shown(cases=cases, left_out=left_out)


def _pictured(folder: Path, scores: Mapping[str, float | None]) -> dict[str, float | None]:
    """The cases that have layers; the folder is listed once, as asking for each of many cases takes long."""
    names = {path.parent.name for path in (folder / FOLDER).glob(f"*/{NOTES}")}
    return {name: score for name, score in scores.items() if safe_id(name) in names} if names else {}


def _load(place: Path, *, linked_from: Path | None) -> tuple[dict[str, Any], int]:
    """What a page needs of a case's layers, embedded or linked from a folder, and how many characters that takes."""
    notes = read_notes(place)
    names = ["image.webp", *(each["file"] for each in notes["maps"])]
    names_of_files = notes.pop("files", None)
    if linked_from is not None:
        address = quote(os.fsencode(os.path.relpath(place.resolve(), linked_from.resolve())))
        contents = {name: f"{address}/{name}" for name in names}
    else:
        contents = {name: base64.b64encode(read_own(place / name)).decode() for name in _present(place, names)}
    notes |= {"files": contents} | ({"names": names_of_files} if names_of_files else {})
    return notes, len(json.dumps(notes)) if linked_from is None else 0


def _present(place: Path, names: Sequence[str]) -> Iterator[str]:
    return (name for name in names if (place / name).is_file())


def choose_pairs(
    folders: Sequence[Path], scores: Mapping[str, float | None], config: ReportConfig, *, page: Path
) -> tuple[list[dict[str, Any]], list[str]]:
    """Load the layers of the same cases from several runs, the lowest `scores` first.

    The image and the target are kept once, with the first run that has them. `page` is the folder of the page, which
    linked pictures are named from.

    Returns
    -------
    list of dict
        Per run what `Shown.cases` has.
    list of str
        Cases that were left out.
    """
    left, left_out = int(config.picture_mb * 2**20), list[str]()
    linked_from = page if config.pictures == "link" else None
    found: list[dict[str, Any]] = [{} for _ in folders]
    pictured = {name for folder in folders for name in _pictured(folder, scores)}
    for name in worst_first({name: score for name, score in scores.items() if name in pictured}):
        places = [layers_path(folder, name) for folder in folders]
        here = [number for number, place in enumerate(places) if (place / NOTES).is_file()]
        pictures = {number: _load(places[number], linked_from=linked_from)[0] for number in here}
        for number in here[1:]:
            _drop_shared(pictures[number])
        left -= 0 if linked_from else len(json.dumps(pictures))
        if left < 0:
            left_out.append(name)
        else:
            for number, picture in pictures.items():
                found[number][name] = picture
    return found, left_out


def _drop_shared(picture: dict[str, Any]) -> None:
    shared = {"image.webp", *(each["file"] for each in picture["maps"] if each["role"] == "target")}
    picture["maps"] = [each for each in picture["maps"] if each["role"] != "target"]
    picture["files"] = {name: content for name, content in picture["files"].items() if name not in shared}
