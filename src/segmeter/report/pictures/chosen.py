"""Layers on disk -> those that a page shows, within a limit of bytes."""

import base64
import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
    here = {name for name in scores if (layers_path(folder, name) / NOTES).is_file()}
    sample = sorted(here, key=lambda name: hashlib.sha256(name.encode("utf-8", "surrogateescape")).digest())
    lists = ([name for name in names if name in here] for names in (worst_first(scores), of_class, sample))
    order = dict.fromkeys(name for names in itertools.zip_longest(*lists) for name in names if name is not None)
    left = int(config.picture_mb * 2**20)
    cases: dict[str, Mapping[str, Any]] = {}
    left_out: list[str] = []
    for name in order:
        notes, size = _load(layers_path(folder, name), linked=config.pictures == "link")
        left -= size
        if left < 0:
            left_out.append(name)
        else:
            cases[name] = notes
    return Shown(cases=cases, left_out=left_out)


def _load(place: Path, *, linked: bool) -> tuple[dict[str, Any], int]:
    """What a page needs of a case's layers, and how many characters of it that takes."""
    notes = read_notes(place)
    names = ["image.webp", *(each["file"] for each in notes["maps"])]
    names_of_files = notes.pop("files", None)
    if linked:
        contents = {name: f"{FOLDER}/{place.name}/{name}" for name in names}
    else:
        contents = {name: base64.b64encode((place / name).read_bytes()).decode() for name in _present(place, names)}
    notes |= {"files": contents} | ({"names": names_of_files} if names_of_files else {})
    return notes, 0 if linked else len(json.dumps(notes))


def _present(place: Path, names: Sequence[str]) -> Iterator[str]:
    return (name for name in names if (place / name).is_file())


def choose_pairs(
    folders: Sequence[Path], scores: Mapping[str, float | None], config: ReportConfig
) -> tuple[list[dict[str, Any]], list[str]]:
    """Load the layers of the same cases from several runs, the lowest `scores` first.

    The image and the target are kept once, with the first run that has them.

    Returns
    -------
    list of dict
        Per run what `Shown.cases` has.
    list of str
        Cases that were left out.
    """
    left, left_out = int(config.picture_mb * 2**20), list[str]()
    found: list[dict[str, Any]] = [{} for _ in folders]
    for name in worst_first(scores):
        places = [layers_path(folder, name) for folder in folders]
        here = [number for number, place in enumerate(places) if (place / NOTES).is_file()]
        pictures = {number: _load(places[number], linked=False)[0] for number in here}
        for number in here[1:]:
            _drop_shared(pictures[number])
        left -= len(json.dumps(pictures)) if here else 0
        if left < 0:
            left_out += [name] if here else []
        else:
            for number, picture in pictures.items():
                found[number][name] = picture
    return found, left_out


def _drop_shared(picture: dict[str, Any]) -> None:
    shared = {"image.webp", *(each["file"] for each in picture["maps"] if each["role"] == "target")}
    picture["maps"] = [each for each in picture["maps"] if each["role"] != "target"]
    picture["files"] = {name: content for name, content in picture["files"].items() if name not in shared}
